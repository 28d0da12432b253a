"""Rows of cells over HTTP, and by `turnpike predict`."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tests.support.asgi import Reply
from tests.support.cell_tables import ROWS, expected_labels, put_cell_model
from tests.support.in_process_worker import InProcessWorker, request, run_scene
from tests.support.infer_bodies import signature
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from turnpike.service.artifact.manifest import Feature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.cli.parquet_file import python_cells
from turnpike.service.cli.prediction_source import local_model
from turnpike.service.cli.table_file import read_rows
from turnpike.service.config.settings import Settings
from turnpike.service.errors import SettingError
from turnpike.service.repository.deployment import Deployment

FEATURES = (
    Feature(name="size", low=-3, high=3, mean=0, sd=1, decimal_comma=True),
    Feature(name="color", low=0, high=1, mean=0, sd=1, kind="category", categories=("red", "3")),
    Feature(name="day", low=0, high=3, mean=0, sd=1, kind="date"),
    Feature(name="ripe", low=0, high=1, mean=0, sd=1, kind="boolean"),
)
NUMBERS = [[1.5, 1, 2, 1], [-1, 2, 0, 0]]
CELLS = [["1,5", 3, "1970-01-03", True], [-1, "blue", "1970-01-01", "no"]]
TABLE = 'note,day,color,size,ripe\nx,1970-01-03,3,"1,5",yes\ny,1970-01-01,blue,-1,no\n'
OWN_TABLE = 'day,color,size,ripe\n1970-01-03,3,"1,5",yes\n1970-01-01,blue,-1,no\n'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return put_model(tmp_path_factory.mktemp("cells"), data=with_manifest(highway(), features=FEATURES)).path


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> InProcessWorker:
    file = put_model(tmp_path_factory.mktemp("served"), data=with_manifest(highway(), features=FEATURES))
    worker = InProcessWorker(Settings(threads=1))
    committed = asyncio.run(worker.app.registry.commit(Deployment(1, {"net": (file,)}).to_json()))
    assert not committed["failed"]
    return worker


def post(
    worker: InProcessWorker,
    body: bytes,
    headers: Mapping[str, object] | None = None,
    action: str = ":predict",
) -> Reply:
    replies: list[Reply] = []

    async def scene(worker: InProcessWorker) -> None:
        path = f"/v1/models/net{action}" if action == ":predict" else f"/v2/models/net{action}"
        replies.append(await worker.connect().ask(request(path, body, headers)))

    run_scene(worker, scene)
    return replies[0]


def test_cells_give_the_answers_of_their_numbers(
    worker: InProcessWorker, model: Path, tmp_path: Path
) -> None:
    tensor = {"name": "x", "shape": [2, 4], "datatype": "FP32", "data": NUMBERS}
    (output,) = json.loads(post(worker, json.dumps({"inputs": [tensor]}).encode(), action="/infer").body)[
        "outputs"
    ]
    by_tensor = np.reshape(output["data"], output["shape"])

    by_cells = post(worker, json.dumps({"instances": CELLS}).encode())
    assert by_cells.status == 200
    by_csv = post(worker, OWN_TABLE.encode(), {"Content-Type": "text/csv"})
    assert json.loads(by_csv.body) == json.loads(by_cells.body)

    table = tmp_path / "rows.csv"
    table.write_text(TABLE)
    signature, predict = local_model(model)
    rows, others = read_rows(table, signature)
    predictions = predict(rows, False)[0]
    assert others == {"note": ["x", "y"]}
    assert predictions == json.loads(by_cells.body)["predictions"]
    best = [list(row["probabilities"]).index(row["label"]) for row in predictions]
    assert best == by_tensor.argmax(1).tolist()


def test_tensors_may_have_nan_in_binary(worker: InProcessWorker) -> None:
    """It stands for a blank, and JSON has no such number."""
    raw = np.array([[np.nan, 1, 2, 1]], "<f4").tobytes()
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32"}
    head = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": len(raw)}}]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    reply = post(worker, head + raw, headers, action="/infer")
    # the network ran: without preprocessing, its outputs are NaN, which JSON cannot have
    assert reply.status == 422
    assert b"'logits' has NaN" in reply.body
    in_json = json.dumps({"inputs": [tensor | {"data": [float("nan"), 1, 2, 1]}]}).encode()
    assert post(worker, in_json, action="/infer").status == 400
    assert post(worker, b'{"instances": [[NaN, "3", "1970-01-01", 1]]}').status == 400


def test_files_of_rows_are_predicted(tmp_path: Path) -> None:
    """Other columns are kept, NaN and null are blanks, and dates are as Parquet has them."""
    signature, predict = local_model(put_cell_model(tmp_path))
    lines, table = tmp_path / "rows.jsonl", tmp_path / "rows.parquet"
    rows = [{name: cell for name, cell in row.items() if cell is not None} for row in ROWS]
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns: dict[str, Any] = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    columns["day"] = [datetime.strptime(day, "%d.%m.%Y") for day in columns["day"]]
    columns["size"] = [float("nan") if size is None else size for size in columns["size"]]
    parquet.write_table(pyarrow.table(columns), table)
    for path in (lines, table):
        instances, others = read_rows(path, signature)
        assert others == {"id": ["a", "b", "c", "d"]}
        assert [row["label"] for row in predict(instances, False)[0]] == expected_labels()

    np.save(tmp_path / "rows.npy", [[float("nan"), 3.0, 1, 1]])
    assert read_rows(tmp_path / "rows.npy", signature)[0] == [[None, 3.0, 1.0, 1.0]]
    lines.write_text('{"Size": 1, "color": "red", "day": "01.01.1970", "ripe": 1}')
    with pytest.raises(SettingError, match="row 1: expected a column 'size', got 'Size': did you mean it?"):
        read_rows(lines, signature)
    parquet.write_table(pyarrow.table(columns).drop(["ripe"]), table)
    with pytest.raises(SettingError, match="rows.parquet: .* 'ripe' is missing"):
        read_rows(table, signature)
    table.write_text("text")
    with pytest.raises(SettingError, match="rows.parquet: expected a Parquet file, cannot read it"):
        read_rows(table, signature)


MISSPELLED = "expected a column 'size', got ' Size_': did you mean it?"


def test_columns_that_may_be_blank_may_be_missing(tmp_path: Path) -> None:
    """In each format, if the table has other features and no column that is one of them, misspelled."""
    signature, predict = local_model(put_cell_model(tmp_path))
    rows = [{name: cell for name, cell in row.items() if name != "size"} for row in ROWS]
    expected = [row["label"] for row in predict([row | {"size": None} for row in without_id(rows)], False)[0]]
    for write in (write_csv, write_lines, write_parquet):
        path = write(tmp_path, rows)
        instances, others = read_rows(path, signature)
        assert [row["label"] for row in predict(instances, False)[0]] == expected
        assert others == {"id": ["a", "b", "c", "d"]}
        with pytest.raises(SettingError) as caught:
            read_rows(write(tmp_path, [row | {" Size_": 1} for row in rows]), signature)
        # a header of CSV loses the spaces around its names
        assert MISSPELLED in str(caught.value).replace("'Size_'", "' Size_'"), path
    path = write_lines(tmp_path, [*ROWS[:3], rows[3] | {"Size": 1}])
    with pytest.raises(SettingError, match="rows.jsonl, row 4: expected a column 'size', got 'Size'"):
        read_rows(path, signature)


def test_csv_over_http_may_lack_blanks(tmp_path: Path) -> None:
    file = put_model(
        tmp_path, data=with_manifest(highway(blanks=True), features=with_blanks(), target="colour")
    )
    worker = InProcessWorker(Settings(threads=1))
    asyncio.run(worker.app.registry.commit(Deployment(1, {"net": (file,)}).to_json()))

    def ask(table: str) -> Reply:
        return post(worker, table.encode(), {"Content-Type": "text/csv"})

    lines = "\n1,1,5\n-1,2,0\n"
    expected = ask("a,b,c,color" + lines.replace("\n", ",\n").lstrip(","))
    assert expected.status == ask("c,a,b" + "\n5,1,").status == 200
    # names that are numbers are a header still
    for header in ("a,b,c,2024", "a,b,c,colour"):
        assert (
            json.loads(ask(header + lines.replace("\n", ",7\n").removeprefix(",7")).body)["predictions"]
            == json.loads(expected.body)["predictions"]
        )
    # the column that is predicted is none that is misspelled, and a table without any feature is another one
    for header, message in (
        ("a,b,Color", "line 1: expected a column 'color', got 'Color': did you mean it?"),
        ("note,x,y", "expected all 4 features of the model, and 'a', 'b', 'c' and 1 more are missing"),
    ):
        reply = ask(header + lines)
        assert reply.status == 400
        assert message in json.loads(reply.body)["error"]


def with_blanks() -> tuple[Feature, ...]:
    return tuple(
        Feature(name=name, low=-9, high=9, mean=0, sd=1, blanks=True) for name in ("a", "b", "c", "color")
    )


def without_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: cell for name, cell in row.items() if name != "id"} for row in rows]


def write_csv(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "rows.csv"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return path


def write_lines(folder: Path, rows: list[dict[str, Any]]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_parquet(folder: Path, rows: list[dict[str, Any]]) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "rows.parquet")
    return folder / "rows.parquet"


def test_parquet_for_other_models(tmp_path: Path) -> None:
    """By the names of inputs, whose cells are lists, or in the order of the columns."""
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"x": [[1.0, 2.0]], "id": [7]}), path)
    model = signature(Tensor("x", "float32", ("batch", 2)))
    assert read_rows(path, model) == ([{"x": [1.0, 2.0]}], {"id": [7]})
    parquet.write_table(pyarrow.table({"a": [1.0], "b": [2.0]}), path)
    assert read_rows(path, model) == ([[1.0, 2.0]], {})


def test_cells_of_parquet_are_values_of_python() -> None:
    """Without nanoseconds and decimals, which JSON and cells do not have."""
    moments = pyarrow.array([1], pyarrow.timestamp("ns"))
    assert python_cells(moments) == [datetime(1970, 1, 1)]
    (number,) = python_cells(pyarrow.array([Decimal("1.5")]))
    assert (type(number), number) == (float, 1.5)


@pytest.mark.parametrize("plain", [False, True])
def test_rows_without_an_answer_may_have_wrong_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], plain: bool
) -> None:
    """They are left out, as in the training. Other rows are read strictly."""
    features = (
        tuple(Feature(name=name, low=0, high=1, mean=0, sd=1) for name in "abcd") if plain else FEATURES
    )
    names, good = ("a,b,c,d", "1,2,3,4") if plain else ("day,color,size,ripe", '1970-01-03,red,"1,5",yes')
    wrong = "heavy,2,3,4" if plain else "1970-01-03,red,heavy,yes"
    model = with_manifest(highway(), features=features, target="kind")
    signature = local_model(put_model(tmp_path, data=model).path)[0]
    path = tmp_path / "rows.csv"
    path.write_text(f"id,{names},kind\n1,{good},a\n2,{wrong},\n3,{good},\n4,{wrong},NA\n")
    rows, others = read_rows(path, signature)
    assert (len(rows), others) == (2, {"id": ["1", "3"], "kind": ["a", ""]})
    note = "note: left out 2 rows with a wrong cell and without a value of kind; the first: "
    column = "a" if plain else "size"
    assert f"{note}{path}, line 3, column '{column}': expected" in capsys.readouterr().err

    path.write_text(f"id,{names},kind\n1,{wrong},\n2,{wrong},a\n")
    with pytest.raises(SettingError, match=f"line 3, column '{column}': expected"):
        read_rows(path, signature)
    # nothing is left out without the column of the answers, or if no row would be left
    for table in (f"id,{names}\n1,{wrong}\n", f"{names},kind\n{wrong},\n"):
        path.write_text(table)
        with pytest.raises(SettingError, match=f"line 2, column '{column}': expected"):
            read_rows(path, signature)
    assert capsys.readouterr().err == ""
