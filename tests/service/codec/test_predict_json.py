"""The body of predict requests."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.infer_bodies import IDS, ROWS, signature
from tests.support.text_models import TEXTS, encoder
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.codec.predict_json import decode_instances
from turnpike.service.errors import RequestError, TooLargeError
from turnpike.service.inference_types import (
    InferenceRequest,
    RequestedOutput,
)

LIMITS = RequestLimits(max_rows=100, max_depth=8)
PAIR = signature(Tensor("a", "float32", ("batch", 2)), Tensor("b", "int64", ("batch",)))
HALVES = signature(Tensor("x", "float16", ("batch", 3)))
SINGLE = signature(Tensor("x", "float32", ("batch",)))
WHOLE = signature(Tensor("x", "float32", (2, 2)), batch=None)
TABLE = replace(signature(Tensor("x", "float32", ("batch", 3))), features=("alcohol", "ash [g]", "hue"))
X = np.arange(12, dtype=np.float32).reshape(2, 2, 3)


def decoded(instances: Any, model: Signature = ROWS) -> InferenceRequest:
    return decode_instances(json.dumps({"instances": instances}).encode(), model, LIMITS)


def test_rows_may_be_nested_flat_or_named() -> None:
    """Each form of a row gives the same array."""
    for instances in (
        X.tolist(),
        X.reshape(2, 6).tolist(),
        [{"x": row.tolist()} for row in X],
        [{"x": row.ravel().tolist()} for row in X],
    ):
        got = decoded(instances)
        np.testing.assert_array_equal(got.feeds["x"], X, strict=True)
        assert (got.form.rows, got.form.outputs) == (2, (RequestedOutput("logits"),))


def test_rows_of_several_inputs_name_each_input() -> None:
    """Integers stay exact, and a single number may be a row."""
    got = decoded([{"a": [1, 2], "b": 2**53 + 1}, {"b": -1, "a": [3, 4.5]}], PAIR)
    assert got.feeds["a"].tolist() == [[1, 2], [3, 4.5]]
    assert got.feeds["b"].tolist() == [2**53 + 1, -1]


def test_rows_of_every_shape_are_read() -> None:
    """Rows of one number, of any length and of FP16, and no rows at all."""
    assert decoded([1, 2, 3], SINGLE).feeds["x"].tolist() == [1, 2, 3]
    assert decoded([[1, 2, 3], [4, 5, 6]], IDS).feeds["ids"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert decoded([[1, 0.5, 2]], HALVES).feeds["x"].dtype == np.float16
    assert decoded([]).feeds["x"].shape == (0, 2, 3)
    assert decoded([], PAIR).form.rows == 0
    assert decoded([0] * LIMITS.max_rows, SINGLE).form.rows == LIMITS.max_rows


def test_a_model_without_a_batch_axis_takes_one_instance() -> None:
    """The instance is the whole input."""
    for instance in ([[1, 2], [3, 4]], [1, 2, 3, 4], {"x": [[1, 2], [3, 4]]}):
        got = decoded([instance], WHOLE)
        assert got.feeds["x"].tolist() == [[1, 2], [3, 4]]
        assert got.form.rows == 1
    with pytest.raises(RequestError, match="instances: expected 1, since the model has no batch axis, got 2"):
        decoded([[1, 2, 3, 4]] * 2, WHOLE)


@pytest.mark.parametrize(
    ("instances", "model", "message"),
    [
        (3, ROWS, "instances: expected an array, got a number"),
        (None, ROWS, "instances: expected an array, got null"),
        ([[1, 2]], ROWS, r"instances\[0\]: expected 6 values, got 2"),
        ([[[1, 2], [3, 4]]], ROWS, r"instances\[0\]\[0\]: expected 3 values, got 2"),
        ([[[[1]]]], ROWS, r"instances \(x\): expected rows nested as \[2, 3\], or flat, got 3 levels"),
        ([1, 2], ROWS, r"instances\[0\]: expected an array nested as \[2, 3\], or flat, got a number"),
        (
            [{"x": "a"}],
            ROWS,
            r"instances\[0\].x: expected an array nested as .*, got a string",
        ),
        ([[0] * 7, [0] * 6], ROWS, r"instances\[0\]: expected 6 values, got 7"),
        ([["a", "b"]], ROWS, r"instances\[0\]\[0\]: expected a number, got a string"),
        ([[[1, 2, 3]] * 2, [[1, 2, 3], [1]]], ROWS, r"instances\[1\]\[1\]: expected 3 values, got 1"),
        ([[[1, 2, 3]] * 2, [[1, 2, 3]]], ROWS, r"instances\[1\]: expected 2 arrays, got 1"),
        ([[0] * 6, 3], ROWS, r"instances\[1\]: expected an array of 6 values, got a number"),
        (
            [{"a": [1, 2], "b": 1}, {"a": [1, None], "b": 1}],
            PAIR,
            r"instances\[1\].a\[1\]: .*, got null",
        ),
        ([[0] * 6, [0] * 5], ROWS, r"instances\[1\]: expected 6 values, got 5"),
        ([[0] * 6, [[0] * 6]], ROWS, r"instances\[1\]\[0\]: expected a number, got an array"),
        ([[0, 1, 2, 3, 4, [5]]], ROWS, r"instances\[0\]\[5\]: expected a number, got an array"),
        ([[0] * 5 + ["a"]], ROWS, r"instances\[0\]\[5\]: expected a number, got a string"),
        ([[0] * 5 + [None]], ROWS, r"instances\[0\]\[5\]: expected a number, got null"),
        (["a"], SINGLE, r"instances\[0\]: expected a number, got a string"),
        ([[1, 2], [3]], IDS, r"instances\[1\]: expected 2 values, got 1"),
        ([[1, 2.5]], IDS, r"instances\[0\]\[1\]: expected whole numbers from .* \(INT64\), got 2.5"),
        (
            [[1, 1e5, 2]],
            HALVES,
            r"instances\[0\]\[1\]: expected numbers of at most 65504 .*, got 100000.0",
        ),
        ([[1, 2]], PAIR, r"instances\[0\]: expected an object with a, b, got an array"),
        ([{"a": [1, 2]}], PAIR, r"instances\[0\]: expected an object with a, b, and it lacks 'b'"),
        ([{"a": [1, 2], "b": 1, "c": 2}], PAIR, r"instances\[0\]: expected an object with a, b, got 'c'"),
        ([{"a": [1, 2], "b": 1.0}], PAIR, r"instances\[0\].b: expected whole numbers from .*, got 1.0"),
        ([{"x": [0] * 6}, [0] * 6], ROWS, r"instances\[1\]: expected an object, got an array"),
        ([[0] * 6, {"x": [0] * 6}], ROWS, r"instances\[1\]: expected an array of 6 values, got an object"),
        ([[0] * 6] * 101, ROWS, r"instances: expected at most 100 rows \(--max-rows\), got 101"),
        ([[[[[[[[1]]]]]]]], ROWS, r"body: expected JSON nested at most 8 deep \(--max-depth\), got 9"),
    ],
)
def test_invalid_instances_are_refused(instances: Any, model: Signature, message: str) -> None:
    """The message names the input, the expected value and the actual value."""
    with pytest.raises(RequestError, match=message) as caught:
        decoded(instances, model)
    assert caught.value.status == 400


def test_rows_may_name_their_features() -> None:
    """In any order; rows without names and rows by the name of the input stay possible."""
    expected = [[1, 2.5, 3], [4, 5, 6]]
    for instances in (
        [{"hue": 3, "alcohol": 1, "ash [g]": 2.5}, {"alcohol": 4, "ash [g]": 5, "hue": 6}],
        [{"x": [1, 2.5, 3]}, {"x": [4, 5, 6]}],
        [[1, 2.5, 3], [4, 5, 6]],
    ):
        got = decoded(instances, TABLE)
        np.testing.assert_array_equal(got.feeds["x"], np.float32(expected), strict=True)
    assert decoded([], TABLE).form.rows == 0
    whole = replace(signature(Tensor("x", "int64", ("batch", 1))), features=("x",))
    assert decoded([{"x": 2**60 + 1}], whole).feeds["x"].tolist() == [[2**60 + 1]]


GOOD_ROW = {"alcohol": 1, "ash [g]": 2, "hue": 3}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"Alcohl": 1, "ash [g]": 2, "hue": 3},
            "instances[1]: expected only the model's 3 features, got 'Alcohl'; did you mean 'alcohol'?",
        ),
        (
            {"Alcohl": 1, "ash": 2, "hue_": 3},
            "instances[1]: expected only the model's 3 features, got 'Alcohl', 'ash', 'hue_'; "
            "for 'Alcohl', did you mean 'alcohol'? "
            "For 'ash', did you mean 'ash [g]'? For 'hue_', did you mean 'hue'?",
        ),
        (GOOD_ROW | {"class": 1}, "instances[1]: expected only the model's 3 features, got 'class'"),
        (
            {"hue": 3},
            "instances[1]: expected all 3 features of the model, and 'alcohol', 'ash [g]' are missing",
        ),
        (GOOD_ROW | {"hue": "a"}, "instances[1], feature 'hue': expected a number, got a string"),
        (GOOD_ROW | {"hue": None}, "instances[1], feature 'hue': expected a number, got null"),
        (GOOD_ROW | {"hue": True}, "instances[1], feature 'hue': expected a number, got a boolean"),
        (GOOD_ROW | {"hue": [3]}, "instances[1], feature 'hue': expected a number, got an array"),
        (
            GOOD_ROW | {"hue": 1e39},
            "instances[1], feature 'hue': "
            "expected numbers of at most 3.4028235e+38 in size (FP32), got 1e+39",
        ),
        ([1, 2, 3], "instances[1]: expected an object, got an array"),
    ],
)
def test_unfit_named_rows_are_refused(row: Any, message: str) -> None:
    """The message names the row and the feature."""
    with pytest.raises(RequestError) as caught:
        decoded([GOOD_ROW, row], TABLE)
    assert str(caught.value) == message


def test_the_first_named_row_is_checked_too() -> None:
    """Its values say how deeply rows are nested, so an array there must not pass for a row."""
    with pytest.raises(
        RequestError, match=r"instances\[0\], feature 'alcohol': expected a number, got an array"
    ):
        decoded([GOOD_ROW | {"alcohol": [1]}], TABLE)


def test_a_feature_that_comes_twice_is_refused() -> None:
    text = b'{"instances": [{"alcohol": 1, "ash [g]": 2, "hue": 3, "hue": 4}]}'
    with pytest.raises(RequestError, match=r"instances\[0\]: expected each feature once, got 'hue' twice"):
        decode_instances(text, TABLE, LIMITS)


def test_a_missing_key_is_not_called_null() -> None:
    for text in (b"{}", b'{"inputs": []}'):
        with pytest.raises(RequestError, match="instances: expected an array, got no such key"):
            decode_instances(text, ROWS, LIMITS)


def test_a_repeated_key_is_refused() -> None:
    """In the body and in a row."""
    for text in (b'{"instances": [], "instances": []}', b'{"instances": [{"x": [0], "x": [0]}]}'):
        with pytest.raises(RequestError, match="expected each key once"):
            decode_instances(text, ROWS, LIMITS)


def test_the_size_of_json_is_limited() -> None:
    """The limit is the same as for infer."""
    with pytest.raises(TooLargeError, match="expected at most 20 bytes of JSON"):
        decode_instances(b'{"instances": [[1, 2, 3]]}', ROWS, RequestLimits(max_json_bytes=20))


def test_rows_may_be_texts() -> None:
    """Alone or by the input's name; rows of ids are read as before."""
    texts = ["AB C", "", "[1]"]
    for instances in (texts, [{"ids": text} for text in texts]):
        got = decoded(instances, TEXTS)
        np.testing.assert_array_equal(got.feeds["ids"], encoder().encode(texts), strict=True)
        assert (got.form.rows, got.form.has_texts) == (3, True)
    ids = [[[1, 2, 0], [3, 0, 0]]]
    assert decoded(ids, TEXTS).feeds["ids"].tolist() == ids
    assert decoded([], TEXTS).feeds["ids"].shape == (0, 0, 3)
    two = replace(
        signature(Tensor("ids", "int64", ("batch", "words", 3)), Tensor("b", "int64", ("batch",))),
        text=encoder(),
    )
    got = decoded([{"ids": "A", "b": 5}, {"b": 6, "ids": "B"}], two)
    assert got.feeds["ids"].tolist() == [[[1, 0, 0], [0, 0, 0]], [[2, 0, 0], [0, 0, 0]]]
    assert got.feeds["b"].tolist() == [5, 6]


@pytest.mark.parametrize(
    ("instances", "model", "message"),
    [
        (["A", [1]], TEXTS, "instances[1]: expected a string, got an array"),
        ([{"ids": "A"}, {"ids": 3}], TEXTS, "instances[1]: expected a string, got a number"),
        (["A"], IDS, "expected an array"),
        (["A"] * 101, TEXTS, "instances: expected at most 100 rows (--max-rows), got 101"),
    ],
)
def test_rows_that_are_not_all_texts_are_refused(instances: Any, model: Signature, message: str) -> None:
    with pytest.raises(RequestError, match=re.escape(message)):
        decoded(instances, model)
