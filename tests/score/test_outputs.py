"""Where rows are written, and which columns: folders, one file, standard output, and choices of columns."""

from __future__ import annotations

import csv
import fcntl
import gzip
import io
import json
import os
import subprocess
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import dataset, parquet

from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.run_cli import command, environment, run_in_process
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
from turnpike.score.errors import FilesError, RowsError, UsageError
from turnpike.score.job.options import OnError
from turnpike.score.job.partitions import MAX_VALUES
from turnpike.service.artifact.runtime import open_model

ROWS = random_rows(30)
CELLS = [[str(number), *map(str, row)] for number, row in enumerate(ROWS)]
LINES = "\n".join(map(",".join, [["id", *FEATURES], *CELLS]))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return table_model(tmp_path / "models")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(LINES)
    return path


def test_columns_are_chosen(tmp_path: Path, model: Path, source: Path) -> None:
    """In their order. A feature may be kept, too."""
    for number, (options, names) in enumerate(
        [
            ({"label_only": True}, ["id", "label"]),
            ({"columns": ("p_b", "label"), "keep": ()}, ["p_b", "label"]),
            ({"label_only": True, "keep": ("age", "id")}, ["age", "id", "label"]),
            ({"label_only": True, "source": True}, ["id", "file", "row", "label"]),
        ]
    ):
        score(model, source, tmp_path / f"out{number}", **options)
        assert scored(tmp_path / f"out{number}").column_names == names
    table = scored(tmp_path / "out3")
    assert table["row"].to_pylist() == [*range(1, 31)]
    assert set(table["file"].to_pylist()) == {"rows.csv"}
    assert scored(tmp_path / "out2")["age"].to_pylist() == [float(row[3]) for row in CELLS]
    with pytest.raises(
        UsageError, match="--columns: expected some of label, probability, p_a, p_b, p_c, got 'q'"
    ):
        score(model, source, tmp_path / "other", columns=("q",))
    with pytest.raises(RowsError, match=r"expected a column 'name' \(--keep\), got id, height"):
        score(model, source, tmp_path / "other", keep=("name",))
    with pytest.raises(UsageError, match="has a job with --columns p_b,label"):
        score(model, source, tmp_path / "out1", keep=())


def test_row_numbers_are_those_of_the_file(tmp_path: Path, model: Path) -> None:
    """Also of the second part of a file, of lines with quotes, and after blank lines."""
    cell = "x" * 50_000
    lines = [f'"{n}\n{cell}",1,2,3,4\n' + "\n" * (n % 2) for n in range(700)]
    (tmp_path / "rows.csv").write_text(f"id,{','.join(FEATURES)}\n{''.join(lines)}")
    assert score(model, tmp_path / "rows.csv", tmp_path / "out", source=True).parts == 3
    table = scored(tmp_path / "out")
    assert [text.split("\n")[0] for text in table["id"].to_pylist()] == [str(n) for n in range(700)]
    assert table["row"].to_pylist() == [*range(1, 701)]


def test_folders_give_columns_and_get_them(tmp_path: Path, model: Path) -> None:
    """`year=2024` is a column of the rows; a column of the output can be folders."""
    for year, span in (("2023", slice(0, 10)), ("2024", slice(10, 30))):
        path = tmp_path / f"rows/year={year}/part.parquet"
        path.parent.mkdir(parents=True)
        parquet.write_table(as_table(ROWS[span], id=range(span.start, span.stop)), path)
    (tmp_path / "rows/_delta").mkdir()
    (tmp_path / "rows/_delta/other.csv").write_text("not,to\nbe,read\n")
    score(model, tmp_path / "rows", tmp_path / "out", source=True)
    table = scored(tmp_path / "out")
    assert table["year"].to_pylist() == ["2023"] * 10 + ["2024"] * 20
    assert table["file"].to_pylist()[9:11] == ["year=2023/part.parquet", "year=2024/part.parquet"]
    score(model, tmp_path / "rows", tmp_path / "labels", partition_by="label")
    labels = expected_labels(model, ROWS)
    folders = {path.name for path in (tmp_path / "labels").glob("label=*")}
    assert folders == {f"label={label}" for label in labels}
    table = dataset.dataset(tmp_path / "labels", partitioning="hive").to_table().sort_by("id")
    assert table["label"].to_pylist() == labels
    assert score(model, tmp_path / "rows", tmp_path / "labels", partition_by="label").rows == 0
    values = ["a/b", "..", "", None, "x=y"] * 4
    parquet.write_table(as_table(ROWS[10:], id=range(10, 30), k=values), tmp_path / "k.parquet")
    score(model, tmp_path / "k.parquet", tmp_path / "k", partition_by="k")
    table = dataset.dataset(tmp_path / "k", partitioning="hive").to_table().sort_by("id")
    assert table["k"].to_pylist() == [value or None for value in values]
    # a changed file leaves none of its rows
    parquet.write_table(as_table(ROWS[:1], id=[0]), tmp_path / "rows/year=2023/part.parquet")
    assert score(model, tmp_path / "rows", tmp_path / "labels", partition_by="label").rows == 1
    table = dataset.dataset(tmp_path / "labels", partitioning="hive").to_table().sort_by("id")
    assert table["id"].to_pylist() == [0, *range(10, 30)]
    with pytest.raises(RowsError, match="--partition-by: expected a column of id, label"):
        score(model, tmp_path / "rows/year=2023", tmp_path / "none", partition_by="month")


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl"])
def test_one_file_has_all_rows(tmp_path: Path, model: Path, ending: str) -> None:
    (tmp_path / "rows").mkdir()
    parquet.write_table(as_table(ROWS[:10], id=range(10)), tmp_path / "rows/a.parquet")
    (tmp_path / "rows/b.jsonl").write_text("".join(json.dumps(row.tolist()) + "\n" for row in ROWS[10:]))
    target = tmp_path / f"scored{ending}"
    result = score(model, tmp_path / "rows", target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models", "rows", target.name]
    if ending == ".parquet":
        table = parquet.read_table(target)
        rows = table.to_pylist()
        assert table.schema.metadata[b"turnpike.model"] == b"table/1"
    elif ending == ".csv":
        rows = list(csv.DictReader(target.read_text().splitlines()))
    else:
        rows = list(map(json.loads, target.read_text().splitlines()))
    assert [row["label"] for row in rows] == expected_labels(model, ROWS)
    assert [row["id"] or None for row in rows[9:11]] in ([9, None], ["9", None])
    assert list(rows[0]) == ["id", "label", "probability", "p_a", "p_b", "p_c"]
    with pytest.raises(UsageError, match="exists; choose another file, or --overwrite"):
        score(model, tmp_path / "rows", target)
    assert score(model, tmp_path / "rows", target, overwrite=True).rows == result.rows == 30


def test_one_file_appears_when_all_rows_are_scored(tmp_path: Path, model: Path, source: Path) -> None:
    (tmp_path / "rows").mkdir()
    source.rename(tmp_path / "rows/a.csv")
    (tmp_path / "rows/b.csv").write_text("a,b\n")
    (tmp_path / "rows/c.csv").write_text("x,y\n1,z\n")
    with pytest.raises(FilesError):
        score(model, tmp_path / "rows", tmp_path / "scored.csv")
    assert not (tmp_path / "scored.csv").exists()
    (tmp_path / "rows/c.csv").write_text(f"{','.join(FEATURES)}\n1,2,3,4\n,,,\n")
    result = score(model, tmp_path / "rows", tmp_path / "scored.csv", on_error=OnError.REJECT)
    assert (result.rows, result.reused_parts, result.bad_rows) == (2, 1, 1)
    assert result.bad_rows_file.name == "scored.csv.bad_rows.csv"
    assert len((tmp_path / "scored.csv").read_text().splitlines()) == 32


def test_gates_are_written_beside_chosen_columns(tmp_path: Path, model: Path, source: Path) -> None:
    """`--gates` asks for them, whatever other columns are wanted."""
    score(model, source, tmp_path / "scored.csv", label_only=True, gates=True, keep=())
    header = (tmp_path / "scored.csv").read_text().splitlines()[0]
    assert header.startswith('"label","layer00.transform_gate"')


@pytest.mark.parametrize("name", ["scored.csv.gz", "scored.xlsx", "scored.json"])
def test_a_file_that_is_not_written_is_no_folder(
    tmp_path: Path, model: Path, source: Path, name: str
) -> None:
    with pytest.raises(UsageError, match="expected a folder, or a file that ends in .parquet, .csv, .jsonl"):
        score(model, source, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_the_bundled_model_needs_no_option(tmp_path: Path) -> None:
    digits = np.random.default_rng(0).integers(0, 17, (3, 64)).astype(np.float32)
    np.save(tmp_path / "digits.npy", digits)
    ran = run_in_process("score", "-i", tmp_path / "digits.npy", "-o", tmp_path / "out", "--label-only")
    assert ran.exit_code == 0, ran.stderr
    (outputs,) = open_model(BUNDLED_MODEL).run({"x": digits.reshape(3, 1, 8, 8)})
    labels = scored(tmp_path / "out")["label"].to_pylist()
    assert labels == [str(digit) for digit in outputs.argmax(1)]


def test_the_input_is_not_written(tmp_path: Path, model: Path, source: Path) -> None:
    """Nor is the file of bad rows an input of the same job."""
    with pytest.raises(UsageError, match="expected a file that is not read, got .*rows.csv, which is in"):
        score(model, source, source, overwrite=True)
    other = source.rename(tmp_path / "x.csv.bad_rows.csv")
    with pytest.raises(UsageError, match="expected a file that is not read"):
        score(model, other, tmp_path / "x.csv")
    assert other.read_text() == LINES


def test_a_numbered_column_that_is_missing_is_no_other_column(tmp_path: Path) -> None:
    """The id was read in the place of a pixel."""
    names = [f"pixel_{number}" for number in range(64)]
    digits = np.random.default_rng(0).integers(0, 17, (3, 64))
    for missing, more in (("pixel_9", []), ("pixel_9", ["pixl_9"])):
        columns = {"id": [1, 2, 3]} | {
            name: digits[:, index] for index, name in enumerate(names) if name != missing
        }
        columns |= dict.fromkeys(more, digits[:, 9])
        parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
        with pytest.raises(
            RowsError, match=r"expected 64 numbered columns such as 'pixel_0', got 63 of them"
        ):
            score(BUNDLED_MODEL, tmp_path / "rows.parquet", tmp_path / "out", overwrite=True)


def test_a_job_that_is_refused_leaves_the_folder_of_another(
    tmp_path: Path, model: Path, source: Path
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with pytest.raises(UsageError, match="another job is writing"):
            score(model, source, folder)
        assert folder.exists()
    finally:
        os.close(lock)


def test_lists_are_json_in_csv(tmp_path: Path) -> None:
    from tests.support.tiny_highway import highway
    from tests.support.tiny_repository import put_model, with_manifest

    put_model(tmp_path, "plain", 1, with_manifest(highway(), labels=()))
    np.save(tmp_path / "rows.npy", ROWS)
    score(tmp_path / "plain", tmp_path / "rows.npy", tmp_path / "out.csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [len(json.loads(row["logits"])) for row in rows] == [3] * 30


def test_standard_streams(tmp_path: Path, model: Path) -> None:

    def run(text: str, *words: str) -> subprocess.CompletedProcess[str]:
        line = command("score", "-m", str(model), "-i", "-", "-o", "-", "--label-only", *words)
        return subprocess.run(line, input=text, env=environment(), capture_output=True, text=True, check=True)

    ran = run(f"{LINES}\nx,,,,\n", "--on-error", "reject")
    rows = list(csv.DictReader(io.StringIO(ran.stdout)))
    assert [row["label"] for row in rows] == expected_labels(model, ROWS)
    assert "stdin.csv,31,\"line 32, column 'height [m]': expected a finite number" in ran.stderr
    assert "scored 31 rows" in ran.stderr
    ran = run("".join(json.dumps(row.tolist()) + "\n" for row in ROWS), "--format", "jsonl", "-q")
    assert [json.loads(line)["label"] for line in ran.stdout.splitlines()] == expected_labels(model, ROWS)
    assert not ran.stderr


def test_a_closed_pipe_is_no_error(tmp_path: Path, model: Path) -> None:
    np.save(tmp_path / "rows.npy", random_rows(20_000))
    words = command("score", "-m", str(model), "-i", str(tmp_path / "rows.npy"), "-o", "-", "-q")
    with subprocess.Popen(
        words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_partitions_have_a_limit(tmp_path: Path, model: Path) -> None:
    """Each is an open file."""
    rows = as_table(random_rows(MAX_VALUES + 1), id=range(MAX_VALUES + 1))
    parquet.write_table(rows, tmp_path / "rows.parquet")
    with pytest.raises(RowsError, match="--partition-by: expected at most 500 values of 'id'"):
        score(model, tmp_path / "rows.parquet", tmp_path / "out", partition_by="id")
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_options_that_do_not_go_together(tmp_path: Path, model: Path, source: Path) -> None:
    for words, message in (
        (["-o", "-", "--partition-by", "label"], "--partition-by: expected a folder as --output, got -"),
        (["-o", f"{tmp_path}/models.csv"], "expected a file, got a folder"),
        (["-o", "-", "--engine", "ray"], "--engine ray: expected files that all nodes see, got standard"),
        (
            ["-o", f"{tmp_path}/x", "--columns", "label", "--label-only"],
            "--label-only: expected no --columns",
        ),
    ):
        (tmp_path / "models.csv").mkdir(exist_ok=True)
        ran = run_in_process("score", "-m", model, "-i", source, *words)
        assert ran.exit_code == 2
        assert message in ran.stderr


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl"])
def test_compressed_files_are_read(tmp_path: Path, model: Path, ending: str) -> None:
    text = LINES.replace(",", "\t") if ending == ".tsv" else LINES
    if ending == ".jsonl":
        text = "\n".join(json.dumps(row.tolist()) for row in ROWS)
    path = tmp_path / f"rows.v1{ending}.gz"
    path.write_bytes(gzip.compress(text.encode()))
    assert score(model, path, tmp_path / "out", source=True).rows == 30
    table = scored(tmp_path / "out")
    assert table["label"].to_pylist() == expected_labels(model, ROWS)
    assert table["row"].to_pylist() == [*range(1, 31)]


def test_decimals_and_texts_are_numbers(tmp_path: Path, model: Path) -> None:
    rows = [[Decimal(number) for number in ("1.5", "2.25", "-3", "4")] for _ in range(3)]
    columns = {name: [row[index] for row in rows] for index, name in enumerate(FEATURES)}
    columns["mass"] = pyarrow.array(["2.25", " 2.25", "2_25"]).dictionary_encode()
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    score(model, tmp_path / "rows.parquet", tmp_path / "out", on_error=OnError.NULL)
    (label,) = expected_labels(model, np.array([[1.5, 2.25, -3, 4]], np.float32))
    assert scored(tmp_path / "out")["label"].to_pylist() == [label, label, None]


def test_archives_of_arrays_are_read(tmp_path: Path) -> None:
    """By the names of the inputs; others are kept."""
    model = nameless_model(tmp_path / "net")
    np.savez(tmp_path / "rows.npz", x=ROWS, id=np.arange(30))
    score(model, tmp_path / "rows.npz", tmp_path / "out")
    assert scored(tmp_path / "out")["label"].to_pylist() == expected_labels(model, ROWS)
    assert scored(tmp_path / "out")["id"].to_pylist() == [*range(30)]
    np.savez(tmp_path / "rows.npz", y=ROWS, z=ROWS)
    with pytest.raises(RowsError, match="expected arrays x, and 'x' is not among y, z"):
        score(model, tmp_path / "rows.npz", tmp_path / "other")


@pytest.mark.parametrize("name", ["pixel_{}", "pixel_{}_{}"])
def test_numbered_columns_are_found(tmp_path: Path, name: str) -> None:
    """In the order of their numbers; other columns are kept."""
    pixels = np.random.default_rng(0).integers(0, 17, (20, 64))
    names = [name.format(*(divmod(n, 8) if name.count("{") == 2 else (n,))) for n in range(64)]
    columns = {"id": range(20)} | {
        name: pixels[:, n] for n, name in sorted(enumerate(names), key=lambda pair: pair[1])
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    parquet.write_table(pyarrow.table({"id": range(20), "x": list(pixels)}), tmp_path / "lists.parquet")
    score(BUNDLED_MODEL, tmp_path / "rows.parquet", tmp_path / "out")
    score(BUNDLED_MODEL, tmp_path / "lists.parquet", tmp_path / "lists")
    assert scored(tmp_path / "out").equals(scored(tmp_path / "lists"))


def test_a_list_may_be_in_place_of_named_columns(tmp_path: Path, model: Path) -> None:
    parquet.write_table(pyarrow.table({"id": range(30), "x": list(ROWS)}), tmp_path / "rows.parquet")
    score(model, tmp_path / "rows.parquet", tmp_path / "out")
    assert scored(tmp_path / "out")["label"].to_pylist() == expected_labels(model, ROWS)
