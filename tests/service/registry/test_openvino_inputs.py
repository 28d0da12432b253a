"""Models whose inputs may not fit are refused on OpenVINO, which would answer them all the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.support.openvino import replace_openvino
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import load_model, put_model, with_manifest
from turnpike.service.artifact.runtime import open_model
from turnpike.service.errors import ModelFileError
from turnpike.service.registry.openvino_inputs import check_openvino_inputs

TABLE = numpy_helper.from_array(np.ones((8, 4), np.float32), "table")
KERNEL = numpy_helper.from_array(np.ones((1, 1, 5), np.float32), "kernel")
LOOK_UP = [helper.make_node("Gather", ["table", "x"], ["y"])]
TO_IDS = [helper.make_node("Cast", ["x"], ["ids"], to=TensorProto.INT32)]


def graph(dtype: int, shape: Sequence[int | str], nodes: Sequence[NodeProto]) -> bytes:
    """A model with one input x of this type."""
    x = helper.make_tensor_value_info("x", dtype, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    names = {name for node in nodes for name in node.input}
    weights = [weight for weight in (TABLE, KERNEL) if weight.name in names]
    opset = helper.make_opsetid("", 18)
    model = helper.make_model(
        helper.make_graph(nodes, "graph", [x], [y], weights), opset_imports=[opset], ir_version=9
    )
    return bytes(model.SerializeToString())


def to_floats(**options: Any) -> list[NodeProto]:
    return [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT, **options)]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (graph(TensorProto.INT64, ["n"], LOOK_UP), r"x: expected numbers of 32 bits .*, got x:int64\[n\]"),
        # without a table, too: a large number would lose its upper bits
        (graph(TensorProto.INT64, ["n", 4], to_floats()), "x: expected numbers of 32 bits or less"),
        (graph(TensorProto.DOUBLE, ["n", 4], to_floats()), "x: expected numbers of 32 bits or less"),
        (graph(TensorProto.INT32, ["n"], LOOK_UP), "x: expected an input that takes .* refuses -2147483648"),
        (
            graph(TensorProto.UINT8, ["n"], [*TO_IDS, helper.make_node("Gather", ["table", "ids"], ["y"])]),
            "x: expected an input that takes all numbers, got one that refuses 255",
        ),
        (
            graph(TensorProto.FLOAT, ["n"], [*TO_IDS, helper.make_node("Gather", ["table", "ids"], ["y"])]),
            "x: expected an input that takes all numbers, got one that refuses -1000000000",
        ),
        (
            graph(TensorProto.FLOAT, ["n", 1, "length"], [helper.make_node("Conv", ["x", "kernel"], ["y"])]),
            r"x: expected fixed sizes behind the batch, got x:float32\[n,1,length\]",
        ),
        (
            graph(TensorProto.FLOAT, ["n", 1, 2], [helper.make_node("Conv", ["x", "kernel"], ["y"])]),
            "inputs: expected some random row to be accepted, got none",
        ),
    ],
)
def test_inputs_that_may_not_fit_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=f"^a.onnx: {message}") as error:
        check_openvino_inputs(open_model(data), "n", "a.onnx")
    assert "serve it with --device cpu" in str(error.value)
    assert error.value.public_message == "its device would not refuse inputs that do not fit"


@pytest.mark.parametrize(
    "data",
    [
        graph(TensorProto.FLOAT, ["n", 1, 8], [helper.make_node("Conv", ["x", "kernel"], ["y"])]),
        graph(TensorProto.FLOAT, [3, 4], [helper.make_node("Sigmoid", ["x"], ["y"])]),
        *(
            graph(dtype, ["n", 4], to_floats())
            for dtype in (TensorProto.UINT8, TensorProto.INT32, TensorProto.FLOAT16, TensorProto.BOOL)
        ),
    ],
)
def test_inputs_that_take_all_numbers_are_accepted(data: bytes) -> None:
    check_openvino_inputs(open_model(data), "n", "a.onnx")


def test_the_loader_checks_the_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU provider stands in for OpenVINO's, and another network is still served."""
    replace_openvino(monkeypatch)
    options: dict[str, Any] = {"device": "openvino", "allow_unverified": True}
    assert load_model(put_model(tmp_path, data=with_manifest(highway())), **options).runtime.cpu_runtime
    words = put_model(tmp_path, "words", data=graph(TensorProto.INT32, ["n"], LOOK_UP))
    load_model(words, allow_unverified=True)
    with pytest.raises(ModelFileError, match="OpenVINO does not refuse inputs that do not fit"):
        load_model(words, **options)
