"""Rows that cannot be scored: the message says what was expected, what came, and where."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.run_cli import run_in_process
from tests.support.score_models import FEATURES, as_table, nameless_model, random_rows, score, table_model
from turnpike.score.errors import FilesError, RowsError, UsageError
from turnpike.score.job.options import OutputOptions
from turnpike.score.job.scoring_model import ScoringModel
from turnpike.score.readers.files import is_image, read_part, split_file
from turnpike.score.readers.parts import Part
from turnpike.service.artifact.signature import Signature

HEADER = ",".join(FEATURES)
CSV_FAULTS = {
    f"{HEADER}\n1,2,3,4\n1,2,,4\n": "line 3, column 'age': expected a finite number, got a missing value",
    f"{HEADER}\n1,2,x,4\n": "line 2, column 'age': expected a finite number, got 'x'",
    f"{HEADER}\n1,2,3,4\n\n1,2,3,inf\n": "line 4, column 'width': expected a finite number, got inf",
    f"{HEADER}\n1,2,3\n": "line 2: expected 4 columns, got 3",
    f"{HEADER.replace('mass', 'Mass')}\n1,2,3,4\n": "and 'mass' is missing; did you mean 'mass'?",
    f"{HEADER},age\n1,2,3,4,5\n": "expected distinct names of columns, got 'age' twice",
    f"{HEADER}\n1,2,3,4e39\n": "line 2, column 'width': expected a finite number, got 4e+39",
}


def fault_of(source: Path, model: Path) -> str:
    """The error of reading a file whole."""
    scoring = ScoringModel(model, OutputOptions())
    try:
        reasons = read_whole(source, scoring.signature)
    except RowsError as error:
        return str(error)
    (reason,) = reasons
    return reason


def read_whole(source: Path, signature: Signature) -> list[str]:
    """The reasons of the rows that cannot be scored."""
    if is_image(source):
        parts: tuple[Part, ...] = (Part(str(source.parent), 0, 1, files=(source.name,)),)
    else:
        parts = split_file(source, source.parent)
    return [
        reason
        for part in parts
        for batch in read_part(part, signature, 100, None)
        for reason in batch.bad.values()
    ]


@pytest.mark.parametrize("text", CSV_FAULTS)
def test_a_fault_of_csv_has_its_line(tmp_path: Path, text: str) -> None:
    source = tmp_path / "rows.csv"
    source.write_text(text)
    assert CSV_FAULTS[text] in fault_of(source, table_model(tmp_path))


def test_a_fault_of_json_has_its_line(tmp_path: Path) -> None:
    source, good = tmp_path / "rows.jsonl", dict.fromkeys(FEATURES, 1.0)
    for bad, message in (
        ("{", "line 3: expected JSON"),
        (json.dumps({**good, "age": "x"}), "line 3, column 'age': expected a finite number, got 'x'"),
        (
            json.dumps({**good, "age": None}),
            "line 3, column 'age': expected a finite number, got a missing value",
        ),
        (json.dumps({"age": 1}), "line 3: expected the keys of the other lines, got others"),
    ):
        source.write_text(f"{json.dumps(good)}\n\n{bad}\n")
        assert message in fault_of(source, table_model(tmp_path))


def test_a_fault_of_parquet_has_its_row(tmp_path: Path) -> None:
    model, source = table_model(tmp_path), tmp_path / "rows.parquet"
    table = as_table(random_rows(250))
    column = table["age"].to_pylist()
    for value, message in (
        (None, "row 202, column 'age': expected a finite number, got a missing value"),
        (float("nan"), "row 202, column 'age': expected a finite number, got nan"),
    ):
        column[201] = value
        parquet.write_table(table.set_column(2, "age", pyarrow.array(column, "float32")), source, 70)
        assert message in fault_of(source, model)
    parquet.write_table(table.set_column(2, "age", pyarrow.array([None] * 249 + [{"x": 1}])), source)
    assert "column 'age': expected numbers, got struct" in fault_of(source, model)
    source.write_bytes(b"PAR1 nothing PAR1")
    assert f"{source}: expected a Parquet file, cannot read it" in fault_of(source, model)


def test_a_fault_of_an_array_has_its_row(tmp_path: Path) -> None:
    model, source = nameless_model(tmp_path), tmp_path / "rows.npy"
    rows = random_rows(250)
    rows[201, 3] = np.inf
    np.save(source, rows)
    assert "row 202: expected a finite number, got inf" in fault_of(source, model)
    np.save(source, rows[:, 1:])
    assert "expected a multiple of 4 values, got 3" in fault_of(source, model)
    np.save(source, np.array([None]), allow_pickle=True)
    assert f"{source}: expected a .npy or .npz file, got something else" in fault_of(source, model)


def test_images_have_the_size_of_the_model(tmp_path: Path) -> None:
    source = tmp_path / "wide.png"
    Image.new("L", (9, 8)).save(source)
    assert f"{source}: expected 8x8 pixels, got 9x8" in fault_of(source, BUNDLED_MODEL)
    source.write_bytes(b"no image")
    assert f"{source}: expected a PNG or JPEG image, cannot read it" in fault_of(source, BUNDLED_MODEL)
    assert "expected a model of pictures, got one of x:float32[batch,4]" in fault_of(
        source, nameless_model(tmp_path)
    )


def test_arrays_that_fill_the_memory_are_not_unpacked(tmp_path: Path) -> None:
    """A small .npz file may hold any number of zeros."""
    bomb = tmp_path / "rows.npz"
    with zipfile.ZipFile(bomb, "w") as archive:
        archive.writestr("x.npy", b"0" * 100)
        archive.filelist[0].file_size = 5 << 30
    with pytest.raises(
        FilesError, match="expected arrays of at most 4,294,967,296 bytes, since an .npz file"
    ):
        score(BUNDLED_MODEL, bomb, tmp_path / "out")


def test_a_long_name_of_a_column_is_an_error_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a" * 200_000 + ",b\n1,2\n")
    with pytest.raises(FilesError, match="line 1: expected CSV, got something else .field larger than"):
        score(BUNDLED_MODEL, tmp_path / "rows.csv", tmp_path / "out")


def test_a_second_input_is_refused(tmp_path: Path) -> None:
    """A shell that expands a pattern gives several; the last one alone would be scored in silence."""
    ran = run_in_process("score", "-i", "a.csv", "-i", "b.csv", "-o", tmp_path / "out")
    assert ran.exit_code == 2
    assert "--input: expected it once, got 2: put the files into a folder" in " ".join(ran.stderr.split())


def test_wrong_options_are_named(tmp_path: Path) -> None:
    model = nameless_model(tmp_path / "models")
    np.save(tmp_path / "rows.npy", random_rows(3))
    (tmp_path / "rows.txt").touch()
    for source, message in (
        (
            "rows.txt",
            "--input: expected .parquet, .csv, .tsv, .jsonl .*, .npy, .npz, .png or .jpg files, got",
        ),
        ("none*.csv", "found none by"),
        ("models", "found none by"),
    ):
        with pytest.raises(UsageError, match=message):
            score(model, tmp_path / source, tmp_path / "out")
    with pytest.raises(UsageError, match="--model: MODEL: "):
        score(tmp_path / "nothing", tmp_path / "rows.npy", tmp_path / "out")
    with pytest.raises(
        UsageError, match=r"--engine ray needs ray, which is not installed: pip install .*\[ray\]'"
    ):
        score(model, tmp_path / "rows.npy", tmp_path / "out", engine="ray")
    (tmp_path / "empty.csv").write_text("height,mass\n")
    with pytest.raises(UsageError, match="--input: expected rows, got none in "):
        score(model, tmp_path / "empty.csv", tmp_path / "out")
    with pytest.raises(UsageError, match="--output: expected a folder outside of --input"):
        score(model, tmp_path, tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="--output: expected a folder that can be written, got"):
        score(model, tmp_path / "rows.npy", tmp_path / "file")
    with pytest.raises(UsageError, match="--output: expected an empty folder, got one with empty.csv: "):
        score(model, tmp_path / "rows.npy", tmp_path)
