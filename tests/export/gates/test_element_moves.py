"""Index maps of operators that move elements, compared with ONNX's reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from export.gates.element_moves import move_indices
from export.gates.instrument import infer_shapes

SHAPE = (2, 6, 4)
CASES: list[tuple[str, dict[str, Any], list[list[int]]]] = [
    ("Identity", {}, []),
    ("Transpose", {"perm": [2, 0, 1]}, []),
    ("Transpose", {}, []),
    ("Unsqueeze", {}, [[0, -1]]),
    ("Reshape", {}, [[2, 24]]),
    ("Reshape", {}, [[2, 2, 3, 4]]),
    ("Reshape", {}, [[2, 6, 2, 2]]),
    ("Reshape", {}, [[12, 1, 4]]),
    ("Flatten", {"axis": 1}, []),
    ("Expand", {}, [[3, 2, 6, 4]]),
    ("Slice", {}, [[1], [5], [1]]),
    ("Slice", {}, [[5, 0], [-7, 3], [1, 2], [-2, 1]]),
    ("Slice", {}, [[-3], [9223372036854775807], [1]]),
    ("Gather", {"axis": 1}, [[3, 0, 3]]),
    ("Split", {"axis": 1}, [[1, 2, 3]]),
    ("Split", {"axis": -1, "num_outputs": 3}, []),
]


def single_node_graph(
    op: str, attributes: dict[str, Any], inputs: list[list[int]]
) -> tuple[ir.Model, Any, list[str]]:
    names = [f"i{number}" for number in range(len(inputs))]
    outputs = ["y0", "y1", "y2"] if op == "Split" else ["y0"]
    data = [
        numpy_helper.from_array(np.array(content), name) for content, name in zip(inputs, names, strict=True)
    ]
    x = helper.make_tensor_value_info("x", TensorProto.INT64, SHAPE)
    y = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in outputs]
    node = helper.make_node(op, ["x", *names], outputs, **attributes)
    proto = helper.make_model(
        helper.make_graph([node], "g", [x], y, data), opset_imports=[helper.make_opsetid("", 18)]
    )
    model = ir.from_proto(proto)
    infer_shapes(model)
    return model, proto, outputs


@pytest.mark.parametrize(("op", "attributes", "inputs"), CASES)
@pytest.mark.parametrize("axes", [(1,), (2,), (1, 2), (0, 1, 2)])
def test_moved_indices_equal_those_of_onnx(
    op: str, attributes: dict[str, Any], inputs: list[list[int]], axes: tuple[int, ...]
) -> None:
    """The map of an index that is constant along some axes equals, broadcast, what ONNX computes."""
    model, proto, outputs = single_node_graph(op, attributes, inputs)
    sizes = [size if axis in axes else 1 for axis, size in enumerate(SHAPE)]
    index = np.arange(np.prod(sizes)).reshape(sizes)
    full_index = np.broadcast_to(index, SHAPE)
    (node,) = model.graph
    for value, expected in zip(
        node.outputs, ReferenceEvaluator(proto).run(outputs, {"x": full_index}), strict=True
    ):
        moved = move_indices(node, value, index)
        assert moved is not None
        assert moved.ndim == expected.ndim
        np.testing.assert_array_equal(np.broadcast_to(moved, expected.shape), expected)


def test_a_reshape_over_an_unknown_size_is_not_followed() -> None:
    """Only axes after the dynamic one are followed."""
    model, _, _ = single_node_graph("Reshape", {}, [[12, 1, 4]])
    (node,) = model.graph
    model.graph.inputs[0].shape = ir.Shape(["batch", 6, 4])
    node.outputs[0].shape = ir.Shape([None, 1, 4])
    assert move_indices(node, node.outputs[0], np.arange(6).reshape(1, 6, 1)) is None
    last = move_indices(node, node.outputs[0], np.arange(4).reshape(1, 1, 4))
    np.testing.assert_array_equal(last, np.arange(4).reshape(1, 1, 4))
