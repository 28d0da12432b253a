"""Child processes: their messages are read, and none of them outlives the search."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from turnpike.tune.errors import LowerPrecisionError, ServeError, StoppedError
from turnpike.tune.trial import bench, child_process
from turnpike.tune.trial.bench import lower_precision, running_server
from turnpike.tune.trial.child_process import MAX_STDERR_BYTES, ChildProcess, interruptible, turnpike_command
from turnpike.tune.trial.tuned_model import TunedModel


def never() -> bool:
    """The user does not stop the search."""
    return False


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script that runs in place of turnpike; each test writes it."""
    path = tmp_path / "turnpike.py"
    monkeypatch.setattr(child_process, "TURNPIKE", (str(path),))
    return path


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_the_address_comes_from_the_log(script: Path) -> None:
    script.write_text(
        "import sys, time\n"
        "sys.stderr.write('before turnpike serves http://127.0.0.1:4711 (digits-10)\\n')\n"
        "sys.stderr.flush()\n"
        "time.sleep(60)\n"
    )
    with running_server(["--port", "0"], never) as url:
        assert url == "http://127.0.0.1:4711"


def test_an_error_of_the_server_is_quoted(script: Path) -> None:
    script.write_text("import sys\nsys.stderr.write('{}\\nerror: --port: taken\\n')\nsys.exit(2)\n")
    with pytest.raises(ServeError, match=r"^turnpike serve: --port: taken$"), running_server([], never):
        pass
    script.write_text("raise SystemExit(3)\n")
    with (
        pytest.raises(ServeError, match="it ended with status 3 and no error message"),
        running_server([], never),
    ):
        pass


def test_a_server_that_is_never_ready_is_an_error(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "READY_SECONDS", 0.2)
    script.write_text("import time\ntime.sleep(60)\n")
    with pytest.raises(ServeError, match="expected it to be ready within 0.2 s"), running_server([], never):
        pass


def test_a_long_log_does_not_block_the_server(script: Path) -> None:
    script.write_text("import sys\nsys.stderr.write('x' * 3_000_000 + 'end')\n")
    with ChildProcess(turnpike_command(), never) as process:
        assert process.wait() == 0
        assert process.stderr_text.endswith("end")
        assert len(process.stderr_text) == MAX_STDERR_BYTES


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_processes(script: Path, tmp_path: Path, number: int) -> None:
    pids = tmp_path / "pids"
    script.write_text(
        f"import os, time\nopen({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\ntime.sleep(60)\n"
    )
    before = signal.getsignal(number)
    with interruptible() as stop_requested:

        def stop() -> bool:
            if pids.exists() and pids.read_text().count("\n") == 2:
                os.kill(os.getpid(), number)
                time.sleep(0.01)
            return stop_requested()

        with (
            pytest.raises(StoppedError),
            ChildProcess(turnpike_command("serve"), stop),
            ChildProcess(turnpike_command("x"), stop) as process,
        ):
            process.wait()
    ended = [int(pid) for pid in pids.read_text().split()]
    assert len(ended) == 2
    assert all(has_ended(pid) for pid in ended)
    assert signal.getsignal(number) == before


def test_a_process_that_will_not_end_is_killed(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "STOP_SECONDS", 0.2)
    pids = tmp_path / "pids"
    script.write_text(
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.fork()\n"
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "time.sleep(60)\n"
    )
    with ChildProcess(turnpike_command(), never) as process:
        for _ in process.poll():
            if pids.exists() and pids.read_text().count("\n") == 2:
                break
    ended = [int(pid) for pid in pids.read_text().split()]
    assert len(ended) == 2
    for pid in ended:
        deadline = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_precision_that_cannot_be_made_is_one_line(script: Path, tmp_path: Path) -> None:
    model = TunedModel("net", tmp_path / "model.onnx", tmp_path)
    script.write_text("import sys\nsys.stderr.write('error: was exported already\\n')\nsys.exit(1)\n")
    with pytest.raises(
        LowerPrecisionError,
        match="int8 was left out, .*: was exported already; name the checkpoint .* with --source",
    ):
        lower_precision(model, None, "int8", tmp_path, never)
    with pytest.raises(LowerPrecisionError, match="was exported already$"):
        lower_precision(model, "runs/net", "int8", tmp_path, never)
    script.write_text(
        "import pathlib, sys\n"
        "assert sys.argv[1:3] == ['export', 'runs/net']\n"
        "pathlib.Path(sys.argv[sys.argv.index('--to') + 1]).mkdir()\n"
    )
    assert lower_precision(model, "runs/net", "int8", tmp_path, never).is_dir()
