"""Rows with words, dates, booleans and blanks: DataFrames, dicts and lists give what their numbers give."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support.cell_tables import NAN, NUMBERS, ROWS, expected_labels, expected_logits
from tests.support.client_server import FEATURES, Kind, call
from tests.support.live_server import Server
from turnpike.client.cells import cell_rows, model_columns
from turnpike.client.client import AsyncClient, Client
from turnpike.client.errors import InputError, InputWarning, RequestRefusedError

OWN = ("size", "color", "day", "ripe")


def dates(texts: Any) -> list[dt.datetime]:
    return [dt.datetime.strptime(text, "%d.%m.%Y") for text in texts]


def with_timestamps() -> pd.DataFrame:
    frame = pd.DataFrame(ROWS).astype({"color": "category", "size": "Float64", "ripe": "boolean"})
    return frame.assign(day=pd.to_datetime(frame["day"], format="%d.%m.%Y"))[["day", "id", *OWN[:2], "ripe"]]


FORMS: dict[str, Callable[[], Any]] = {
    "frame": lambda: pd.DataFrame(ROWS),
    "timestamps, categories and NA": with_timestamps,
    "dicts": lambda: ROWS,
    "dicts without blanks": lambda: [
        {name: cell for name, cell in row.items() if cell is not None} for row in ROWS
    ],
    "lists": lambda: [[row[name] for name in OWN] for row in ROWS],
    "dates and NaN": lambda: [
        [NAN if row["size"] is None else row["size"], row["color"], day.date(), np.bool_(row["ripe"])]
        for row, day in zip(ROWS, dates(row["day"] for row in ROWS), strict=True)
    ],
    "dict of columns": lambda: {name: [row[name] for row in ROWS] for name in ("ripe", *OWN[:3])},
    "dict of Series": lambda: dict(pd.DataFrame(ROWS).items()),
    "object array": pd.DataFrame(ROWS)[list(OWN)].to_numpy,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_rows_of_cells_are_predicted(server: Server, kind: Kind, form: str) -> None:
    rows = FORMS[form]()
    with pytest.warns(InputWarning, match="1 cell is new .* row 3, column 'color': 'blue' is a word"):
        predictions = call(kind, server.url, "predict", "cells", rows)
    assert predictions["label"].tolist() == expected_labels()
    outputs = call(kind, server.url, "infer", "cells", rows)["logits"]
    np.testing.assert_array_equal(outputs, expected_logits())


NEW_ROWS = [*ROWS[:2], ROWS[2] | {"size": 9.5, "color": "blue"}, *[ROWS[0] | {"size": -8}] * 25]


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_new_cells_are_one_warning_at_the_line_of_the_caller(server: Server, kind: Kind) -> None:
    async def predict_async() -> Any:
        async with AsyncClient(server.url) as client:
            return await client.predict("cells", pd.DataFrame(NEW_ROWS))

    def predict() -> Any:
        if kind == "async":
            return asyncio.run(predict_async())
        with Client(server.url) as client:
            return client.predict("cells", pd.DataFrame(NEW_ROWS))

    with pytest.warns(InputWarning) as caught:
        predictions = predict()
    assert len(predictions) == 28
    (found,) = caught
    assert found.filename == __file__
    warning = found.message
    assert isinstance(warning, InputWarning)
    assert (warning.model, len(warning.cells), warning.more) == ("cells", 20, 7)
    size, color = "outside of training's range, -3 to 3", "a word that training has not seen"
    assert warning.cells[:3] == [
        {"row": 2, "column": "size", "value": 9.5, "what": size},
        {"row": 2, "column": "color", "value": "blue", "what": color},
        {"row": 3, "column": "size", "value": -8, "what": size},
    ]
    assert str(warning) == (
        "model 'cells': 27 cells are new to its training: "
        f"row 2, column 'size': 9.5 is {size}; row 2, column 'color': 'blue' is {color}; "
        f"row 3, column 'size': -8.0 is {size}; and 24 more"
    )


def test_known_cells_are_no_warning(server: Server) -> None:
    """Warnings are errors in these tests. Tensors, as of `infer`, have none either."""
    with Client(server.url) as client:
        assert client.predict("cells", ROWS[:3])["label"].tolist() == expected_labels()[:3]
        assert len(client.infer("cells", NEW_ROWS)["logits"]) == len(NEW_ROWS)


def test_gates_and_lesions_take_cells(server: Server) -> None:
    frame = pd.DataFrame(ROWS)
    with Client(server.url) as client:
        assert client.gates("cells", frame).gates == client.gates("cells", NUMBERS).gates
        lesion = client.lesion("cells", ROWS, close=[0])
        assert lesion.report == client.lesion("cells", NUMBERS, close=[0]).report


def test_a_series_of_cells_is_a_row(server: Server) -> None:
    row = with_timestamps().iloc[1]
    assert call("blocking", server.url, "predict", "cells", row)["label"] == expected_labels()[1]


def test_nan_in_arrays_is_a_blank(server: Server) -> None:
    # as cells, 0.0 is no word of this column, and a date is no number: infer takes the network's numbers
    outputs = call("blocking", server.url, "infer", "cells", NUMBERS)["logits"]
    np.testing.assert_array_equal(outputs, expected_logits())
    cells = np.array([[NAN, 3, 1, 1]], np.float32)
    with pytest.raises(RequestRefusedError, match="feature 'day': expected a date as %d.%m.%Y, got 1"):
        call("blocking", server.url, "predict", "cells", cells)
    with pytest.raises(
        InputError, match=r"since predict sends JSON, got nan at \[0, 0\] of input 'x': infer"
    ):
        call("blocking", server.url, "predict", "table", np.full((1, 4), NAN))


def test_dicts_are_rows_of_plain_numbers_too(server: Server) -> None:
    rows = [{**dict(zip(FEATURES, row, strict=True)), "id": 7} for row in ([1, 2, 3, 4], [4, 3, 2, 1])]
    predictions = call("blocking", server.url, "predict", "table", rows)
    expected = call("blocking", server.url, "predict", "table", [[1, 2, 3, 4], [4, 3, 2, 1]])
    assert json.dumps(predictions["label"].tolist()) == json.dumps(expected["label"].tolist())


def test_a_dict_of_columns_may_have_plain_numbers(server: Server) -> None:
    columns = {name: np.arange(3.0) * place for place, name in enumerate(FEATURES)}
    rows = np.stack(list(columns.values()), axis=1)
    for method in ("predict", "infer"):
        got = call("blocking", server.url, method, "table", dict(reversed(columns.items())))
        expected = call("blocking", server.url, method, "table", rows)
        assert {name: array.tolist() for name, array in got.items()} == {
            name: array.tolist() for name, array in expected.items()
        }
    with pytest.raises(InputError, match=r"expected columns of one length, got {'mass': 1, 'age': 2}"):
        call("blocking", server.url, "predict", "table", {"mass": [1], "age": [1, 2]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"day": "May"}, "expected a date as %d.%m.%Y, got 'May'"),
        ({"ripe": None}, "expected true or false, since this column has no blanks"),
        ({"size": [1]}, "column 'size': expected a number, got list"),
        ({"size": float("inf")}, "column 'size': expected a finite number, got inf"),
    ],
)
@pytest.mark.parametrize("method", ["predict", "infer"])
def test_wrong_cells_are_refused(server: Server, method: str, change: dict[str, Any], message: str) -> None:
    """By the client or by the service, with the column and what was expected."""
    rows = [ROWS[0], ROWS[1] | change]
    with pytest.raises((InputError, RequestRefusedError), match=message) as caught:
        call("blocking", server.url, method, "cells", rows)
    assert next(iter(change)) in str(caught.value)


def test_missing_columns_are_refused(server: Server) -> None:
    frame = pd.DataFrame(ROWS)
    with pytest.raises(InputError, match=r"expected the columns .*, and 'day' is missing"):
        call("blocking", server.url, "predict", "cells", frame.drop(columns="day"))
    with pytest.raises(InputError, match="expected 'day' in row 0, got"):
        call("blocking", server.url, "predict", "cells", [{"ripe": True}])
    with pytest.raises(InputError, match="expected 4 cells or a dict as row 1, got 3 cells"):
        call("blocking", server.url, "predict", "cells", [["1", "red", None, True], ["1", "red", None]])


def test_columns_that_may_be_blank_may_be_missing(server: Server) -> None:
    """Unless another column has almost the name of one, or no column is the model's."""
    frame = pd.DataFrame(ROWS).iloc[:3]
    blank = call("blocking", server.url, "predict", "cells", frame.assign(size=None))
    without = frame.drop(columns="size")
    assert (
        call("blocking", server.url, "predict", "cells", without)["label"].tolist() == blank["label"].tolist()
    )
    misspelled = r"expected a column 'size', got 'Siz e': did you mean it\? Rename it"
    rows = without.assign(**{"Siz e": 1.5})
    with pytest.raises(InputError, match=misspelled):
        call("blocking", server.url, "predict", "cells", rows)
    with pytest.raises(InputError, match=f"row 1: {misspelled}"):
        call("blocking", server.url, "predict", "cells", [ROWS[0], *rows.to_dict("records")])
    every = model_columns([{"name": "size", "blanks": True}])
    with pytest.raises(InputError, match="and 'size' is missing"):
        cell_rows(frame[["id"]], every, "net")
    with pytest.raises(InputError, match="expected 'size' in row 0, got"):
        cell_rows([{"id": 1}], every, "net")


def test_dates_are_written_as_the_column_has_them() -> None:
    """With a zone, at UTC, as the service reads them."""
    zone = dt.timezone(dt.timedelta(hours=2))
    moment = dt.datetime(2024, 3, 1, 1, 30, tzinfo=zone)
    columns = model_columns(
        [
            {"name": "iso", "kind": "date", "date_format": "iso"},
            {"name": "german", "kind": "date", "date_format": "%d.%m.%Y"},
            {"name": "word", "kind": "category"},
        ]
    )
    rows = [[moment, moment, dt.date(2024, 3, 1)], [np.datetime64("2024-03-01"), pd.NaT, pd.NA]]
    assert cell_rows(rows, columns, "net") == [
        ["2024-03-01T01:30:00+02:00", "29.02.2024", "2024-03-01"],
        ["2024-03-01T00:00:00", None, None],
    ]
