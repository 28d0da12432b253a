"""A model of a table with words, dates and blanks on a real server: every way in gives the same answers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.cell_tables import CSV, NUMBERS, ROWS, expected_labels, expected_logits, put_cell_model
from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.live_server import Server, serving
from tests.support.run_cli import run_in_process
from turnpike.client.client import Client
from turnpike.client.errors import InputWarning

OWN = ("size", "color", "day", "ripe")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return put_cell_model(tmp_path_factory.mktemp("repository"))


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    with serving("--models", model.parents[2], "--grpc-port", 0, "--no-access-log") as running:
        yield running


def labels(answer: Any) -> list[str]:
    return [prediction["label"] for prediction in answer["predictions"]]


def test_json(server: Server) -> None:
    rows = [{name: row[name] for name in OWN} for row in ROWS]
    for instances in (rows, [list(row.values()) for row in rows]):
        body = json.dumps({"instances": instances}).encode()
        assert labels(server.post("/v1/models/cells:predict", body).json()) == expected_labels()


def test_csv(server: Server) -> None:
    answer = server.post("/v1/models/cells:predict", CSV.encode(), headers={"Content-Type": "text/csv"})
    assert labels(answer.json()) == expected_labels()


def test_tensors_with_nan(server: Server) -> None:
    """As bytes over HTTP, and over gRPC; both from the client."""
    for url in (server.url, f"grpc://{server.grpc_address}"):
        with Client(url) as client:
            outputs = client.infer("cells", NUMBERS)["logits"]
        np.testing.assert_array_equal(outputs, expected_logits())


def test_a_table_of_pandas(server: Server) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(io.StringIO(CSV)).assign(
        day=lambda table: pandas.to_datetime(table["day"], dayfirst=True)
    )
    with (
        Client(server.url) as client,
        pytest.warns(InputWarning, match="'blue' is a word that training has not"),
    ):
        predictions = client.predict("cells", frame)
    assert predictions["label"].tolist() == expected_labels()
    assert list(predictions.index) == list(frame.index)


def test_the_command_predict(server: Server, model: Path, tmp_path: Path) -> None:
    """With gates, whose request has blanks too, and with the answers of the file itself."""
    table = tmp_path / "rows.csv"
    table.write_text(CSV)
    answers = []
    for source in (server.url, model):
        ran = run_in_process("predict", source, table, "--gates")
        assert ran.exit_code == 0, ran.stderr
        answers.append(ran.stdout)
    rows = list(csv.DictReader(io.StringIO(answers[0])))
    assert [row["label"] for row in rows] == expected_labels()
    assert [row["id"] for row in rows] == ["a", "b", "c", "d"]
    assert "layer00.transform_gate" in rows[0]
    assert answers[0] == answers[1]


def test_the_command_predict_warns(server: Server, model: Path, tmp_path: Path) -> None:
    """In a column of the table, or in the JSON object; the same for a service and a file."""
    table = tmp_path / "rows.csv"
    table.write_text(CSV + "e,9.5,red,02.01.1970,no\nf,1,RED,02.01.1970,no\n")
    expected = [
        *("", "", "", "color: a word that training has not seen"),
        "size: 9.5 is outside of training's range, -3 to 3",
        "color: a word that training has not seen (did you mean 'red'?)",
    ]
    for source in (server.url, model):
        ran = run_in_process("predict", source, table, "--warnings")
        assert [row["warnings"] for row in csv.DictReader(io.StringIO(ran.stdout))] == expected
        ran = run_in_process("predict", source, table, "--warnings", "--json")
        assert json.loads(ran.stdout)["warnings"] == expected
        ran = run_in_process("predict", source, table)
        assert "warnings" not in ran.stdout
        # on standard error, since the output may be read by a program
        assert " ".join(ran.stderr.split()) == (
            "note: 3 rows have cells that training did not have (the first, row 4: color: a word that "
            "training has not seen); --warnings adds them to the output"
        )
    table.write_text(CSV[: CSV.index("d,2,blue")])
    assert run_in_process("predict", model, table).stderr == ""
    digits = tmp_path / "digits.npy"
    np.save(digits, np.zeros((1, 64)))
    ran = run_in_process("predict", BUNDLED_MODEL, digits, "--warnings")
    assert "--warnings: expected a model of a table with words" in " ".join(ran.stderr.split())
