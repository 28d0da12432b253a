"""Inputs as a person writes them."""

from __future__ import annotations

import warnings

import pytest

from export.errors import RequestError, SourceError, SourceWarning
from export.input_spec import (
    InputSpec,
    expect_batch_dimension,
    model_name,
    parse_input,
    parse_inputs,
    with_user_names,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x:float32[batch,784]", InputSpec("x", "float32", ("batch", 784))),
        ("ids:int64[batch, tokens, 50]", InputSpec("ids", "int64", ("batch", "tokens", 50))),
        ("mask:bool[7]", InputSpec("mask", "bool", (7,))),
        ("scalar:float64[]", InputSpec("scalar", "float64", ())),
    ],
)
def test_what_is_written_is_what_is_read(text: str, expected: InputSpec) -> None:
    """Numbers are fixed dimensions, names are dynamic ones, spaces do not count; and back again."""
    assert parse_input(text) == expected
    assert parse_input(str(expected)) == expected


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
        parse_input(text)
    assert says in str(error.value)


def test_names_are_distinct() -> None:
    """Two inputs cannot share a name."""
    with pytest.raises(RequestError, match="got 'x' more than once"):
        parse_inputs(["x:float32[1]", "x:int64[1]"])


def test_a_shape_needs_a_size_for_each_name() -> None:
    """Names stand for sizes that are given."""
    assert parse_input("x:float32[batch,time,8]").shape(batch=3, time=5) == (3, 5, 8)


OWN = parse_inputs(["x:float32[batch,time,4]", "mask:bool[batch,time]"])


@pytest.mark.parametrize("name", ["a", "digits-10", "A.b_c-9", "x" * 100])
def test_a_name_that_is_given_stands(name: str) -> None:
    """It is not changed."""
    assert model_name(name, "other") == name


@pytest.mark.parametrize("name", ["", "-a", ".a", "../up", "a/b", "a b", "é", "x" * 101, "a\n"])
def test_a_name_that_could_leave_its_folder_or_break_a_url_is_refused(name: str) -> None:
    """The rule is said with what came."""
    with pytest.raises(RequestError, match="--name: expected at most 100 letters"):
        model_name(name, "other")


@pytest.mark.parametrize(
    ("found", "name"),
    [
        ("my net (2)", "my-net-2"),
        ("../../etc", "etc"),
        ("", "model"),
        ("日本", "model"),
        ("x" * 200, "x" * 100),
    ],
)
def test_a_name_is_made_of_the_sources_where_none_is_given(found: str, name: str) -> None:
    """What a name may not hold is left out."""
    assert model_name(None, found) == name


def test_inputs_keep_their_own_names_unless_told_otherwise() -> None:
    """Dimensions are called as the user calls them, those of one name alike."""
    assert with_user_names(OWN, ()) == OWN
    theirs = parse_inputs(["rows:float32[n,t,4]", "seen:bool[n,t]"])
    assert with_user_names(OWN, theirs) == theirs


@pytest.mark.parametrize(
    "given",
    [
        ["rows:float32[n,t,4]"],
        ["rows:float32[n,t,4]", "seen:bool[n,t]", "more:bool[n]"],
        ["rows:float64[n,t,4]", "seen:bool[n,t]"],
        ["rows:float32[n,t]", "seen:bool[n,t]"],
        ["rows:float32[n,t,5]", "seen:bool[n,t]"],
        ["rows:float32[n,t,f]", "seen:bool[n,t]"],
        ["rows:float32[n,28,4]", "seen:bool[n,28]"],
        ["rows:float32[n,t,4]", "seen:bool[n,u]"],
        ["rows:float32[n,n,4]", "seen:bool[n,n]"],
    ],
)
def test_other_inputs_than_there_are_cannot_be_asked_for(given: list[str]) -> None:
    """A number, dtype, size or equality of dimensions that differs is refused with what there is."""
    with pytest.raises(RequestError, match=r"--input: expected x:float32\[batch,time,4\] mask:bool"):
        with_user_names(OWN, parse_inputs(given))


def test_a_fixed_number_of_rows_is_said() -> None:
    """It is allowed, with a note; a dimension that varies where the batch does not is no batch."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expect_batch_dimension(OWN, "here")
    with pytest.warns(SourceWarning, match=r"here: x:float32\[3,4\]: takes batches of exactly 3 rows"):
        expect_batch_dimension(parse_inputs(["x:float32[3,4]"]), "here")
    with pytest.raises(
        SourceError, match="the first dimension is the batch, and it is fixed while others vary"
    ):
        expect_batch_dimension(parse_inputs(["x:float32[3,time,4]"]), "here")
    for none in ((), parse_inputs(["x:float32[]"])):
        with pytest.raises(SourceError, match="expected an input whose first dimension is the batch"):
            expect_batch_dimension(none, "here")
