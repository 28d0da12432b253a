"""Inputs as a person writes them."""

from __future__ import annotations

import pytest

from export.errors import RequestError
from export.signature import Input, parse, parse_all


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x:float32[batch,784]", Input("x", "float32", ("batch", 784))),
        ("ids:int64[batch, tokens, 50]", Input("ids", "int64", ("batch", "tokens", 50))),
        ("mask:bool[7]", Input("mask", "bool", (7,))),
        ("scalar:float64[]", Input("scalar", "float64", ())),
    ],
)
def test_what_is_written_is_what_is_read(text: str, expected: Input) -> None:
    """Numbers are fixed dimensions, names are dynamic ones, spaces do not count; and back again."""
    assert parse(text) == expected
    assert parse(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "expected NAME:DTYPE[DIM,...] as in x:float32[batch,784], got 'x'"),
        ("x:float32", "got 'x:float32'"),
        ("x:float33[1]", "expected a dtype of float32"),
        ("x:float32[batch,0]", "expected dimensions of 1 or more, got 0"),
        ("x:float32[batch,-1]", "expected a number or a name as a dimension, got '-1'"),
        ("x:float32[batch,,3]", "got ''"),
        ("x:float32[2147483648]", "got '2147483648'"),
        ("a b/c:float32[1]", "expected a name of letters"),
        ("x:float32[[1]]", "expected NAME:DTYPE"),
    ],
)
def test_other_writing_is_refused(text: str, says: str) -> None:
    """The message shows what was expected and what came."""
    with pytest.raises(RequestError, match="--input") as error:
        parse(text)
    assert says in str(error.value)


def test_names_are_distinct() -> None:
    """Two inputs cannot share a name."""
    with pytest.raises(RequestError, match="got 'x' more than once"):
        parse_all(["x:float32[1]", "x:int64[1]"])


def test_a_shape_needs_a_size_for_each_name() -> None:
    """Names stand for sizes that are given."""
    assert parse("x:float32[batch,time,8]").shape(batch=3, time=5) == (3, 5, 8)
