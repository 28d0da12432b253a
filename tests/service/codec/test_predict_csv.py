"""Predict requests as CSV."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.support.infer_bodies import ROWS, signature
from tests.support.text_models import TEXTS, encoder
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.codec.predict_csv import decode_csv, read_table, read_texts
from turnpike.service.errors import RequestError, TooLargeError

TABLE = replace(signature(Tensor("x", "float32", ("batch", 3))), features=("alcohol", "ash [g]", "hue"))
NUMBERED = replace(TABLE, features=("0", "1", "2"))
WHOLE = signature(Tensor("x", "int8", ("batch", 2)))
PAIR = signature(Tensor("a", "float32", ("batch", 2)), Tensor("b", "float32", ("batch", 2)))
FLAGS = signature(Tensor("x", "bool", ("batch", 2)))
LIMITS = RequestLimits(max_rows=3, max_json_bytes=200)


@pytest.mark.parametrize(
    ("text", "model", "rows"),
    [
        ("1,2,3\n4,5.5,-6e1\n", TABLE, [[1, 2, 3], [4, 5.5, -60]]),
        ("\ufeffhue, alcohol ,ash [g]\r\n3,1,2\r\n\r\n60,4,5\r\n", TABLE, [[1, 2, 3], [4, 5, 60]]),
        ('"hue","ash [g]","alcohol"\n"3","2","1"', TABLE, [[1, 2, 3]]),
        ("2,0,1\n30,10,20\n", NUMBERED, [[10, 20, 30]]),
        ("a,b\n1,-128\n2,127\n,\n", WHOLE, [[1, -128], [2, 127]]),
        ("1,2,3,4,5,6\n", ROWS, [[[1, 2, 3], [4, 5, 6]]]),
        ("1,2,3\n" * 3, TABLE, [[1, 2, 3]] * 3),
        ("alcohol,ash [g],hue\n" + "1,2,3\n" * 3, TABLE, [[1, 2, 3]] * 3),
    ],
)
def test_tables_are_read(text: str, model: Signature, rows: list[object]) -> None:
    """With and without names, which may be in any order."""
    request = decode_csv(text.encode(), model, LIMITS)
    (tensor,) = model.inputs.values()
    np.testing.assert_array_equal(request.feeds[tensor.name], np.array(rows, tensor.dtype), strict=True)
    assert request.form.rows == len(rows)


@pytest.mark.parametrize(
    ("text", "model", "message"),
    [
        ("1,2,3\n4,x,6\n", TABLE, "body, line 2, column 2: expected a finite number, got 'x'"),
        (
            "hue,alcohol,ash [g]\n1,,3\n",
            TABLE,
            "body, line 2, column 'alcohol': expected a finite number, got ''",
        ),
        (
            "hue,alcohol,ash [g]\n1,2,nan\n",
            TABLE,
            "body, line 2, column 'ash [g]': expected a finite number, got 'nan'",
        ),
        (
            "hue,alcohol,ash [g]\n1e39,2,3\n",
            TABLE,
            "body, line 2, column 'hue': "
            "expected numbers of at most 3.4028235e+38 in size (FP32), got '1e+39'",
        ),
        (
            "alcohol,hue,ash,class\n1,2,3,0\n",
            TABLE,
            "body, line 1: expected all 3 features of the model, and 'ash [g]' is missing; "
            "for 'ash', did you mean 'ash [g]'?",
        ),
        (
            "alcohol,hue\n1,2\n",
            TABLE,
            "body, line 1: expected all 3 features of the model, and 'ash [g]' is missing",
        ),
        (
            "alcohol,hue,ash [g],hue\n1,2,3,4\n",
            TABLE,
            "body, line 1: expected each feature once, got 'hue' twice",
        ),
        ("1,2,3\n4,5\n", TABLE, "body, line 2: expected 3 columns, got 2"),
        (
            "1|2|3\n",
            TABLE,
            "body, line 1: expected all 3 features of the model, and 'alcohol', 'ash [g]', 'hue' are missing",
        ),
        ("1,2,3\n4;5;6\n", TABLE, "body, line 2: expected 3 columns, got 1; separate them by commas"),
        (
            "1,2.5\n",
            WHOLE,
            "body, line 1, column 2: expected whole numbers from -128 to 127 (INT8), got '2.5'",
        ),
        (
            "1,3.0000001\n",
            WHOLE,
            "body, line 1, column 2: expected whole numbers from -128 to 127 (INT8), got '3.0000001'",
        ),
        (
            "1,128\n",
            WHOLE,
            "body, line 1, column 2: expected whole numbers from -128 to 127 (INT8), got '128'",
        ),
        ("1,2,3\n", WHOLE, "body, line 1: expected 2 columns, got 3"),
        ("1,2\n", FLAGS, "body: expected JSON, since CSV has numbers and the input has none"),
        ("1,2\n", PAIR, "body: expected JSON with a, b, since CSV has rows of one input only"),
        ("1,2,3\n" * 4, TABLE, "body: expected at most 3 rows (--max-rows), got more"),
        ("\n" * 5, TABLE, "body: expected at most 3 rows (--max-rows), got more"),
        ("", TABLE, "body: expected rows, got none"),
        ("alcohol,ash [g],hue\n", TABLE, "body: expected rows, got none"),
        ('"' + "a" * 150, replace(TABLE, features=()), "body: expected rows, got none"),
    ],
)
def test_unfit_tables_are_refused(text: str, model: Signature, message: str) -> None:
    """The message names the line and the column."""
    with pytest.raises(RequestError) as caught:
        decode_csv(text.encode(), model, LIMITS)
    assert str(caught.value) == message


def test_the_text_is_checked_before_it_is_parsed() -> None:
    with pytest.raises(TooLargeError, match=r"expected at most 200 bytes of CSV \(--max-json\), got 300"):
        decode_csv(b"1,2,3\n" * 50, TABLE, LIMITS)
    with pytest.raises(RequestError, match="body: expected CSV in UTF-8, got other bytes"):
        decode_csv(b"1,2,\xff\n", TABLE, LIMITS)
    long_cell = b"1,2," + b"3" * 140_000
    with pytest.raises(RequestError, match="body, line 1: expected cells separated by commas"):
        decode_csv(long_cell, TABLE, RequestLimits())


def test_semicolons_separate_too() -> None:
    """If the first line has them and no comma, as `train` and `score` read such files."""
    lines = ["alcohol;hue;ash [g];oak\n", "1;2;3;a,b\n", "4;5;6;\n"]
    table = read_table(lines, TABLE, "t.csv")
    np.testing.assert_array_equal(table.values, [[1, 3, 2], [4, 6, 5]])
    assert table.others == {"oak": ["a,b", ""]}
    # a line of numbers with decimal commas is not clear
    with pytest.raises(RequestError, match="t.csv, line 1: expected 3 columns, got 4"):
        read_table(["1,5;2,5;3,5\n"], TABLE, "t.csv")


def test_other_columns_are_kept() -> None:
    """They may have any text, and stand anywhere. A name that is missing is an error still."""
    lines = ["id,hue,alcohol,class,ash [g]\n", "007,1,2,red,3\n", '"a,b",4,5,,6\n']
    table = read_table(lines, TABLE, "t.csv")
    np.testing.assert_array_equal(table.values, [[2, 3, 1], [5, 6, 4]])
    assert table.others == {"id": ["007", "a,b"], "class": ["red", ""]}
    with pytest.raises(RequestError, match="t.csv, line 2, column 'alcohol': expected a finite number"):
        read_table([lines[0], "007,1,x,red,3\n"], TABLE, "t.csv")
    with pytest.raises(RequestError, match="and 'alcohol' is missing; .* did you mean 'alcohol'"):
        read_table(["id,hue,alcohl,ash [g]\n", "7,1,2,3\n"], TABLE, "t.csv")
    with pytest.raises(RequestError, match="expected each feature once, got 'hue' twice"):
        read_table(["hue,hue,alcohol,ash [g]\n"], TABLE, "t.csv")


def test_a_column_of_texts_is_read() -> None:
    """Empty texts are rows, and lines without any cell are not. Columns of ids are read as before."""
    table = b'\xef\xbb\xbf text \r\n"A, B"\r\n""\r\n\r\n"B\nC"\r\n'
    request = decode_csv(table, TEXTS, RequestLimits())
    np.testing.assert_array_equal(request.feeds["ids"], encoder().encode(["A, B", "", "B\nC"]), strict=True)
    assert (request.form.rows, request.form.has_texts) == (3, True)
    assert decode_csv(b"1,2,0\n3,0,0\n", TEXTS, LIMITS).feeds["ids"].tolist() == [[[1, 2, 0]], [[3, 0, 0]]]


def test_columns_beside_the_texts_are_kept() -> None:
    lines = ["id,text,label\n", "1,A B,x\n", "2,,y\n"]
    assert read_texts(lines, "rows.csv") == (
        ["A B", ""],
        {"id": ["1", "2"], "label": ["x", "y"]},
    )
    assert read_texts(["1,2,3\n"], "rows.csv") is None
    assert read_texts([], "rows.csv") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text,text\nA,B\n", "body, line 1: expected each column once, got 'text' twice"),
        ("text\nA, B\n", "body, line 2: expected 1 columns, got 2; put a text with commas in quotes"),
        ("text\n", "body: expected rows, got none"),
        ("text\n" + "A\n" * 4, "body: expected at most 3 rows (--max-rows), got more"),
    ],
)
def test_tables_of_texts_that_do_not_fit_are_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=f"^{re.escape(message)}$"):
        decode_csv(text.encode(), TEXTS, LIMITS)


def test_texts_are_refused_in_csv_by_models_that_take_none() -> None:
    with pytest.raises(RequestError, match="expected"):
        decode_csv(b"text\nA\n", WHOLE, LIMITS)
