"""`turnpike serve`: its options are the settings, and what is wrong with them is one line."""

from __future__ import annotations

import os
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from service.cli.serve import app
from service.config.settings import SECRETS, Settings
from service.process import relaunch as launch


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings with which it would have served."""
    found: list[Settings] = []

    monkeypatch.setattr(launch, "relaunch", found.append)
    for name in list(os.environ):
        if name.startswith("TURNPIKE_"):
            monkeypatch.delenv(name)
    return found


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def test_every_setting_but_secrets_is_an_option() -> None:
    """A key on the command line could be read by every user of the machine."""
    words = {word for option in typer.main.get_command(app).params for word in option.opts}
    flags = {f"--{name.replace('_', '-')}" for name in Settings.model_fields if name not in SECRETS}
    assert words == flags | {"--config", "--print-config"}


def test_options_are_settings(served: list[Settings]) -> None:
    """Numbers, switches and lists arrive as what they are."""
    result = call("--port", "0", "--no-docs", "--check-parity", "--cors", "*", "--cors", "http://a.org")
    assert result.exit_code == 0
    assert served == [Settings(port=0, docs=False, check_parity=True, cors=("*", "http://a.org"))]


def test_nothing_given_is_the_defaults(served: list[Settings]) -> None:
    """`turnpike serve` alone is enough."""
    call()
    assert served == [Settings()]


def test_the_settings_are_shown_and_nothing_is_served(served: list[Settings]) -> None:
    """--print-config says every value and where it came from."""
    result = call("--print-config", "--workers", "3")
    assert result.exit_code == 0
    assert "workers = 3  # --workers\n" in result.stdout
    assert served == []


def test_what_is_wrong_is_an_error_of_ours(served: list[Settings]) -> None:
    """Not a usage screen of the command line's library: the front door says it in a line."""
    result = call("--workers", "none")
    assert str(result.exception) == "--workers: expected a whole number from 1 to 256 or auto, got 'none'"
    assert served == []
