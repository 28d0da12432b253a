"""Detail: what a caller wants of the gates, how large it is, and when that is too much."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from service.artifact.manifest import Gate
from service.artifact.runtime import Tensor
from service.errors import RequestError, TooLarge
from service.gates.query import Detail, Sizes, block_names, detail, expect_size, tensors
from service.inference_types import Inference
from service.registry.model import Signature

GATES = tuple(
    Gate(name=name, layer=n, kind="coupled", carry="identity", unit_axis=-1, units=3, output=output)
    for n, (name, output) in enumerate([("a", "y"), ("b", "y"), ("c", None)])
)


def test_the_address_and_the_parameters_say_it() -> None:
    """Nothing asked is a summary; the request's own parameters go before the address."""
    assert detail(b"", {}) == Detail("summary", blocks=False, binary=False)
    assert detail(b"detail=rows&blocks=true&binary=1", {}) == Detail("rows", blocks=True, binary=True)
    assert detail(b"detail=rows&blocks=true", {"detail": "units", "blocks": False}) == Detail("units")
    assert detail(b"", {"binary_data_output": True}) == Detail(binary=True)
    assert detail(b"", {"binary_data_output": True, "binary": False}) == Detail()
    assert detail(b"", {"others": 1}) == Detail()


@pytest.mark.parametrize(
    ("query", "parameters", "says"),
    [
        (b"detial=rows", {}, "query: expected detail, blocks or binary, got 'detial'"),
        (b"detail=all", {}, "detail: expected one of summary, units, rows, got 'all'"),
        (b"detail", {}, "detail: expected one of summary, units, rows, got ''"),
        (b"blocks=yes", {}, "blocks: expected true or false, got 'yes'"),
        (b"", {"detail": 1}, "detail: expected one of summary, units, rows, got '1'"),
        (b"", {"blocks": "true"}, "blocks: expected true or false, got 'true'"),
        (b"\xff=\xff", {}, "query: expected detail"),
    ],
)
def test_what_makes_no_sense_is_named(query: bytes, parameters: Mapping[str, Any], says: str) -> None:
    """A misspelt wish is refused, not passed over."""
    with pytest.raises(RequestError, match=says):
        detail(query, parameters)


def test_sizes_are_told_from_the_shapes() -> None:
    """Fixed and named dimensions, products of names, and several tensors together."""
    hidden = {
        "a": Tensor("a", "float32", ("batch", 5)),
        "b": Tensor("b", "float16", ("words*batch", 7)),
        "c": Tensor("c", "float32", ("?", 5)),
        "d": Tensor("d", "float32", (2, 3)),
        "e": Tensor("e", "float32", ("elsewhere", 3)),
    }
    inputs = {"ids": Tensor("ids", "int64", ("batch", "words", "?"))}
    signature = Signature(inputs, {}, hidden, "batch", frozenset())
    inference = Inference({"ids": np.zeros((3, 4, 9), np.int64)}, 3, ())
    assert Sizes("a", signature).of(inference) == 3 * 5 * 4
    assert Sizes("aab", signature).of(inference) == 2 * 3 * 5 * 4 + 4 * 3 * 7 * 2
    assert Sizes("d", signature).of(inference) == 24
    assert Sizes("ce", signature).of(inference) == 0


def test_too_much_is_refused_with_both_numbers() -> None:
    """In JSON a number takes about three times its bytes."""
    expect_size(Detail("rows", binary=True), 100, 100)
    expect_size(Detail("rows"), 33, 100)
    expect_size(Detail("summary"), 100, 100)
    with pytest.raises(TooLarge, match="expected at most 100 bytes of them, .* about 102; .* detail=summary"):
        expect_size(Detail("rows"), 34, 100)
    with pytest.raises(TooLarge, match="about 102; ask with fewer rows$"):
        expect_size(Detail("summary", blocks=True), 34, 100)
    with pytest.raises(TooLarge):
        expect_size(Detail("units"), 101, 100)


def test_tensors_by_what_is_asked() -> None:
    """A summary has none; units have two a gate, rows one; a layer's output stands once."""
    arrays = {name: np.arange(6, dtype=np.float32).reshape(2, 3) for name in "abcy"}
    assert block_names(GATES) == ("y",)

    def named(wish: Detail, rows: int = 2) -> list[str]:
        return [name for name, _ in tensors(wish, GATES, ("a", "b", "c"), arrays, rows)]

    assert named(Detail()) == []
    assert named(Detail("rows")) == ["a", "b", "c"]
    assert named(Detail("rows", blocks=True)) == ["a", "b", "c", "y"]
    assert named(Detail(blocks=True)) == ["y"]
    assert named(Detail("units")) == [f"{name}.unit_{what}" for name in "abc" for what in ("mean", "sd")]
    assert named(Detail("units"), rows=0) == []
    found = dict(tensors(Detail("units"), GATES, (), arrays, 2))
    assert found["a.unit_mean"].tolist() == [1.5, 2.5, 3.5]
    assert found["a.unit_sd"].tolist() == [1.5, 1.5, 1.5]
