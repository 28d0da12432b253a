"""Commands of ours as processes: what they say is heard, and none of them outlives the search."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tune import child as module
from tune import server
from tune.child import KEPT, Child, turnpike
from tune.errors import ExportError, ServeError, StoppedError
from tune.interrupt import interruptible
from tune.model_under_test import Subject
from tune.precision import lowered
from tune.server import served


def nobody() -> None:
    """Nobody wants it to stop."""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What runs in the place of turnpike; a test writes it."""
    path = tmp_path / "turnpike.py"
    monkeypatch.setattr(module, "TURNPIKE", path)
    return path


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_server_has_the_address_that_it_says(script: Path) -> None:
    """It is known as soon as the server is ready."""
    script.write_text(
        "import sys, time\n"
        "sys.stderr.write('before turnpike serves http://127.0.0.1:4711 (digits-10)\\n')\n"
        "sys.stderr.flush()\n"
        "time.sleep(60)\n"
    )
    with served(["--port", "0"], nobody) as url:
        assert url == "http://127.0.0.1:4711"


def test_what_ends_a_server_is_said_in_its_own_words(script: Path) -> None:
    """Without the lines of the log before that."""
    script.write_text("import sys\nsys.stderr.write('{}\\nerror: --port: taken\\n')\nsys.exit(2)\n")
    with pytest.raises(ServeError, match=r"^turnpike serve: --port: taken$"), served([], nobody):
        pass
    script.write_text("raise SystemExit(3)\n")
    with pytest.raises(ServeError, match="it ended with status 3 and without a word"), served([], nobody):
        pass


def test_a_server_that_is_never_ready_is_not_waited_for(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is an end to every wait."""
    monkeypatch.setattr(server, "READY", 0.2)
    script.write_text("import time\ntime.sleep(60)\n")
    with pytest.raises(ServeError, match="expected it to be ready within 0.2 s"), served([], nobody):
        pass


def test_a_log_is_read_as_fast_as_it_comes(script: Path) -> None:
    """A server that writes much is not held up, and no more than the end of it is kept."""
    script.write_text("import sys\nsys.stderr.write('x' * 3_000_000 + 'end')\n")
    with Child(turnpike(), nobody) as child:
        assert child.finish() == 0
        assert child.said.endswith("end")
        assert len(child.said) == KEPT


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_stops_the_search_ends_its_processes(script: Path, tmp_path: Path, number: int) -> None:
    """Ctrl-C, an operator, or a terminal that is closed."""
    pids = tmp_path / "pids"
    script.write_text(
        f"import os, time\nopen({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\ntime.sleep(60)\n"
    )
    before = signal.getsignal(number)
    with interruptible() as check:

        def stop() -> None:
            if pids.exists() and pids.read_text().count("\n") == 2:
                os.kill(os.getpid(), number)
                time.sleep(0.01)
            check()

        with pytest.raises(StoppedError), Child(turnpike("serve"), stop), Child(turnpike("x"), stop) as child:
            child.finish()
    ended = [int(pid) for pid in pids.read_text().split()]
    assert len(ended) == 2
    assert all(gone(pid) for pid in ended)
    assert signal.getsignal(number) == before


def test_a_process_that_will_not_end_is_killed(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With those that it started."""
    monkeypatch.setattr(module, "END", 0.2)
    pids = tmp_path / "pids"
    script.write_text(
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "os.fork()\n"
        f"open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
        "time.sleep(60)\n"
    )
    with Child(turnpike(), nobody) as child:
        for _ in child.looks():
            if pids.exists() and pids.read_text().count("\n") == 2:
                break
    for pid in map(int, pids.read_text().split()):
        until = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
            assert time.monotonic() < until
            time.sleep(0.01)


def test_a_precision_that_cannot_be_made_is_said_in_a_line(script: Path, tmp_path: Path) -> None:
    """In the words of export, and with what to do where no source was named."""
    one = Subject("net", tmp_path / "model.onnx", tmp_path)
    script.write_text("import sys\nsys.stderr.write('error: was exported already\\n')\nsys.exit(1)\n")
    with pytest.raises(ExportError, match="int8 was left out, .*: was exported already; --source names"):
        lowered(one, None, "int8", tmp_path, nobody)
    with pytest.raises(ExportError, match="was exported already$"):
        lowered(one, "runs/net", "int8", tmp_path, nobody)
    script.write_text(
        "import pathlib, sys\n"
        "assert sys.argv[1:3] == ['export', 'runs/net']\n"
        "pathlib.Path(sys.argv[sys.argv.index('--to') + 1]).mkdir()\n"
    )
    assert lowered(one, "runs/net", "int8", tmp_path, nobody).is_dir()
