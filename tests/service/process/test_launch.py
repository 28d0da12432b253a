"""The new start of the interpreter: settings that arrive as they were, and a process that holds little."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.config.settings import Settings
from service.process import relaunch as launch
from tests.support.live_server import ROOT, environment, module, serving

# what only reads settings, and what only workers need
ELSEWHERE = ("typer", "rich", "pydantic", "numpy", "onnxruntime", "fastapi", "uvicorn", "uvloop", "simdjson")


def test_settings_arrive_as_they_were(tmp_path: Path) -> None:
    """Every one of them, by type as well as by value."""
    given = Settings(
        models=tmp_path, cors=("https://a.org", "*"), api_keys=("ünï", "b"), poll=0.5, docs=False, port=0
    )
    arrived = launch.from_json(launch.to_json(given))
    for name in Settings.model_fields:
        value, expected = getattr(arrived, name), getattr(given, name)
        assert (name, value, type(value)) == (name, expected, type(expected))


def test_secrets_are_not_shown() -> None:
    """Neither by the settings that arrived, nor where every user of the machine sees how processes began."""
    arrived = launch.from_json(launch.to_json(Settings(admin_key="hush-hush")))
    assert arrived.admin_key == "hush-hush"
    assert "hush" not in repr(arrived)
    with serving(TURNPIKE_ADMIN_KEY="hush-hush") as server:
        assert b"hush" not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()


def test_where_files_in_memory_are_not_to_be_had_one_without_a_name_will_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a Mac; the program that follows still has it."""
    monkeypatch.delattr(os, "memfd_create")
    descriptor = launch.anonymous_file()
    with os.fdopen(descriptor, "r+b") as file:
        file.write(b"settings")
        file.seek(0)
        assert file.read() == b"settings"
        assert os.get_inheritable(descriptor)
        assert os.fstat(descriptor).st_nlink == 0


def imported(*modules: str) -> list[str]:
    """All that is there once these are."""
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.split()


def test_the_supervisor_holds_little() -> None:
    """What it has imported is what it needs: each worker has as much again."""
    there = imported("service.process.relaunch", "service.process.supervisor")
    assert [name for name in ELSEWHERE if name in there] == []


def test_a_worker_holds_what_answers_requests() -> None:
    """What reads settings is not among that, nor what few ever ask for, nor generators of random numbers."""
    there = imported("service.process.worker", "service.api.app")
    rare = (
        "typer",
        "service.config.settings",
        "service.api.metrics",
        "service.api.openapi.document",
        "numpy.random",
    )
    assert [name for name in rare if name in there] == []


def test_the_process_is_the_one_that_was_started(tmp_path: Path) -> None:
    """Its number is the same, it shows the words of the command, and nothing beside them is imported."""
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong one')\n")
    command = Path(sys.executable).parent / "turnpike"
    process = subprocess.Popen(
        [command, "serve", "--port", "0", "--drain-wait", "0"],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("turnpike serves" in line for line in lines)
        words = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode().split("\0")
        assert words[-6:-1] == ["serve", "--port", "0", "--drain-wait", "0"]
        assert words[1] == "-P"
        assert words[2].endswith("/service/process/relaunch.py")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_the_package_is_found_wherever_it_lies(tmp_path: Path) -> None:
    """In a folder that is not installed, too: there is no settings file here, and that is what is missed."""
    code = (
        "import runpy, sys; sys.argv = ['launch.py', '99']; "
        "sys.meta_path = [one for one in sys.meta_path if 'editable' not in str(one)]; "
        f"runpy.run_path({launch.__file__!r}, run_name='__main__')"
    )
    ran = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path,
        env={name: value for name, value in environment().items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr.splitlines()[-1] == "OSError: [Errno 9] Bad file descriptor"


def test_a_pipe_is_read_before_and_there_afterwards() -> None:
    """As `--api-keys-file <(pass show keys)` has it; a file in memory stands for it in every process."""
    reading, writing = os.pipe()
    os.write(writing, b"first-key\n")
    os.close(writing)
    words = ("turnpike", "serve", "--port", "0", "--drain-wait", "0")
    process = subprocess.Popen(
        [sys.executable, "-m", *words, "--api-keys-file", f"/dev/fd/{reading}"],
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[reading],
    )
    os.close(reading)
    try:
        assert process.stderr is not None
        said = next(line for line in iter(process.stderr.readline, "") if "serves" in line or "error" in line)
        assert "turnpike serves" in said
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_what_goes_wrong_is_said_in_a_line(tmp_path: Path) -> None:
    """Of what is found out later, too; --verbose shows where, and the exit status tells wrong use."""
    words = ("turnpike", "serve", "--port", "0", "--device", "cuda")
    with module(*words) as process:
        said, _ = process.communicate(timeout=60)
    assert said.startswith("error: device: cuda")
    assert said.count("\n") == 1
    assert process.returncode == 2
    with module(*words, "--verbose") as process:
        said, _ = process.communicate(timeout=60)
    assert "Traceback" in said
    assert said.splitlines()[-1].startswith("error: device: cuda")


def test_it_can_be_interrupted_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the supervisor hears signals, too: without a traceback."""
    from service.process import supervisor

    def interrupted(settings: Settings, make_app: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(supervisor, "supervise", interrupted)
    descriptor = os.memfd_create("settings")
    os.write(descriptor, launch.to_json(Settings()))
    assert launch.main(descriptor, []) == launch.INTERRUPTED


def test_files_in_memory_survive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What becomes of this process has the settings and the keys open."""
    began: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, words: began.append(words))
    reading, writing = os.pipe()
    os.write(writing, b"key\n")
    os.close(writing)
    launch.relaunch(Settings(api_keys_file=Path(f"/dev/fd/{reading}")))
    os.close(reading)
    descriptor = int(began[0][3])
    settings = launch.from_json(os.pread(descriptor, 1 << 20, 0))
    assert settings.api_keys_file is not None
    kept = int(settings.api_keys_file.name)
    assert (os.get_inheritable(descriptor), os.get_inheritable(kept)) == (True, True)
    assert Path(f"/proc/self/fd/{kept}").read_bytes() == b"key\n"
    os.close(descriptor)
    os.close(kept)
