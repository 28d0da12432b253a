"""`turnpike serve`: its options are the settings, errors are one line, and its process imports little."""

from __future__ import annotations

import importlib.util
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tests.support.live_server import ROOT, environment, module, serving
from turnpike.common.distribution import needs_extra
from turnpike.service.cli import serve
from turnpike.service.cli.serve import PANELS, app
from turnpike.service.config.settings import SECRETS, Settings

pytestmark = pytest.mark.usefixtures("without_variables")

# libraries that only workers need
NOT_IN_SUPERVISOR = (
    *("numpy", "onnxruntime", "fastapi", "uvicorn", "uvloop", "simdjson", "fsspec"),
    *("hpack", "google"),
)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Records the settings instead of serving."""
    served: list[Settings] = []

    def supervise(settings: Settings, make_app: object) -> int:
        served.append(settings)
        return 0

    monkeypatch.setattr(serve, "supervise", supervise)
    return served


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def test_every_setting_except_secrets_is_an_option() -> None:
    """Every user of the machine could read a key on the command line."""
    options = {name for option in typer.main.get_command(app).params for name in option.opts}
    flags = {f"--{name.replace('_', '-')}" for name in Settings.model_fields if name not in SECRETS}
    assert options == flags | {"place", "--config", "--print-config"}


def test_help_has_headings_for_settings() -> None:
    """Each is the heading of the settings that follow it."""
    assert set(PANELS) <= set(Settings.model_fields)
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    _, keys = text.split("Keys")
    own, _ = keys.split("How it stops")
    assert set(re.findall(r"--[a-z-]+", own)) == {"--api-keys-file", "--admin-key-file"}


def test_help_shows_defaults() -> None:
    """rich would read square brackets as markup and drop the defaults."""
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    assert "(default: 127.0.0.1)" in text
    assert "(default: 8000)" in text


def test_options_are_converted_to_settings(served: list[Settings]) -> None:
    """Numbers, switches and lists have their types."""
    result = call("--port", "0", "--no-docs", "--check-parity", "--cors", "*", "--cors", "http://a.org")
    assert result.exit_code == 0
    assert served == [Settings(port=0, docs=False, check_parity=True, cors=("*", "http://a.org"))]


def test_without_options_the_defaults_are_served(served: list[Settings]) -> None:
    """`turnpike serve` alone is enough."""
    call()
    assert served == [Settings()]


def test_print_config_does_not_start_the_service(served: list[Settings]) -> None:
    """It prints every value with its origin."""
    result = call("--print-config", "--workers", "3")
    assert result.exit_code == 0
    assert "workers = 3  # --workers\n" in result.stdout
    assert served == []


def test_an_invalid_setting_is_a_setting_error(served: list[Settings]) -> None:
    """`turnpike` prints it as one line, instead of a usage screen of typer."""
    result = call("--workers", "none")
    assert str(result.exception) == "--workers: expected a whole number from 1 to 256 or auto, got 'none'"
    assert served == []


@pytest.mark.parametrize("package", ["hpack", "google.protobuf"])
def test_grpc_needs_its_packages(
    package: str, served: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says how to install them, before anything is started."""
    find_spec = importlib.util.find_spec

    def find(name: str) -> Any:
        return None if name == package else find_spec(name)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    message = needs_extra("--grpc-port", package, "serve,grpc")
    assert str(call("--grpc-port", "0").exception) == message
    assert served == []
    assert call().exit_code == 0


def test_a_port_in_use_is_named_with_its_option() -> None:
    """Which of the two ports it is."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with module("turnpike", "serve", "--port", "0", "--grpc-port", port) as process:
            output, _ = process.communicate(timeout=60)
    message = f"error: --grpc-port: expected a free port, got {port}, on which another process listens\n"
    assert output == message


def test_errors_are_one_line() -> None:
    """So are errors of workers. --verbose shows the traceback. Usage errors exit with status 2."""
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


@pytest.mark.parametrize("status", [0, 1])
def test_the_exit_status_is_that_of_the_supervisor(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "supervise", lambda settings, make_app: status)
    assert call().exit_code == status


def test_an_early_interrupt_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(settings: Settings, make_app: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(serve, "supervise", interrupted)
    result = call()
    assert (result.exit_code, result.output.strip()) == (130, "")


def test_secrets_are_not_shown() -> None:
    """They are neither in the command line, which every user can read, nor in the log."""
    with serving("--log-level", "debug", TURNPIKE_ADMIN_KEY="hush-hush") as server:
        assert b"hush" not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    assert "hush" not in server.output


def test_nothing_is_imported_from_the_working_directory(tmp_path: Path) -> None:
    """The process shows its command line as it was given."""
    (tmp_path / "service").mkdir()
    (tmp_path / "service" / "__init__.py").write_text("raise SystemExit('the wrong one')\n")
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong one')\n")
    command = Path(sys.executable).parent / "turnpike"
    words = ["serve", "--port", "0", "--drain-wait", "0"]
    process = subprocess.Popen(
        [command, *words], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("turnpike serves" in line for line in lines)
        shown = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode().split("\0")
        assert shown[1:-1] == [str(command), *words]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def imported_by(*modules: str) -> list[str]:
    """All modules that are loaded after importing these."""
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.split()


def test_the_supervisor_does_not_import_large_libraries() -> None:
    """Each of these libraries would take memory in a process that answers no request."""
    modules = imported_by("turnpike", "turnpike.service.cli.serve")
    assert [name for name in NOT_IN_SUPERVISOR if name in modules] == []


def test_a_worker_imports_only_what_requests_need() -> None:
    """The command line, rare routes and NumPy's random numbers are not imported."""
    modules = imported_by("turnpike.service.process.worker", "turnpike.service.api.app")
    rare = (
        "typer",
        "rich",
        "turnpike.service.api.metrics",
        "turnpike.service.api.openapi.document",
        "turnpike.service.api.openapi.schemas",
        "numpy.random",
    )
    assert [name for name in rare if name in modules] == []
