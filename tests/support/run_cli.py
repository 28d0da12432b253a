"""Runs the command line: in a process of its own, or faster in this one, which has loaded torch already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.support.live_server import environment as server_environment
from turnpike import cli

ROOT = Path(__file__).parents[2]


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "turnpike", *words]


def environment(**changes: str) -> dict[str, str]:
    """The environment of a command whose output does not depend on the terminal."""
    defaults = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    return server_environment(**(defaults | changes))


def run(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        command(*words),
        cwd=folder,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def run_in_process(*words: object) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(cli.app, [str(word) for word in words], prog_name="turnpike")


def train_digits(folder: Path) -> Path:
    """Train the default network for two epochs; returns the folder of the run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TURNPIKE_DATA", raising=False)
        ran = run_in_process("train", "digits-10", "--epochs", 2, "--no-pictures", "--out", folder)
    assert ran.exit_code == 0, ran.stderr
    return folder
