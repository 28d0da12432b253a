"""`turnpike predict`: tables in and out, by a file and by a real service."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.infer_bodies import ROWS, signature
from tests.support.live_server import serving
from tests.support.run_cli import run_in_process
from tests.support.text_models import text_file
from tests.support.tiny_repository import put_model
from turnpike.service.artifact.runtime import open_model
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.cli.table_file import read_rows
from turnpike.service.errors import SettingError

DIGITS = np.random.default_rng(0).integers(0, 17, (130, 64)).astype(np.float32)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """More rows than one run takes, with names of columns."""
    path = tmp_path / "rows.csv"
    header = ",".join(f"pixel {number}" for number in range(64))
    np.savetxt(path, DIGITS, "%g", ",", header=header, comments="")
    return path


def predict(*words: object) -> str:
    ran = run_in_process("predict", *words)
    assert ran.exit_code == 0, ran.stderr
    return ran.stdout


def failure(*words: object) -> str:
    ran = run_in_process("predict", *words)
    assert ran.exit_code > 0
    return " ".join(ran.stderr.split())


def test_hostile_files_are_refused_at_once(tmp_path: Path) -> None:
    """Deep JSON, a cell without end, and arrays that would fill the memory."""
    deep, cell, array, bomb = (tmp_path / f"rows.{ending}" for ending in ("jsonl", "csv", "npy", "npz"))
    deep.write_text("[" * 100_000 + "1" + "]" * 100_000 + "\n")
    assert "rows.jsonl: expected rows of numbers, got JSON that is nested" in failure(BUNDLED_MODEL, deep)
    cell.write_text(",".join(map(str, range(64))) + "\n" + "1" * 200_000 + ",1" * 63 + "\n")
    assert "got something else (field larger than field limit" in failure(BUNDLED_MODEL, cell)
    with array.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 64)}
        np.lib.format.write_array_header_1_0(file, header)
    assert "rows.npy: expected a .npy file, got something else: mmap length" in failure(BUNDLED_MODEL, array)
    np.savez_compressed(bomb, x=np.zeros((1_100_000, 64), np.float32))
    assert bomb.stat().st_size < 1 << 20
    assert "rows.npz: expected arrays of at most 268,435,456 bytes, got" in failure(BUNDLED_MODEL, bomb)


def test_each_row_gets_its_label_and_gates(table: Path, tmp_path: Path) -> None:
    """They are those that the graph computes."""
    runtime = open_model(BUNDLED_MODEL)
    assert runtime.manifest is not None
    gates = [gate.name for gate in runtime.manifest.gates]
    logits, *values = runtime.run({"x": DIGITS.reshape(-1, 1, 8, 8)}, [*runtime.manifest.outputs, *gates])
    out = tmp_path / "scored.csv"
    assert predict(BUNDLED_MODEL, table, "--gates", "--out", out) == ""
    scored = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [row["label"] for row in scored] == [str(best) for best in logits.argmax(1)]
    for gate, t in zip(gates, values, strict=True):
        assert [float(row[gate]) for row in scored] == pytest.approx(t.mean(1).tolist(), abs=1e-5)
    answer = json.loads(predict(BUNDLED_MODEL.parents[1], table, "--json"))
    assert answer.keys() == {"predictions"}
    for row, prediction in zip(scored, answer["predictions"], strict=True):
        assert float(row["probability"]) == prediction["probability"]
        assert float(row["p_3"]) == prediction["probabilities"]["3"]


def test_a_column_of_texts_is_predicted(tmp_path: Path) -> None:
    """Other columns are kept, and rows of ids are read as before."""
    model = put_model(tmp_path, data=text_file()).path
    table, ids, lines = tmp_path / "rows.csv", tmp_path / "ids.npy", tmp_path / "rows.jsonl"
    table.write_text('code,text\n1,"AB, C"\n2,\n')
    np.save(ids, np.array([[[1, 2, 0], [3, 0, 0]], [[0] * 3] * 2]))
    lines.write_text('"AB, C"\n""\n')
    scored = predict(model, table)
    assert [line.split(",", 1)[0] for line in scored.splitlines()] == ["code", "1", "2"]
    expected = json.loads(predict(model, ids, "--json"))
    assert json.loads(predict(model, table, "--json")) == expected
    assert json.loads(predict(model, lines, "--json")) == expected
    table.write_text("text\na,b\n")
    message = "rows.csv, line 2: expected 1 columns, got 2; put a text with commas in quotes"
    assert message in failure(model, table)


def test_a_table_of_whole_numbers_is_sent_as_such(tmp_path: Path) -> None:
    """A .csv of ids gives what an array of them does, and an error names the line and the column."""
    model = put_model(tmp_path / "repository", data=text_file()).path
    table, ids = tmp_path / "rows.csv", tmp_path / "ids.npy"
    table.write_text("1,2,0,3,0,0\n4.0,5,0,0,0,0\n")
    np.save(ids, np.array([[1, 2, 0, 3, 0, 0], [4, 5, 0, 0, 0, 0]]))
    expected = predict(model, ids)
    assert predict(model, table) == expected
    bad = tmp_path / "bad.csv"
    bad.write_text("a,b,c,d,e,f\n1,2,0,3,0,0\n1,2,0,3.5,0,0\n")
    error = failure(model, bad)
    assert "bad.csv, line 3, column 'd': expected whole numbers from " in error
    assert error.endswith("(INT64), got '3.5'")


@pytest.mark.slow
def test_a_service_gives_the_same_table(table: Path) -> None:
    with serving("--no-access-log") as server:
        expected = predict(BUNDLED_MODEL, table, "--gates")
        assert predict(server.url, table, "--gates") == expected
        assert predict(f"{server.url}/v2/models/digits-10/versions/1", table, "--gates") == expected
        assert predict(f"{server.url}/digits-10", table, "--gates") == expected
        assert "404: model 'none': expected a model" in failure(f"{server.url}/v1/models/none", table)
        bad = table.with_name("bad.npy")
        np.save(bad, DIGITS[:, 1:])
        assert f"{bad}: instances[0]: expected 64 values, got 63" in failure(server.url, bad)
    assert "expected the answer of a service, got" in failure(server.url, table)


@pytest.mark.slow
def test_a_service_with_keys_needs_one(table: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("secret-of-ours\n")
    with serving("--no-access-log", "--api-keys-file", keys) as server:
        assert "pass a key with --api-key-file" in failure(server.url, table)
        assert predict(server.url, table, "--api-key-file", keys) == predict(BUNDLED_MODEL, table)


def test_a_url_without_a_service_is_one_line(table: Path) -> None:
    assert "expected a URL such as http://127.0.0.1:8000, got 'http://'" in failure("http://", table)
    assert "expected the answer of a service, got URL can't" in failure("http://bad host", table)


@pytest.mark.parametrize("name", ["r.csv", "r.npy", "r.npz", "r.json", "r.jsonl"])
def test_every_format_is_read(tmp_path: Path, name: str) -> None:
    path, rows = tmp_path / name, [[1.0, -2.5], [3e-7, 4.0]]
    if name == "r.csv":
        path.write_text("\ufeff1,-2.5\r\n\r\n3e-7, 4\r\n")
    elif name == "r.npy":
        np.save(path, np.array(rows))
    elif name == "r.npz":
        np.savez(path, x=np.array(rows))
    elif name == "r.json":
        path.write_text(json.dumps({"instances": rows}))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_rows(path, ROWS) == (rows, {})


def test_arrays_of_several_inputs_become_objects(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    np.savez(path, a=np.array([[1], [2]]), b=np.array([[3], [4]]), y=np.array([[0], [1]]))
    a, b, c = (Tensor(name, "int64", ("batch", 1)) for name in "abc")
    assert read_rows(path, signature(a, b))[0] == [{"a": [1], "b": [3]}, {"a": [2], "b": [4]}]
    with pytest.raises(SettingError, match="expected arrays a, c, and 'c' is missing"):
        read_rows(path, signature(a, c))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.csv", "a,b\n1,2\n3,x\n", "r.csv, line 3, column 'b': expected a finite number, got 'x'"),
        ("r.csv", "1,2\n3,nan\n", "r.csv, line 2, column 2: expected a finite number, got 'nan'"),
        ("r.csv", "a,b\n1\n", "r.csv, line 2: expected 2 columns, got 1"),
        ("r.csv", "a,b\n", "r.csv: expected rows, got none"),
        ("r.json", "{}", 'r.json: expected a list of rows, or {"instances": [...]}'),
        ("r.jsonl", "[1]\n[2\n", "r.jsonl, line 2: expected JSON, got an error"),
        ("r.npy", "text", "r.npy: expected a .npy file, got something else"),
        ("r.txt", "1", "expected a .csv, .parquet, .npy, .npz, .json, .jsonl, .png or .jpg file"),
        ("r.csv", None, "r.csv: expected a file that can be read (No such file or directory)"),
    ],
)
def test_bad_tables_are_refused(tmp_path: Path, name: str, content: Any, message: str) -> None:
    """The message says where the fault is."""
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(SettingError) as error:
        read_rows(tmp_path / name, ROWS)
    assert message in str(error.value)


def test_a_folder_must_have_one_model(table: Path, tmp_path: Path) -> None:
    for name in ("ash", "birch"):
        put_model(tmp_path / "repository", name)
    assert "got a repository of ash, birch: name the folder of one" in failure(tmp_path / "repository", table)
    assert "MODEL: expected a folder of models that can be read, got" in failure(tmp_path / "gone", table)


def test_an_unwritable_out_is_found_before_the_work(table: Path, tmp_path: Path) -> None:
    for out in (tmp_path, tmp_path / "none" / "scored.csv", Path("/proc/scored.csv")):
        # there is no such model: the first error is that of --out
        assert f"--out: expected a file that can be written, got '{out}'" in failure(
            "gone", table, "--out", out
        )
    kept = tmp_path / "kept.csv"
    kept.write_text("mine")
    assert "there is nothing of that name" in failure("gone", table, "--out", kept)
    assert kept.read_text() == "mine"
