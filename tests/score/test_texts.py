"""Tables with texts: a column `text`, or strings under the name of the input, give the rows of their ids."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.support.run_cli import run_in_process
from tests.support.score_models import score, scored
from tests.support.text_models import encoder, text_file
from tests.support.tiny_repository import put_model
from turnpike.service.artifact.runtime import open_model

TEXTS = ["AB", "", "C é\U0001f600A B", 'unknown, "quoted"\nA']


@pytest.fixture
def model(tmp_path: Path) -> Path:
    put_model(tmp_path, "reader", data=text_file())
    return tmp_path / "reader"


def expected_labels(model: Path) -> list[str]:
    (logits,) = open_model(model / "1/model.onnx").run({"ids": encoder().encode(TEXTS)})[:1]
    return ["abc"[number] for number in np.asarray(logits).argmax(1)]


def write(path: Path) -> None:
    """A file with TEXTS and a number of each, in the format of its ending."""
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.table({"text": TEXTS, "n": range(len(TEXTS))}), path)
    elif path.name == "lines.jsonl":
        path.write_text("".join(f"{json.dumps(text)}\n" for text in TEXTS))
    elif path.name == "inputs.jsonl":
        path.write_text("".join(f"{json.dumps({'ids': text, 'n': n})}\n" for n, text in enumerate(TEXTS)))
    else:
        rows = ['"{}",{}'.format(text.replace('"', '""'), n) for n, text in enumerate(TEXTS)]
        path.write_text("\n".join(["text,n", *rows]), encoding="utf-8")


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "lines.jsonl", "inputs.jsonl"])
def test_texts_give_the_rows_of_their_ids(tmp_path: Path, model: Path, name: str) -> None:
    """Other columns are kept beside the predictions."""
    write(tmp_path / name)
    assert score(model, tmp_path / name, tmp_path / "out").rows == len(TEXTS)
    table = scored(tmp_path / "out")
    assert table["label"].to_pylist() == expected_labels(model)
    if name != "lines.jsonl":
        assert [int(n) for n in table["n"].to_pylist()] == [0, 1, 2, 3]
    assert "text" not in table.column_names


@pytest.mark.parametrize(
    ("name", "table", "message"),
    [
        ("rows.parquet", {"text": ["A", None]}, "row 2, column 'text': expected a text, got a missing value"),
        ("rows.parquet", {"text": [1, 2]}, "column 'text': expected texts, got int64"),
        (
            "rows.parquet",
            {"words": ["A", "B"]},
            "column 'words': expected numbers, got string; texts are read from a column 'text'",
        ),
        (
            "rows.csv",
            {"words": ["A", "B"]},
            "column 'words': expected numbers, got string; texts are read from a column 'text'",
        ),
    ],
)
def test_what_is_no_text_is_named(
    tmp_path: Path, model: Path, name: str, table: dict[str, list[object]], message: str
) -> None:
    source = tmp_path / name
    if name.endswith(".csv"):
        (column,) = table
        source.write_text("\n".join([column, *map(str, table[column])]))
    else:
        parquet.write_table(pyarrow.table(table), source)
    result = run_in_process("score", "--model", model, "--input", source, "--output", tmp_path / "out")
    assert result.exit_code != 0
    assert message in result.stderr
    assert not list((tmp_path / "out").glob("*.parquet"))
