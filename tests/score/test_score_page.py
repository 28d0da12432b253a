"""The commands of docs/how-to/score.md do what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.support.run_cli import environment
from tests.support.score_models import FEATURES, as_table, random_rows, scored, table_model

PAGE = Path(__file__).parents[2] / "docs/how-to/score.md"
GOOD = "1,2,3,4"


def commands() -> list[str]:
    return re.findall(r"^    (turnpike score .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    table_model(tmp_path).rename(tmp_path / "wine")
    (tmp_path / "repository").mkdir()
    (tmp_path / "wine").rename(tmp_path / "repository/wine")
    for folder in ("rows", "bad"):
        (tmp_path / folder).mkdir()
    parquet.write_table(as_table(random_rows(20), id=range(20)), tmp_path / "rows/a.parquet")
    header = ",".join(["id", *FEATURES])
    (tmp_path / "rows.csv").write_text(f"{header}\nx,{GOOD}\n")
    (tmp_path / "bad/a.csv").write_text(f"{header}\nx,{GOOD}\ny,1,,3,4\n")
    lines = [line for line in commands() if "--engine ray" not in line]
    assert len(lines) >= 6
    for line in lines:
        ran = subprocess.run(
            line.replace("turnpike", f"{shlex.quote(sys.executable)} -m turnpike", 1),
            shell=True,
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, f"{line}: {ran.stderr}"
    assert scored(tmp_path / "scored").num_rows == 20
    assert scored(tmp_path / "labels").column_names == ["id", "file", "row", "label", "p_a"]
    assert list((tmp_path / "by-label").glob("label=*/part-000000-00000.parquet"))
    assert len((tmp_path / "scored.csv").read_text().splitlines()) == 21
    assert (tmp_path / "labels.csv").read_text().splitlines()[0] == '"id","label"'
    # the lines that the page shows
    shown = re.search(r"^    file,row,reason\n    (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert shown is not None
    text = (tmp_path / "kept/_bad_rows.csv").read_text()
    assert text.splitlines() == ["file,row,reason", shown[1]]
