"""Tables of pandas: which columns go in, and what comes out. pandas is not imported without them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.client_server import FEATURES, LABELS, Kind, call, put_table_model
from tests.support.http_stand_in import Received, Reply, replying
from tests.support.live_server import ROOT, Server, serving
from tests.support.tiny_highway import highway
from tests.support.waiting import wait_until
from turnpike.client.cells import table_rows
from turnpike.client.client import Client
from turnpike.client.errors import InputError, ServerError
from turnpike.client.inputs import Array
from turnpike.service.artifact.runtime import open_model

COLUMNS = ["label", "probability", *(f"p_{label}" for label in LABELS)]


@pytest.fixture
def frame(rows: Array) -> pd.DataFrame:
    """The rows with an index of their own, and the columns in another order than that of the model."""
    table = pd.DataFrame(rows, columns=list(FEATURES), index=[f"row {index}" for index in range(len(rows))])
    return table[sorted(FEATURES)]


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_a_table_gives_a_table(server: Server, kind: Kind, rows: Array, frame: pd.DataFrame) -> None:
    """With the index of the rows, and the predictions of rows without names."""
    table = call(kind, server.url, "predict", "table", frame)
    assert list(table.columns) == COLUMNS
    assert list(table.index) == list(frame.index)
    columns = call(kind, server.url, "predict", "table", rows)
    for name in COLUMNS:
        assert table[name].tolist() == columns[name].tolist(), name


def test_a_table_is_that_of_the_service(server: Server, frame: pd.DataFrame) -> None:
    """Its CSV, read by pandas, is equal; labels that look like something else stay texts."""
    response = server.post(
        "/v1/models/table:predict",
        frame.to_csv(index=False).encode(),
        headers={"Content-Type": "text/csv", "Accept": "text/csv"},
    )
    expected = pd.read_csv(io.StringIO(response.text), dtype={"label": str}, keep_default_na=False)
    table = call("blocking", server.url, "predict", "table", frame)
    pd.testing.assert_frame_equal(table.reset_index(drop=True), expected, check_exact=True)
    assert set(table["label"]) <= set(LABELS)


def test_a_series_is_a_row(server: Server, frame: pd.DataFrame) -> None:
    table = call("blocking", server.url, "predict", "table", frame)
    for name in frame.index[:2]:
        row = call("blocking", server.url, "predict", "table", frame.loc[name])
        assert isinstance(row, pd.Series)
        assert row.name == name
        assert row.tolist() == table.loc[name].tolist()


def test_other_methods_take_tables(server: Server, rows: Array, frame: pd.DataFrame) -> None:
    with Client(server.url) as client:
        outputs = client.infer("table", frame)["logits"]
        assert outputs.tobytes() == client.infer("table", rows)["logits"].tobytes()
        assert client.gates("table", frame).gates == client.gates("table", rows).gates
        lesion = client.lesion("table", frame, close=[0])
        assert lesion.report == client.lesion("table", rows, close=[0]).report
        dictionary = client.infer("table", {"x": rows})["logits"]
        assert dictionary.tobytes() == outputs.tobytes()


def test_columns_of_several_types(server: Server) -> None:
    """Booleans, integers, and the types of pandas that can be missing."""
    frame = pd.DataFrame(
        {
            "0": [True, False],
            "mass": pd.array([1, 2], dtype="Int64"),
            "age": [0.5, 1.5],
            "height [m]": np.array([3, 4], "int8"),
        }
    )
    got = call("blocking", server.url, "infer", "table", frame)
    expected = call("blocking", server.url, "infer", "table", [[3, 1, 0.5, 1], [4, 2, 1.5, 0]])
    assert got["logits"].tobytes() == expected["logits"].tobytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="mass"), r"expected the columns \[.*\], and 'mass' is missing"),
        (
            lambda frame: frame.rename(columns={"mass": "Mass"}),
            r"expected the columns \[.*\], and 'mass' is missing; is 'Mass' meant for 'mass'\?",
        ),
        (
            lambda frame: frame.rename(columns={"mass": "age"}),
            r"expected the columns \[.*\], and 'mass' is missing",
        ),
        (
            lambda frame: pd.concat([frame, frame[["age"]]], axis=1),
            "expected each column once, got 'age' more than once",
        ),
        (lambda frame: frame.assign(mass="a"), r"expected numbers, got the text 'a' at \[0, 1\]"),
        (
            lambda frame: frame.assign(mass=1e300),
            r"expected numbers that FP32 holds, got 1e\+300 at",
        ),
        (
            lambda frame: frame.assign(mass=pd.array([None] * 7, dtype="Int64")),
            "expected numbers, to be sent as FP32, got object",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_an_error(
    server: Server, frame: pd.DataFrame, change: object, message: str
) -> None:
    assert callable(change)
    with pytest.raises(InputError, match=message) as caught:
        call("blocking", server.url, "predict", "table", change(frame))
    assert "model 'table'" in str(caught.value)


def test_numbers_as_names_are_not_positions(server: Server, rows: Array) -> None:
    """A table without names for a model with names has none of them."""
    with pytest.raises(InputError, match=r"and .*'age' are missing; there are also \['1', '2', '3'\]"):
        call("blocking", server.url, "predict", "table", pd.DataFrame(rows))


def test_a_model_without_names_takes_the_columns_as_they_are(server: Server, rows: Array) -> None:
    table = call("blocking", server.url, "predict", "net", pd.DataFrame(rows, index=range(10, 17)))
    assert list(table.columns) == ["output_0", "output_1", "output_2"]
    assert list(table.index) == list(range(10, 17))
    expected = open_model(highway().model).run({"x": rows.astype("f4")}, ["logits"])[0]
    np.testing.assert_array_equal(table.to_numpy().astype("f4"), expected)


def test_columns_are_those_of_the_version_that_runs(tmp_path: Path, frame: pd.DataFrame) -> None:
    """The next version is the same network, with its columns in another order."""
    put_table_model(tmp_path, FEATURES)
    with (
        serving("--models", tmp_path, "--poll", 0.1, "--no-access-log") as server,
        Client(server.url) as client,
    ):
        before = client.infer("table", frame)["logits"]
        put_table_model(tmp_path, FEATURES[::-1], version=2)
        wait_until(lambda: client.metadata("table")["versions"] == ["2"])
        expected = client.infer("table", frame[list(FEATURES[::-1])].to_numpy())["logits"]
        after = client.infer("table", frame)["logits"]
        assert before.tobytes() != after.tobytes() == expected.tobytes()


@pytest.mark.parametrize("operation", ["infer", "predict"])
def test_a_version_that_comes_between_two_requests_is_noticed(operation: str, frame: pd.DataFrame) -> None:
    """The features of version 1, then an answer of version 2: both are asked for again."""
    orders = {"1": FEATURES, "2": FEATURES[::-1]}
    versions = {"certificate": iter("12"), operation: iter("22")}
    rows: list[list[float]] = []

    def reply(request: Received) -> Reply:
        if request.path.endswith("/models/table"):
            tensor = {"name": "x", "datatype": "FP64", "shape": [-1, 4]}
            return Reply(200, {"name": "table", "inputs": [tensor]})
        if request.path.endswith("/certificate"):
            version = next(versions["certificate"])
            features = [{"name": name} for name in orders[version]]
            return Reply(200, {"model_version": version, "features": features})
        version = next(versions[operation])
        if operation == "predict":
            rows.append(json.loads(request.body)["instances"][0])
            return Reply(200, {"version": version, "predictions": [[1]] * 7})
        rows.append(np.frombuffer(request.body[-7 * 4 * 8 :])[:4].tolist())
        return Reply(200, {"model_version": version, "outputs": {}})

    with replying(reply) as url, Client(url) as client:
        getattr(client, operation)("table", frame)
    assert rows == [frame.iloc[0][list(orders[version])].tolist() for version in "12"]


def test_versions_that_never_agree_are_an_error(frame: pd.DataFrame) -> None:
    """Something else answers, such as a proxy before two services."""

    def reply(request: Received) -> Reply:
        if request.path.endswith("/models/table"):
            tensor = {"name": "x", "datatype": "FP64", "shape": [-1, 4]}
            return Reply(200, {"name": "table", "inputs": [tensor]})
        if request.path.endswith("/certificate"):
            features = [{"name": name} for name in FEATURES]
            return Reply(200, {"model_version": "1", "features": features})
        return Reply(200, {"model_version": "2", "outputs": {}})

    with (
        replying(reply) as url,
        Client(url) as client,
        pytest.raises(ServerError, match="expected one version to answer, got two each time"),
    ):
        client.infer("table", frame)


def test_numbers_may_be_the_names_of_features() -> None:
    """As pandas names columns without names."""
    frame = pd.DataFrame([[1.0, 2.0]], columns=[1, 0])
    assert table_rows(frame, ["0", "1"], "net") == [[2.0, 1.0]]


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_a_column_of_texts(server: Server, kind: Kind) -> None:
    table = call(
        kind, server.url, "predict", "texts", pd.DataFrame({"text": ["AB C", "", "é\0"]}, index=[7, 8, 9])
    )
    columns = call(kind, server.url, "predict", "texts", ["AB C", "", "é\0"])
    assert list(table.index) == [7, 8, 9]
    assert {name: values.tolist() for name, values in table.items()} == {
        name: values.tolist() for name, values in columns.items()
    }
    with pytest.raises(
        InputError,
        match=r"expected the columns \['text'\], and 'text' is missing; there are also \['words'\]",
    ):
        call(kind, server.url, "predict", "texts", pd.DataFrame({"words": ["A"]}))
    with pytest.raises(InputError, match=r"expected texts of Unicode, got nan at \[1\]"):
        call(kind, server.url, "predict", "texts", pd.DataFrame({"text": ["A", np.nan]}))


WITHOUT_PANDAS = """
import sys
from turnpike import Client
with Client(sys.argv[1]) as client:
    client.predict("table", [[1, 2, 3, 4]])
    client.infer("table", [[1, 2, 3, 4]])
    print(client.gates("table", [[1, 2, 3, 4]])._repr_html_()[:6])
packages = {"turnpike.service", "turnpike.export", "turnpike.models"}
print(sorted((packages | {"pandas", "torch", "onnxruntime", "typer"}) & sys.modules.keys()))
"""


def test_nothing_large_is_imported_without_need(server: Server) -> None:
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_PANDAS, server.url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.splitlines() == ["<table", "[]"]
