"""Lines of the README and the first tutorial that ask for predictions and gates run as they stand."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.live_server import serving
from turnpike import service

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def line(begin: str, part: str = "") -> str:
    """The one line of the pages that begins with these words and contains a part."""
    pages = (ROOT / "README.md", ROOT / "docs/tutorial/first-model.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    (found,) = {
        stripped
        for stripped in map(str.strip, text.splitlines())
        if stripped.startswith(begin) and part in stripped
    }
    return found


def shell(folder: Path, command: str) -> str:
    """Run a line as a reader would, with this checkout's program."""
    command = command.replace("turnpike ", f"{sys.executable} -m turnpike ", 1)
    result = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def test_a_zero_is_read_by_every_line(tmp_path: Path) -> None:
    shutil.copytree(Path(service.__file__).parent / "default", tmp_path / "repository")
    assert "layer00.transform_gate" in shell(tmp_path, line("turnpike inspect"))
    shell(tmp_path, line("echo "))
    (row,) = csv.DictReader(shell(tmp_path, line("turnpike predict")).splitlines())
    assert row["label"] == "0"
    assert sum(name.endswith(".transform_gate") for name in row) == 10
    with serving(tmp_path / "repository") as server:
        lines = [
            line("curl", part).replace("http://127.0.0.1:8000", server.url)
            for part in (":predict", "/lesion")
        ]
        prediction, answer = (json.loads(shell(tmp_path, command)) for command in lines)
    assert prediction["predictions"][0]["label"] == "0"
    lesion = answer["lesion"]
    assert lesion["closed"] == ["layer03.transform_gate"]
    assert lesion["by_row"]["label"]["before"] == ["0"]
