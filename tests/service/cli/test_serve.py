"""`turnpike serve`: its options are the settings, and their errors are one line."""

from __future__ import annotations

import os
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from service.cli.serve import app
from service.config.settings import SECRETS, Settings
from service.process import relaunch


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that it would have served with."""
    settings: list[Settings] = []
    monkeypatch.setattr(relaunch, "relaunch", settings.append)
    for name in list(os.environ):
        if name.startswith("TURNPIKE_"):
            monkeypatch.delenv(name)
    return settings


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def test_every_setting_but_secrets_is_an_option() -> None:
    """Every user of the machine could read a key on the command line."""
    options = {name for option in typer.main.get_command(app).params for name in option.opts}
    flags = {f"--{name.replace('_', '-')}" for name in Settings.model_fields if name not in SECRETS}
    assert options == flags | {"--config", "--print-config"}


def test_help_shows_defaults() -> None:
    """In square brackets, rich would read them as markup and drop them."""
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    assert "(default: 127.0.0.1)" in text
    assert "(default: 8000)" in text


def test_options_are_settings(served: list[Settings]) -> None:
    """Numbers, switches and lists have their types."""
    result = call("--port", "0", "--no-docs", "--check-parity", "--cors", "*", "--cors", "http://a.org")
    assert result.exit_code == 0
    assert served == [Settings(port=0, docs=False, check_parity=True, cors=("*", "http://a.org"))]


def test_without_options_it_serves_the_defaults(served: list[Settings]) -> None:
    """`turnpike serve` alone is enough."""
    call()
    assert served == [Settings()]


def test_print_config_serves_nothing(served: list[Settings]) -> None:
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
