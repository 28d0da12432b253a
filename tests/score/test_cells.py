"""Tables with words, dates, booleans and blanks, in each format, give the predictions of their numbers."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.support.cell_tables import CSV, NAN, ROWS, expected_labels, put_cell_model
from tests.support.score_models import score, scored, table_model
from turnpike.score.errors import RowsError, UsageError

MANY = 3000


def write_csv(path: Path) -> None:
    header, *lines = CSV.splitlines(keepends=True)
    path.write_text(header + "".join(lines) * (MANY // 4))


def write_semicolons(path: Path) -> None:
    write_csv(path)
    path.write_text(path.read_text().replace(",", ";"))


def write_json_lines(path: Path) -> None:
    """Blanks are left out or null, and a word may be a number."""
    rows = [
        {name: cell for name, cell in row.items() if cell is not None or row["id"] == "b"} for row in ROWS
    ]
    rows[0] |= {"color": 3}
    path.write_text("".join(json.dumps(row) + "\n" for row in rows * (MANY // 4)))


def write_parquet(path: Path) -> None:
    """With dates of nanoseconds, a dictionary of words, and integers with blanks."""
    columns: dict[str, Any] = {name: [row[name] for row in ROWS] * (MANY // 4) for name in ROWS[0]}
    days = [dt.datetime.strptime(day, "%d.%m.%Y") for day in columns["day"]]
    columns["day"] = pyarrow.array(days, pyarrow.timestamp("ns"))
    columns["color"] = pyarrow.array(columns["color"]).dictionary_encode()
    columns["size"] = pyarrow.array(columns["size"], pyarrow.float32())
    parquet.write_table(pyarrow.table(columns), path)


WRITERS: dict[str, Callable[[Path], None]] = {
    "rows.csv": write_csv,
    "rows.tsv": write_semicolons,
    "rows.jsonl": write_json_lines,
    "rows.parquet": write_parquet,
}


@pytest.mark.parametrize("name", WRITERS)
def test_cells_are_scored(tmp_path: Path, name: str) -> None:
    put_cell_model(tmp_path / "models")
    WRITERS[name](tmp_path / name)
    assert score(tmp_path / "models", tmp_path / name, tmp_path / "out").rows == MANY
    table = scored(tmp_path / "out")
    assert table["id"].to_pylist() == ["a", "b", "c", "d"] * (MANY // 4)
    assert table["label"].to_pylist() == expected_labels() * (MANY // 4)
    assert not {"size", "color", "day", "ripe"} & set(table.column_names)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.csv",
            CSV + "e,1,red,02.01.1970,\n",
            "a.csv, line 6, column 'ripe': expected true or false, since",
        ),
        (
            "b.csv",
            CSV + "e,x,red,02.01.1970,no\n",
            "b.csv, line 6, column 'size': expected a number, got 'x'",
        ),
        (
            "c.jsonl",
            json.dumps(ROWS[0]) + "\n" + json.dumps(ROWS[1] | {"day": "May"}),
            "c.jsonl, line 2, column 'day': expected a date as %d.%m.%Y, got 'May'",
        ),
        ("d.jsonl", '[1, "red"]\n', "d.jsonl, line 1: expected 4 cells, or an object by features"),
    ],
)
def test_wrong_cells_name_their_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    put_cell_model(tmp_path / "models")
    (tmp_path / name).write_text(text)
    with pytest.raises(RowsError) as caught:
        score(tmp_path / "models", tmp_path / name, tmp_path / "out")
    assert message in str(caught.value)


MISSING = {
    "a.csv": "id,color,day,ripe,{}\na,3,03.01.1970,true,7\n",
    "b.jsonl": '{{"id": "a", "color": "3", "day": "03.01.1970", "ripe": true, "{}": 7}}\n',
}


@pytest.mark.parametrize("name", MISSING)
def test_columns_that_may_be_blank_may_be_missing(tmp_path: Path, name: str) -> None:
    """Unless another column has almost the name of one."""
    put_cell_model(tmp_path / "models")
    path = tmp_path / name
    path.write_text(MISSING[name].format("weight"))
    assert score(tmp_path / "models", path, tmp_path / "out").rows == 1
    expected = expected_labels(np.array([[NAN, 1, 2, 1]], np.float32))
    assert scored(tmp_path / "out")["label"].to_pylist() == expected
    path.write_text(MISSING[name].format("Sizes"))
    with pytest.raises(RowsError, match=f"{name}.*: expected a column 'size', got 'Sizes': did you mean it"):
        score(tmp_path / "models", path, tmp_path / "other")


def test_arrays_have_cells(tmp_path: Path) -> None:
    """As everywhere, a number in a column of dates is no date."""
    put_cell_model(tmp_path / "models")
    np.save(tmp_path / "rows.npy", np.array([[NAN, 3, 1, 1]]))
    with pytest.raises(
        RowsError, match=r"rows.npy, row 1, column 'day': expected a date as %d.%m.%Y, got 1.0"
    ):
        score(tmp_path / "models", tmp_path / "rows.npy", tmp_path / "out")


def test_warnings_are_a_column_on_request(tmp_path: Path) -> None:
    """A job without them cannot be continued with them."""
    put_cell_model(tmp_path / "models")
    (tmp_path / "rows.csv").write_text(CSV + "e,9.5,green,31.12.1969,no\n")
    score(tmp_path / "models", tmp_path / "rows.csv", tmp_path / "out", warnings=True)
    unseen = "color: a word that training has not seen"
    assert scored(tmp_path / "out")["warnings"].to_pylist() == [
        *("", "", "", unseen),
        f"size: 9.5 is outside of training's range, -3 to 3; {unseen}; "
        "day: 1969-12-31 is outside of training's range, 1970-01-01 to 1970-01-04",
    ]
    with pytest.raises(UsageError, match="has a job with --warnings; choose another folder"):
        score(tmp_path / "models", tmp_path / "rows.csv", tmp_path / "out")
    with pytest.raises(UsageError, match="--warnings: expected a model of a table with words"):
        score(table_model(tmp_path / "plain"), tmp_path / "rows.csv", tmp_path / "other", warnings=True)
