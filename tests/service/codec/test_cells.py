"""Rows of words, dates, booleans and blanks, in JSON and CSV."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.infer_bodies import signature
from turnpike.common.columns import ColumnForm
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.manifest import Feature
from turnpike.service.artifact.signature import Column, cell_columns
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.codec.predict_csv import decode_csv
from turnpike.service.codec.predict_json import decode_instances
from turnpike.service.errors import RequestError

COLUMNS = (
    Column("size", ColumnForm(decimal_comma=True), blanks=True),
    Column("color", ColumnForm("category", categories=("red", "3")), blanks=False),
    Column("day", ColumnForm("date"), blanks=False),
    Column("ripe", ColumnForm("boolean"), blanks=False),
)
TABLE = replace(
    signature(Tensor("x", "float32", ("batch", 4))),
    features=tuple(column.name for column in COLUMNS),
    columns=COLUMNS,
)
UNPUBLISHED = replace(
    TABLE, columns=(*COLUMNS[:1], replace(COLUMNS[1], form=ColumnForm("category")), *COLUMNS[2:])
)
LIMITS = RequestLimits()
EXPECTED = np.array([[1.5, 1, 1, 1], [np.nan, 2, 0, 0]], np.float32)


def from_json(instances: Any, model: Any = TABLE) -> Any:
    return decode_instances(json.dumps({"instances": instances}).encode(), model, LIMITS).feeds["x"]


def from_csv(text: str) -> Any:
    return decode_csv(text.encode(), TABLE, LIMITS).feeds["x"]


@pytest.mark.parametrize(
    "rows",
    [
        [["1,5", 3, "1970-01-02", True], [None, "blue", "1970-01-01", "no"]],
        [{"x": ["1,5", "3", "1970-01-02", 1]}, {"x": ["", "blue", "1970-01-01", 0]}],
        [
            {"ripe": True, "day": "1970-01-02", "color": "3", "size": 1.5},
            {"color": "blue", "day": "1970-01-01", "ripe": False},
        ],
    ],
)
def test_cells_in_json_become_numbers(rows: Any) -> None:
    """A number in a category is a word, an unseen word comes after the last one, and a blank is NaN."""
    np.testing.assert_array_equal(from_json(rows), EXPECTED, strict=True)


def test_times_of_day_are_three_minutes_apart() -> None:
    """In 2026, FP32 has 512 numbers for a day: docs/how-to/data.md says so."""
    minutes = [f"2026-07-01T{minute // 60:02}:{minute % 60:02}" for minute in range(1440)]
    days = from_json([[1, "red", minute, True] for minute in minutes])[:, 2].astype(np.float64)
    # with midnight of both days
    assert len(set(days)) == 513
    np.testing.assert_array_equal(np.diff(sorted(set(days))) * 86_400, 168.75)


def test_cells_in_csv_become_numbers() -> None:
    text = 'day,color,size,ripe\n1970-01-02,3,"1,5",yes\n1970-01-01,blue,,no\n'
    np.testing.assert_array_equal(from_csv(text), EXPECTED, strict=True)
    np.testing.assert_array_equal(from_csv('"1,5",3,1970-01-02,true\n'), EXPECTED[:1], strict=True)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            [1, None, "1970-01-01", 1],
            "feature 'color': expected a word, since this column has no blanks, got null",
        ),
        (["x", "red", "1970-01-01", 1], "feature 'size': expected a number with a decimal comma, got 'x'"),
        ([1, ["red"], "1970-01-01", 1], "feature 'color': expected a word, got an array"),
        ([1, "red", "May", 1], "feature 'day': expected a date as ISO 8601, such as 2024-12-31, got 'May'"),
        ([1e39, "red", "1970-01-01", 1], "feature 'size': expected numbers of at most 3.4028235e+38 in size"),
        ([10**400, "red", "1970-01-01", 1], "expected"),
        ([1, "red", "1970-01-01"], "expected 4 cells, got 3"),
        (
            {"color": "red", "day": "1970-01-01"},
            "expected all 4 features of the model, and 'ripe' is missing",
        ),
        (7, "expected an array of cells, or an object by features, got a number"),
    ],
)
def test_other_cells_are_refused(row: Any, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        from_json([row])
    assert message in str(caught.value)


def test_blanks_in_csv_name_their_line() -> None:
    with pytest.raises(
        RequestError, match=r"body, line 2, column 'color': expected a word, since .*, got ''"
    ):
        from_csv("size,color,day,ripe\n1,,1970-01-01,1\n")
    with pytest.raises(RequestError, match="body, line 2, column 'color'"):
        from_csv("size,color,day,ripe\n,,,\n")


def test_words_that_are_not_published_cannot_be_read() -> None:
    with pytest.raises(RequestError, match="expected a tensor with the index of the category, since"):
        from_json([[1, "red", "1970-01-01", 1]], UNPUBLISHED)


def test_plain_numbers_are_no_cells() -> None:
    """Models that had features before are read as before."""
    plain = Feature(name="a", low=0, high=1, mean=0, sd=1)
    assert cell_columns([plain]) == ()
    blank = plain.model_copy(update={"blanks": True})
    assert cell_columns([plain, blank]) == (
        Column("a", ColumnForm(), False, 0, 1),
        Column("a", ColumnForm(), True, 0, 1),
    )


ODD_CELLS: dict[str, list[Any]] = {
    "number": [
        1,
        2.5,
        True,
        "1",
        "-.5e3",
        "1_000",
        "1,000",
        "inf",
        "-nan",
        "nan",
        " 7 ",
        "",
        " ",
        "x",
        None,
        1e39,
    ],
    "comma": ["1,5", "1.234,5", 3, "?", "1.5", None],
    "category": ["red", "3", 3, 3.0, True, "true", " red", "blue", "", "none", None],
    "boolean": [True, False, 1, 0.0, 2, "yes", "N", "0", "-", None],
    "date": ["2024-02-29", "2024-02-30", "1970-01-01T12:00", "2024-02-29T00:00+02:00", 5, "", None],
}
FORMS = {
    "number": ColumnForm(),
    "comma": ColumnForm(decimal_comma=True),
    "category": ColumnForm("category", categories=("red", "3", "true")),
    "boolean": ColumnForm("boolean"),
    "date": ColumnForm("date"),
}


def outcome(cells: list[Any], column: Column) -> Any:
    """The numbers for the cells of one column, or the error of the first wrong cell."""
    model = replace(
        signature(Tensor("x", "float32", ("batch", 1))), features=(column.name,), columns=(column,)
    )
    try:
        return from_json([[cell] for cell in cells], model).ravel().tolist()
    except RequestError as error:
        return str(error)


@pytest.mark.parametrize("blanks", [True, False])
@pytest.mark.parametrize("kind", ODD_CELLS)
def test_many_rows_give_what_each_row_gives(kind: str, blanks: bool) -> None:
    """Rows are converted column by column if they are many, with the same numbers and errors."""
    column = Column("a", FORMS[kind], blanks)
    single = {index: outcome([cell], column) for index, cell in enumerate(ODD_CELLS[kind])}
    good = [index for index, result in single.items() if not isinstance(result, str)]
    expected = [single[index][0] for index in good * 10]
    together = outcome([ODD_CELLS[kind][index] for index in good * 10], column)
    np.testing.assert_array_equal(together, expected)
    for index, cell in enumerate(ODD_CELLS[kind]):
        # cells of one type only, which have a faster path
        alone = outcome([cell] * 20, column)
        np.testing.assert_array_equal(alone, single[index] if index not in good else single[index] * 20)
        if index not in good:
            mixed = outcome([ODD_CELLS[kind][place] for place in good * 10] + [cell], column)
            assert mixed == single[index].replace("instances[0]", f"instances[{len(good) * 10}]")


def test_the_first_wrong_cell_is_named_row_by_row() -> None:
    row = [1, "red", "1970-01-01", 1]
    rows: list[list[Any]] = [*[row] * 20, [1, "red", "May", 1], ["x", "red", "1970-01-01", 1], [1]]
    with pytest.raises(RequestError, match=r"instances\[20\], feature 'day'"):
        from_json(rows)
    with pytest.raises(RequestError, match=r"instances\[20\]: expected 4 cells"):
        from_json([*rows[:20], [1], rows[20]])
    lines = "".join(",".join(str(cell) for cell in cells) + "\n" for cells in rows)
    with pytest.raises(RequestError, match="body, line 21, column 'day'"):
        from_csv(lines)
