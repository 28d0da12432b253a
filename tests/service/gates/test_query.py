"""Tests of the options of the gates endpoint, and of the sizes of responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from turnpike.service.artifact.manifest import Gate
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.errors import RequestError, TooLargeError
from turnpike.service.gates.query import (
    GateQuery,
    OutputSizes,
    block_names,
    check_response_size,
    parse_gate_query,
    requested_tensors,
)
from turnpike.service.inference_types import FeedLayout, InferenceRequest, RequestForm

GATES = tuple(
    Gate(name=name, layer=n, kind="coupled", carry="identity", unit_axis=-1, units=3, output=output)
    for n, (name, output) in enumerate([("a", "y"), ("b", "y"), ("c", None)])
)


def test_options_come_from_the_url_and_the_parameters() -> None:
    """The request's own parameters have precedence over the URL."""
    assert parse_gate_query(b"", {}) == GateQuery("summary", blocks=False, binary=False)
    assert parse_gate_query(b"detail=rows&blocks=true&binary=1", {}) == GateQuery(
        "rows", blocks=True, binary=True
    )
    assert parse_gate_query(b"detail=rows&blocks=true", {"detail": "units", "blocks": False}) == GateQuery(
        "units"
    )
    assert parse_gate_query(b"", {"binary_data_output": True}) == GateQuery(binary=True)
    assert parse_gate_query(b"", {"binary_data_output": True, "binary": False}) == GateQuery()
    assert parse_gate_query(b"", {"others": 1}) == GateQuery()


@pytest.mark.parametrize(
    ("query", "parameters", "message"),
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
def test_invalid_options_are_refused(query: bytes, parameters: Mapping[str, Any], message: str) -> None:
    """A misspelt option is an error."""
    with pytest.raises(RequestError, match=message):
        parse_gate_query(query, parameters)


def test_response_sizes_follow_from_the_shapes() -> None:
    """Fixed and named dimensions, products of names, and several tensors."""
    hidden = {
        "a": Tensor("a", "float32", ("batch", 5)),
        "b": Tensor("b", "float16", ("words*batch", 7)),
        "c": Tensor("c", "float32", ("?", 5)),
        "d": Tensor("d", "float32", (2, 3)),
        "e": Tensor("e", "float32", ("elsewhere", 3)),
    }
    inputs = {"ids": Tensor("ids", "int64", ("batch", "words", "?"))}
    signature = Signature(inputs, {}, hidden, "batch", frozenset())
    feeds = {"ids": np.zeros((3, 4, 9), np.int64)}
    inference = InferenceRequest(RequestForm(3, (), FeedLayout.of(feeds)), feeds)
    assert OutputSizes("a", signature).total_bytes(inference) == 3 * 5 * 4
    assert OutputSizes("aab", signature).total_bytes(inference) == 2 * 3 * 5 * 4 + 4 * 3 * 7 * 2
    assert OutputSizes("d", signature).total_bytes(inference) == 24
    assert OutputSizes("ce", signature).total_bytes(inference) == 0


def test_a_response_over_the_limit_is_refused() -> None:
    check_response_size(GateQuery("rows", binary=True), 100, 100)
    check_response_size(GateQuery("rows"), 33, 100)
    check_response_size(GateQuery("summary"), 100, 100)
    with pytest.raises(
        TooLargeError,
        match=r"expected at most 100 bytes of them \(--max-gates\), .* about 102; .* detail=summary",
    ):
        check_response_size(GateQuery("rows"), 34, 100)
    with pytest.raises(TooLargeError, match="about 102; ask with fewer rows$"):
        check_response_size(GateQuery("summary", blocks=True), 34, 100)
    with pytest.raises(TooLargeError):
        check_response_size(GateQuery("units"), 101, 100)


def test_each_detail_level_has_its_tensors() -> None:
    """A summary has no tensors; units have two for each gate, rows one; each layer's output comes once."""
    arrays = {name: np.arange(6, dtype=np.float32).reshape(2, 3) for name in "abcy"}
    assert block_names(GATES) == ("y",)

    def named(query: GateQuery, rows: int = 2) -> list[str]:
        return [name for name, _ in requested_tensors(query, GATES, ("a", "b", "c"), arrays, rows)]

    assert named(GateQuery()) == []
    assert named(GateQuery("rows")) == ["a", "b", "c"]
    assert named(GateQuery("rows", blocks=True)) == ["a", "b", "c", "y"]
    assert named(GateQuery(blocks=True)) == ["y"]
    assert named(GateQuery("units")) == [f"{name}.unit_{what}" for name in "abc" for what in ("mean", "sd")]
    assert named(GateQuery("units"), rows=0) == []
    tensors = dict(requested_tensors(GateQuery("units"), GATES, (), arrays, 2))
    assert tensors["a.unit_mean"].tolist() == [1.5, 2.5, 3.5]
    assert tensors["a.unit_sd"].tolist() == [1.5, 1.5, 1.5]
