"""Each format of rows gives the predictions of the same numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

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
from turnpike.service.artifact.runtime import open_model
from turnpike.service.inference_types import Array

ROWS = random_rows(300)


def write_parquet(path: Path, rows: Array) -> None:
    parquet.write_table(as_table(rows, name=[f"row {n}" for n in range(len(rows))]), path, 70)


def write_csv(path: Path, rows: Array, delimiter: str = ",") -> None:
    """With a quoted line break in a column that the model does not read."""
    lines = [delimiter.join(["name", *reversed(FEATURES)])]
    lines += [
        delimiter.join([f'"row\n{n}"', *(f"{value:.9g}" for value in row[::-1])])
        for n, row in enumerate(rows)
    ]
    path.write_text("\ufeff" + "\r\n".join(lines) + "\n", encoding="utf-8", newline="")


def write_tsv(path: Path, rows: Array) -> None:
    write_csv(path, rows, "\t")


def write_json_objects(path: Path, rows: Array) -> None:
    lines = [{"name": n, **dict(zip(FEATURES, row, strict=True))} for n, row in enumerate(rows.tolist())]
    path.write_text("".join(f"{json.dumps(line)}\n\n" for line in lines))


@pytest.mark.parametrize(
    ("ending", "write"),
    [
        (".parquet", write_parquet),
        (".csv", write_csv),
        pytest.param(".tsv", write_tsv, marks=pytest.mark.slow),
        pytest.param(".jsonl", write_json_objects, marks=pytest.mark.slow),
    ],
)
def test_tables_are_read_by_the_names_of_features(
    tmp_path: Path, ending: str, write: Callable[[Path, Array], None]
) -> None:
    model, source = table_model(tmp_path / "models"), tmp_path / f"rows{ending}"
    write(source, ROWS)
    assert score(model, source, tmp_path / "out").rows == len(ROWS)
    table = scored(tmp_path / "out")
    assert table.column_names == ["name", "label", "probability", "p_a", "p_b", "p_c"]
    assert table["label"].to_pylist() == expected_labels(model, ROWS)
    best = np.stack([table[f"p_{label}"].to_numpy() for label in "abc"]).max(0)
    np.testing.assert_array_equal(table["probability"].to_numpy(), best)
    assert "".join(str(table["name"][299])).split()[-1] == "299"


@pytest.mark.slow
def test_arrays_and_lists_are_read_in_order(tmp_path: Path) -> None:
    """Rows without names: an array, a line or a cell has the values of a row in the order of the model."""
    model = nameless_model(tmp_path / "models")
    np.save(tmp_path / "rows.npy", ROWS.astype(np.float64))
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS.tolist()))
    parquet.write_table(pyarrow.table({"id": range(300), "x": list(ROWS)}), tmp_path / "rows.parquet")
    np.savetxt(tmp_path / "rows.csv", ROWS, "%.9g", ",")
    for source in sorted(tmp_path.glob("rows.*")):
        output = tmp_path / f"out-{source.suffix[1:]}"
        score(model, source, output)
        assert scored(output)["label"].to_pylist() == expected_labels(model, ROWS), source


def test_images_are_read_like_training_images(tmp_path: Path) -> None:
    """White is 16, as in the digits of the training, in the order of the files; each row has its file."""
    pixels = np.random.default_rng(0).integers(0, 256, (30, 8, 8)).astype(np.uint8)
    for number, image in enumerate(pixels):
        path = tmp_path / "images" / str(number % 3) / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).convert("RGB" if number % 2 else "L").save(path)
    score(BUNDLED_MODEL, tmp_path / "images", tmp_path / "out")
    rows = (pixels[:, np.newaxis] * (16 / 255)).astype(np.float32)
    (logits,) = open_model(BUNDLED_MODEL).run({"x": rows}, ["output"])
    expected = {f"{n % 3}/{n:02}.png": str(best) for n, best in enumerate(logits.argmax(1).tolist())}
    table = scored(tmp_path / "out")
    assert dict(zip(table["file"].to_pylist(), table["label"].to_pylist(), strict=True)) == expected
    assert table["file"].to_pylist() == sorted(expected)


def test_gates_are_those_of_predict(tmp_path: Path) -> None:
    model, source = table_model(tmp_path / "models"), tmp_path / "rows.csv"
    write_csv(source, ROWS[:20])
    score(model, source, tmp_path / "out", gates=True)
    table = scored(tmp_path / "out")
    answer = run_in_process("predict", model, source, "--gates", "--json")
    gates = json.loads(answer.stdout)["gates"]
    assert len(gates) == 3
    for name, means in gates.items():
        np.testing.assert_allclose(table[name].to_numpy(), means, rtol=1e-6)


def test_outputs_without_classes_are_numbers_or_lists(tmp_path: Path) -> None:
    from tests.support.tiny_highway import highway
    from tests.support.tiny_repository import put_model, with_manifest

    put_model(tmp_path, "plain", 1, with_manifest(highway(), labels=()))
    np.save(tmp_path / "rows.npy", ROWS)
    score(tmp_path / "plain", tmp_path / "rows.npy", tmp_path / "out")
    (logits,) = open_model(tmp_path / "plain/1/model.onnx").run({"x": ROWS}, ["logits"])
    np.testing.assert_allclose(scored(tmp_path / "out")["logits"].to_pylist(), logits, rtol=1e-6, atol=1e-7)


def test_files_say_what_they_were_scored_with(tmp_path: Path) -> None:
    import hashlib

    model, source = table_model(tmp_path / "models"), tmp_path / "rows.parquet"
    write_parquet(source, ROWS)
    score(model, source, tmp_path / "out")
    metadata = parquet.read_schema(tmp_path / "out/part-000000-00000.parquet").metadata
    assert metadata[b"turnpike.model"] == b"table/1"
    assert (
        metadata[b"turnpike.digest"].decode()
        == hashlib.sha256((model / "1/model.onnx").read_bytes()).hexdigest()
    )
    assert metadata[b"turnpike.input"].decode() == str(source)
