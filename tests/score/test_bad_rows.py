"""Rows and files that cannot be scored: what is written for them, and how a job goes on after a repair."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from tests.support.cell_tables import CSV, ROWS, put_cell_model
from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.run_cli import run_in_process
from tests.support.score_models import (
    FEATURES,
    as_table,
    expected_labels,
    nameless_model,
    random_rows,
    score,
    scored,
    table_model,
)
from turnpike.score.errors import RowsError, UsageError
from turnpike.score.job.folder import BAD_ROWS_FILE
from turnpike.score.job.options import OnError
from turnpike.score.run import JobOptions, run_job

HEADER = "id,height [m],mass,age,width\n"
GOOD = "1,2,3,4"
# a file of three rows, of which the second cannot be scored, and the reason
BAD = {
    "missing.csv": (
        f"{HEADER}a,{GOOD}\nb,1,,3,4\nc,{GOOD}\n",
        "line 3, column 'mass': expected a finite number, got a missing value",
    ),
    "word.csv": (
        f"{HEADER}a,{GOOD}\nb,1,2,x,4\nc,{GOOD}\n",
        "line 3, column 'age': expected a finite number, got 'x'",
    ),
    "quoted.csv": (
        f'{HEADER}"a\n1",{GOOD}\n\nb,1,2,nan,4\nc,{GOOD}\n',
        "line 5, column 'age': expected a finite number, got nan",
    ),
    "short.csv": (f"{HEADER}a,{GOOD}\nb,1\nc,{GOOD}\n", "line 3: expected 5 columns, got 2"),
    "json.jsonl": (
        '[1,2,3,4]\n\n{"id\n[1,2,3,4]\n',
        "line 3: expected JSON (unexpected end of data: line 1 column 5 (char 4))",
    ),
    "kind.jsonl": (
        "[1,2,3,4]\n[1,2,{},4]\n[1,2,3,4]\n",
        "line 2, column 'age': expected a finite number, got '{}'",
    ),
    "length.jsonl": (
        "[1,2,3,4]\n[1,2,3]\n[1,2,3,4]\n",
        "line 2: expected 4 numbers, or an object by features",
    ),
    "keys.jsonl": (
        '[1,2,3,4]\n{"age": 3}\n[1,2,3,4]\n',
        "line 2: expected the keys of the other lines, got others",
    ),
}


def bad_rows(output: Path) -> list[tuple[str, str, str]]:
    """The rows of the file without its header."""
    with (output / BAD_ROWS_FILE).open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["file", "row", "reason"]
    return [(file, row, reason) for file, row, reason in rows]


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_left_out_or_has_no_prediction(tmp_path: Path, name: str) -> None:
    """The others have theirs, and the file of bad rows says which it is and why."""
    model, source = table_model(tmp_path / "models"), tmp_path / name
    text, reason = BAD[name]
    source.write_text(text)
    with pytest.raises(RowsError) as error:
        score(model, source, tmp_path / "out")
    assert str(error.value) == f"{source}, {reason}"
    label = expected_labels(model, np.array([[1, 2, 3, 4]], np.float32))[0]
    result = score(model, source, tmp_path / "reject", on_error=OnError.REJECT)
    assert (result.rows, result.bad_rows) == (3, 1)
    assert scored(tmp_path / "reject")["label"].to_pylist() == [label, label]
    assert bad_rows(tmp_path / "reject") == [(name, "2", reason)]
    # a job that failed may be continued
    score(model, source, tmp_path / "out", on_error=OnError.NULL)
    table = scored(tmp_path / "out")
    assert table["label"].to_pylist() == [label, None, label]
    assert table["p_a"].null_count == table["probability"].null_count == 1
    assert bad_rows(tmp_path / "out") == [(name, "2", reason)]
    if name.endswith(".csv") and name != "short.csv":
        assert table["id"].to_pylist()[1:] == ["b", "c"]


def test_rows_of_each_batch_are_found(tmp_path: Path) -> None:
    """In Parquet and arrays too, and also if all rows are bad."""
    model, rows = nameless_model(tmp_path / "models"), random_rows(40_000)
    bad = [0, 16_383, 16_384, 39_999]
    rows[bad, [0, 1, 2, 3]] = np.nan
    np.save(tmp_path / "rows.npy", rows)
    numbered = {f"f{index}": rows[:, index] for index in range(4)}
    parquet.write_table(pyarrow.table({"id": range(40_000), **numbered}), tmp_path / "flat.parquet")
    lists = [None if row in bad else list(values) for row, values in enumerate(rows)]
    lists[5] = [1.0, 2.0]
    parquet.write_table(pyarrow.table({"x": lists}), tmp_path / "lists.parquet")
    np.save(tmp_path / "all.npy", np.full((3, 4), np.inf))
    source = f"{tmp_path}/*.*"
    for on_error in (OnError.REJECT, OnError.NULL):
        output = tmp_path / f"out {on_error}"
        result = score(model, source, output, on_error=on_error, source=True, keep=())
        numbers = {
            "all.npy": [0, 1, 2],
            "flat.parquet": bad,
            "lists.parquet": sorted([5, *bad]),
            "rows.npy": bad,
        }
        expected = [(name, str(row + 1)) for name, found in numbers.items() for row in found]
        assert [(file, row) for file, row, _ in bad_rows(output)] == expected
        assert result.bad_rows == len(expected)
        table = scored(output)
        places = zip(table["file"].to_pylist(), table["row"].to_pylist(), strict=True)
        labels = dict(zip(places, table["label"].to_pylist(), strict=True))
        assert len(labels) == table.num_rows == 120_003 - (len(expected) if on_error == OnError.REJECT else 0)
        good = np.delete(np.arange(40_000), bad)
        assert [labels["rows.npy", row + 1] for row in good] == expected_labels(model, rows[good])
        assert labels.get(("rows.npy", 1)) is None
        assert labels["lists.parquet", 10] == labels["rows.npy", 10] == labels["flat.parquet", 10]


def test_a_file_may_have_only_broken_lines(tmp_path: Path) -> None:
    model, source = table_model(tmp_path / "models"), tmp_path / "rows.jsonl"
    source.write_text("{\n{\n")
    with pytest.raises(RowsError, match="line 1: expected JSON"):
        score(model, source, tmp_path / "out")
    assert score(model, source, tmp_path / "out", on_error=OnError.NULL).bad_rows == 2
    assert scored(tmp_path / "out")["label"].to_pylist() == [None, None]


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    model, folder = table_model(tmp_path / "models"), tmp_path / "rows"
    write_files(folder, 1)
    (folder / "gone.csv").symlink_to(tmp_path / "nothing")
    with pytest.raises(RowsError, match=r"gone\.csv: expected a file that can be read"):
        score(model, folder, tmp_path / "out")
    assert scored(tmp_path / "out").num_rows == 20


def test_cells_and_images_may_be_bad(tmp_path: Path) -> None:
    put_cell_model(tmp_path / "models")
    (tmp_path / "rows.csv").write_text(CSV + "e,x,red,02.01.1970,\n")
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in (ROWS[0], ROWS[1] | {"day": "May"}, ROWS[2]))
    )
    score(tmp_path / "models", f"{tmp_path}/rows.*", tmp_path / "out", on_error=OnError.REJECT)
    assert scored(tmp_path / "out")["id"].to_pylist() == [*"abcd", *"ac"]
    assert [row[:2] for row in bad_rows(tmp_path / "out")] == [("rows.csv", "5"), ("rows.jsonl", "2")]
    (tmp_path / "images").mkdir()
    for name in "ab":
        Image.new("L", (8, 8)).save(tmp_path / f"images/{name}.png")
    (tmp_path / "images/aa.png").write_bytes(b"no image")
    score(BUNDLED_MODEL, tmp_path / "images", tmp_path / "labels", on_error=OnError.NULL)
    assert scored(tmp_path / "labels").select(["file"]).to_pydict() == {"file": ["a.png", "aa.png", "b.png"]}
    assert scored(tmp_path / "labels")["label"].null_count == 1
    ((file, row, reason),) = bad_rows(tmp_path / "labels")
    assert (file, row) == ("aa.png", "1")
    assert reason.startswith("expected a PNG or JPEG image")


def write_files(folder: Path, count: int, rows: int = 20) -> None:
    folder.mkdir()
    for number in range(count):
        ids = range(number * rows, (number + 1) * rows)
        parquet.write_table(as_table(random_rows(rows, number), id=ids), folder / f"{number}.parquet")


def test_bad_files_are_named_at_the_end_and_scored_after_a_repair(tmp_path: Path) -> None:
    """Only their parts are scored then. Files may be added, and a file that has changed is scored again."""
    model, folder, output = table_model(tmp_path / "models"), tmp_path / "rows", tmp_path / "out"
    write_files(folder, 5)
    good = {name: (folder / name).read_bytes() for name in ("1.parquet", "3.parquet")}
    (folder / "1.parquet").write_bytes(b"damaged")
    parquet.write_table(pyarrow.table({"id": [1]}), folder / "3.parquet")
    ran = run_in_process("score", "-m", model, "-i", folder, "-o", output, "-q")
    assert ran.exit_code == 1
    first, second, third = ran.stderr.splitlines()
    assert first.startswith(f"{folder}/1.parquet: expected a Parquet file")
    assert second.startswith(f"{folder}/3.parquet: expected all 4 features of the model")
    assert third.startswith("error: 2 of 5 files cannot be scored; the rows of the other files are in")
    assert scored(output).num_rows == 60
    for name, content in good.items():
        (folder / name).write_bytes(content)
    result = score(model, folder, output)
    assert (result.rows, result.reused_parts, result.parts) == (40, 3, 5)
    # it sorts before the others, whose places stay
    parquet.write_table(as_table(random_rows(7), id=range(100, 107)), folder / "+.parquet")
    assert score(model, folder, output).rows == 7
    assert scored(output)["id"].to_pylist() == [*range(107)]
    parquet.write_table(as_table(random_rows(9), id=range(9)), folder / "0.parquet")
    result = score(model, folder, output)
    assert (result.rows, result.changed_files) == (9, 1)
    assert scored(output)["id"].to_pylist() == [*range(9), *range(20, 107)]
    assert score(model, folder, output).rows == 0


def test_images_may_be_added_and_changed(tmp_path: Path) -> None:
    folder, output = tmp_path / "images", tmp_path / "out"
    folder.mkdir()
    Image.new("L", (8, 8)).save(folder / "b.png")
    assert score(BUNDLED_MODEL, folder, output).rows == 1
    Image.new("L", (8, 8)).save(folder / "a.png")
    result = score(BUNDLED_MODEL, folder, output)
    assert (result.rows, result.reused_parts) == (1, 1)
    Image.new("L", (8, 8), 9).save(folder / "b.png")
    assert score(BUNDLED_MODEL, folder, output).rows == 1
    assert scored(output)["file"].to_pylist() == ["b.png", "a.png"]


def test_a_file_that_changes_meanwhile_is_scored_again(tmp_path: Path) -> None:
    """Nothing of it is left, since a part may have halves of two rows."""
    model, folder, output = table_model(tmp_path / "models"), tmp_path / "rows", tmp_path / "out"
    write_files(folder, 2)
    changed = as_table(random_rows(3), id=range(3))

    def on_progress(*_: int) -> None:
        if not output.joinpath("part-000001-00000.parquet").exists():
            parquet.write_table(changed, folder / "0.parquet")

    options = JobOptions(model, str(folder), output, workers=1)
    with pytest.raises(
        RowsError, match=r"0\.parquet: expected a file that does not change while it is scored"
    ):
        run_job(options, on_progress)
    assert scored(output)["id"].to_pylist() == [*range(20, 40)]
    assert score(model, folder, output).rows == 3
    assert scored(output)["id"].to_pylist() == [*range(3), *range(20, 40)]


def test_a_repaired_file_has_no_bad_rows_left(tmp_path: Path) -> None:
    model, source, output = table_model(tmp_path / "models"), tmp_path / "rows.csv", tmp_path / "out"
    source.write_text(f"{HEADER}a,1,2,,4\n")
    assert score(model, source, output, on_error=OnError.REJECT).bad_rows == 1
    assert scored(output).num_rows == 0
    # bad rows that are left out cannot be given back
    with pytest.raises(UsageError, match="has a job with --on-error reject; choose another folder"):
        score(model, source, output, on_error=OnError.NULL)
    source.write_text(f"{HEADER}a,{GOOD}\n")
    assert score(model, source, output, on_error=OnError.REJECT).bad_rows == 0
    assert not (output / BAD_ROWS_FILE).exists()
    assert scored(output).num_rows == 1


def test_a_damaged_compressed_file_is_named(tmp_path: Path) -> None:
    model, source = table_model(tmp_path / "models"), tmp_path / "rows.csv.gz"
    whole = gzip.compress(f"{','.join(FEATURES)}\n{GOOD}\n".encode() * 1)
    for damaged in (whole[:-9], b"no gzip", whole[:20] + b"xxxx" + whole[24:]):
        source.write_bytes(damaged)
        with pytest.raises(RowsError, match=r"rows\.csv\.gz: expected a whole file of gzip"):
            score(model, source, tmp_path / "out")
