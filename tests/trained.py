"""A network trained by the command, within the process of the tests, which has loaded torch already."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import turnpike


def trained(folder: Path, epochs: int = 2) -> Path:
    """The folder of a short run of the default network."""
    words = ["train", "digits-10", "--epochs", str(epochs), "--no-pictures", "--out", str(folder)]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TURNPIKE_DATA", raising=False)
        ran = CliRunner().invoke(turnpike.app, words, prog_name="turnpike")
    assert ran.exit_code == 0, ran.stderr
    return folder
