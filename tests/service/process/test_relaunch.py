"""The relaunch: settings reach the new program unchanged, and the supervisor imports little."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from service.config.settings import Settings
from service.http.auth import Authenticator
from service.process import relaunch
from tests.support.live_server import ROOT, environment, module, serving

# libraries that only the command line or only workers need
NOT_IN_SUPERVISOR = (
    *("typer", "rich", "pydantic", "numpy", "onnxruntime"),
    *("fastapi", "uvicorn", "uvloop", "simdjson"),
)


def pipe_with(content: bytes) -> Path:
    """A pipe with this content, as a shell makes one for `<(...)`."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return Path(f"/dev/fd/{reading}")


def imported_by(*modules: str) -> list[str]:
    """All modules that are loaded after importing these."""
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.split()


def test_settings_arrive_unchanged(tmp_path: Path) -> None:
    """Each has the same value and type."""
    settings = Settings(
        models=tmp_path, cors=("https://a.org", "*"), api_keys=("ünï", "b"), poll=0.5, docs=False, port=0
    )
    restored = relaunch.from_json(relaunch.to_json(settings))
    for name in Settings.model_fields:
        value, expected = getattr(restored, name), getattr(settings, name)
        assert (name, value, type(value)) == (name, expected, type(expected))


def test_secrets_are_not_shown() -> None:
    """Not in the repr of the settings, nor in the command line, which every user can read."""
    restored = relaunch.from_json(relaunch.to_json(Settings(admin_key="hush-hush")))
    assert restored.admin_key == "hush-hush"
    assert "hush" not in repr(restored)
    with serving(TURNPIKE_ADMIN_KEY="hush-hush") as server:
        assert b"hush" not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()


def test_without_memfd_a_temporary_file_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS. The next program inherits it."""
    monkeypatch.delattr(os, "memfd_create")
    descriptor = relaunch.anonymous_file()
    with os.fdopen(descriptor, "r+b") as file:
        file.write(b"settings")
        file.seek(0)
        assert file.read() == b"settings"
        assert os.get_inheritable(descriptor)
        assert os.fstat(descriptor).st_nlink == 0


def test_the_supervisor_imports_little() -> None:
    """Every worker inherits its memory."""
    modules = imported_by("service.process.relaunch", "service.process.supervisor")
    assert [name for name in NOT_IN_SUPERVISOR if name in modules] == []


def test_a_worker_imports_only_what_requests_need() -> None:
    """Not what reads settings, rarely used routes, or NumPy's random numbers."""
    modules = imported_by("service.process.worker", "service.api.app")
    rare = (
        "typer",
        "service.config.settings",
        "service.api.metrics",
        "service.api.openapi.document",
        "numpy.random",
    )
    assert [name for name in rare if name in modules] == []


def test_the_process_is_the_one_that_was_started(tmp_path: Path) -> None:
    """It keeps its pid and shows the words of the command, and imports nothing from the working directory."""
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


def test_the_package_is_found_if_it_is_not_installed(tmp_path: Path) -> None:
    """The script imports it, and fails only because there is no file of settings here."""
    code = (
        "import runpy, sys; sys.argv = ['relaunch.py', '99']; "
        "sys.meta_path = [finder for finder in sys.meta_path if 'editable' not in str(finder)]; "
        f"runpy.run_path({relaunch.__file__!r}, run_name='__main__')"
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


def test_a_pipe_is_still_readable_after_the_relaunch() -> None:
    """As with `--api-keys-file <(pass show keys)`."""
    pipe = pipe_with(b"first-key\n")
    words = ("turnpike", "serve", "--port", "0", "--drain-wait", "0")
    process = subprocess.Popen(
        [sys.executable, "-m", *words, "--api-keys-file", pipe],
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=[int(pipe.name)],
    )
    os.close(int(pipe.name))
    try:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert "turnpike serves" in next(line for line in lines if "serves" in line or "error" in line)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_errors_are_one_line(tmp_path: Path) -> None:
    """Also those found after the relaunch. --verbose shows the traceback; wrong use exits with status 2."""
    words = ("turnpike", "serve", "--port", "0", "--device", "cuda")
    with module(*words) as process:
        output, _ = process.communicate(timeout=60)
    assert output.startswith("error: device: cuda")
    assert output.count("\n") == 1
    assert process.returncode == 2
    with module(*words, "--verbose") as process:
        output, _ = process.communicate(timeout=60)
    assert "Traceback" in output
    assert output.splitlines()[-1].startswith("error: device: cuda")


def test_an_interrupt_before_the_supervisor_handles_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends without a traceback."""
    from service.process import supervisor

    def interrupted(settings: Settings, make_app: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(supervisor, "supervise", interrupted)
    descriptor = os.memfd_create("settings")
    os.write(descriptor, relaunch.to_json(Settings()))
    assert relaunch.main(descriptor, []) == relaunch.INTERRUPTED


def test_files_in_memory_survive_exec(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next program inherits the settings and the keys."""
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda path, words: commands.append(words))
    pipe = pipe_with(b"key\n")
    relaunch.relaunch(Settings(api_keys_file=pipe))
    os.close(int(pipe.name))
    descriptor = int(commands[0][3])
    settings = relaunch.from_json(os.pread(descriptor, 1 << 20, 0))
    assert settings.api_keys_file is not None
    keys = int(settings.api_keys_file.name)
    assert (os.get_inheritable(descriptor), os.get_inheritable(keys)) == (True, True)
    assert Path(f"/proc/self/fd/{keys}").read_bytes() == b"key\n"
    os.close(descriptor)
    os.close(keys)


def test_a_buffered_pipe_can_be_read_by_every_process(tmp_path: Path) -> None:
    """Repeatedly, and by forked processes. Ordinary files are not copied."""
    (tmp_path / "admin").write_text("boss-key\n")
    pipe = pipe_with(b"first-key\nsecond-key\n")
    settings = relaunch.buffer_pipes(Settings(api_keys_file=pipe, admin_key_file=tmp_path / "admin"))
    os.close(int(pipe.name))
    assert settings.admin_key_file == tmp_path / "admin"
    assert settings.tls_cert is None
    for _ in range(2):
        Authenticator.from_settings(settings).check("api", [(b"x-api-key", b"second-key")])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            Authenticator.from_settings(settings).check("api", [(b"x-api-key", b"first-key")])
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert settings.api_keys_file is not None
    os.close(int(settings.api_keys_file.name))


def test_ordinary_files_are_not_buffered(tmp_path: Path) -> None:
    """A file that is replaced is seen by the next worker."""
    (tmp_path / "keys").touch()
    settings = Settings(api_keys_file=tmp_path / "keys")
    assert relaunch.buffer_pipes(settings) == settings
