"""The tutorials: their lines run as they stand, with a real server."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_server import Server, serving
from tests.support.python_path import python_path

ROOT = Path(__file__).parents[2]
TABLE_PAGE, DIGITS_PAGE = "own-table.md", "first-model.md"
LOCAL_URL = "http://127.0.0.1:8000"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def commands(page: str, begin: str) -> list[str]:
    """The lines of a tutorial that begin with these words."""
    text = (ROOT / "docs/tutorial" / page).read_text(encoding="utf-8")
    found = [line.strip() for line in text.splitlines() if line.startswith(f"    {begin}")]
    assert found, begin
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of somebody who has followed the tutorial of a table up to the server."""
    folder = tmp_path_factory.mktemp("tutorial")
    for line in [*commands(TABLE_PAGE, "python "), *commands(TABLE_PAGE, "turnpike ")]:
        if not line.startswith("turnpike serve"):
            shell(folder, line)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    assert commands(TABLE_PAGE, "turnpike serve") == ["turnpike serve repository"]
    with serving(folder / "repository") as running:
        yield running


def shell(folder: Path, line: str) -> str:
    """Run a line as a reader would, with this checkout's programs."""
    line = re.sub(r"^python (?=examples/)", f"{sys.executable} {ROOT}/", line)
    line = re.sub(r"^turnpike ", f"{sys.executable} -m turnpike ", line)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TURNPIKE_")}
    environment["PYTHONPATH"] = python_path()
    result = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, f"{line}: {result.stdout}{result.stderr}"
    return result.stdout


def test_a_table_is_scored(folder: Path) -> None:
    """Nearly all grapes are right, and the file has the columns that the page says."""
    with (folder / "scored.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:3] == ["grape", "label", "probability"]
    assert len(rows) == 178
    assert sum(row["grape"] == row["label"] for row in rows) > 170
    with (folder / "gates.csv").open() as file:
        header = next(csv.reader(file))
    assert sum(name.endswith(".transform_gate") for name in header) == 10


def test_the_served_model_gives_the_same_answers(folder: Path, server: Server) -> None:
    by_name, table = (
        shell(folder, line.replace(LOCAL_URL, server.url)) for line in commands(TABLE_PAGE, "curl ")
    )
    with (folder / "scored.csv").open() as file:
        scored = list(csv.DictReader(file))
    served = list(csv.DictReader(table.splitlines()))
    assert [row["label"] for row in served] == [row["label"] for row in scored]
    # the row that the page sends by names is the second of the table
    assert json.loads(by_name)["predictions"][0]["label"] == scored[1]["label"] == "barolo"


def test_a_first_model_is_trained_served_and_loaded(tmp_path: Path) -> None:
    """The zero of the page is read, and each layer is closed once."""
    # tests/system/test_readme.py runs the lines for a table and a lesion
    train, export, inspect, serve, _, load = commands(DIGITS_PAGE, "turnpike ")
    for line in (train, export):
        shell(tmp_path, line)
    assert "layer09.transform_gate" in shell(tmp_path, inspect)
    assert serve == "turnpike serve --models repository"
    (predict, _), (gates,) = commands(DIGITS_PAGE, "curl "), commands(DIGITS_PAGE, "python ")
    with serving(tmp_path / "repository") as server:
        answer = json.loads(shell(tmp_path, predict.replace(LOCAL_URL, server.url)))
        assert answer["predictions"][0]["label"] == "0"
        assert "without layer 9" in shell(tmp_path, f"{gates} {server.url}")
        # ten users for three seconds, which is enough to see that the line is right
        shorter = load.replace(LOCAL_URL, server.url).replace("30s", "3s").replace("50 ", "10 ")
        shell(tmp_path, shorter.replace("p99<50ms", "p99<2s"))
    assert (tmp_path / "load/loadtest.html").is_file()
