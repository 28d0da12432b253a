"""Input specifications, and the names of models and inputs."""

from __future__ import annotations

import pytest

from turnpike.export.errors import SourceError, UsageError
from turnpike.export.input_spec import (
    InputSpec,
    check_batch_dimension,
    model_name,
    parse_input,
    parse_inputs,
    parse_ranges,
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
def test_parsing_and_formatting_are_inverse(text: str, expected: InputSpec) -> None:
    """Numbers are fixed dimensions, names are dynamic ones, and spaces do not count."""
    assert parse_input(text) == expected
    assert parse_input(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
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
def test_invalid_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match="--input") as error:
        parse_input(text)
    assert message in str(error.value)


def test_names_are_distinct() -> None:
    with pytest.raises(UsageError, match="got 'x' more than once"):
        parse_inputs(["x:float32[1]", "x:int64[1]"])


def test_a_shape_needs_a_size_for_each_name() -> None:
    assert parse_input("x:float32[batch,time,8]").shape(batch=3, time=5) == (3, 5, 8)


SOURCE_INPUTS = parse_inputs(["x:float32[batch,time,4]", "mask:bool[batch,time]"])


@pytest.mark.parametrize("name", ["a", "digits-10", "A.b_c-9", "x" * 100])
def test_a_requested_name_is_kept(name: str) -> None:
    assert model_name(name, "other") == name


@pytest.mark.parametrize("name", ["", "-a", ".a", "../up", "a/b", "a b", "é", "x" * 101, "a\n"])
def test_a_name_that_could_leave_its_folder_or_break_a_url_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="--name: expected at most 100 letters"):
        model_name(name, "other")


@pytest.mark.parametrize(
    ("default", "name"),
    [
        ("my net (2)", "my-net-2"),
        ("../../etc", "etc"),
        ("", "model"),
        ("日本", "model"),
        ("x" * 200, "x" * 100),
    ],
)
def test_the_default_name_is_made_from_the_sources(default: str, name: str) -> None:
    """Characters that a name may not contain are left out."""
    assert model_name(None, default) == name


def test_inputs_keep_the_sources_names_unless_renamed() -> None:
    """The user may rename inputs and dimensions."""
    assert with_user_names(SOURCE_INPUTS, ()) == SOURCE_INPUTS
    user_inputs = parse_inputs(["rows:float32[n,t,4]", "seen:bool[n,t]"])
    assert with_user_names(SOURCE_INPUTS, user_inputs) == user_inputs


@pytest.mark.parametrize(
    "texts",
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
def test_renaming_cannot_change_the_inputs(texts: list[str]) -> None:
    """A count, dtype, size or equality of dimensions that differs is refused."""
    with pytest.raises(UsageError, match=r"--input: expected x:float32\[batch,time,4\] mask:bool"):
        with_user_names(SOURCE_INPUTS, parse_inputs(texts))


def test_a_fixed_number_of_rows_gives_a_warning() -> None:
    """It is allowed with a warning, unless another dimension is dynamic."""
    assert check_batch_dimension(SOURCE_INPUTS, "here") == ()
    assert check_batch_dimension(parse_inputs(["x:float32[3,4]"]), "here") == (
        "here: x:float32[3,4]: takes batches of exactly 3 rows",
    )
    with pytest.raises(
        SourceError, match="the first dimension is the batch, and it is fixed while others vary"
    ):
        check_batch_dimension(parse_inputs(["x:float32[3,time,4]"]), "here")
    for inputs in ((), parse_inputs(["x:float32[]"])):
        with pytest.raises(SourceError, match="expected an input whose first dimension is the batch"):
            check_batch_dimension(inputs, "here")


MIXED_INPUTS = parse_inputs(["x:float32[batch,4]", "y:float64[batch]", "ids:int64[batch]", "on:bool[batch]"])


def test_ranges_apply_to_all_numbers_or_to_one_input() -> None:
    """A range of one input replaces an earlier one for all. Ids have a range only by name."""
    assert parse_ranges([], MIXED_INPUTS) == {}
    assert parse_ranges(["-5:5.5"], MIXED_INPUTS) == {"x": (-5, 5.5), "y": (-5, 5.5)}
    assert parse_ranges(["-1:1", "y=0:1e3", "ids=0:7"], MIXED_INPUTS) == {
        "x": (-1, 1),
        "y": (0, 1000),
        "ids": (0, 7),
    }


@pytest.mark.parametrize("text", ["5", "5:", ":", "a:b", "x=1:2:3", "=0:1", "z=0:1", "on=0:1"])
def test_ranges_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--input-range.*: expected (LOW:HIGH|NAME=LOW:HIGH)"):
        parse_ranges([text], MIXED_INPUTS)


@pytest.mark.parametrize("text", ["5:-5", "1:1", "0:inf", "nan:1", "x=1:0"])
def test_the_low_end_is_below_the_high_end_and_both_are_finite(text: str) -> None:
    with pytest.raises(UsageError, match=f"expected two finite numbers, LOW below HIGH, got '{text}'"):
        parse_ranges([text], MIXED_INPUTS)
