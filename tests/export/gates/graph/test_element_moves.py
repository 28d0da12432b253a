"""Index maps of operators that move elements, compared with ONNX's reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from turnpike.export.gates.graph.element_moves import move_indices
from turnpike.export.gates.graph.shapes import infer_shapes

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
    op: str,
    attributes: dict[str, Any],
    inputs: list[list[int]],
    *,
    shape: tuple[int, ...] = SHAPE,
    opset: int = 18,
) -> tuple[ir.Model, Any, list[str]]:
    names = [f"i{number}" for number in range(len(inputs))]
    outputs = ["y0", "y1", "y2"] if op == "Split" else ["y0"]
    data = [
        numpy_helper.from_array(np.array(content), name) for content, name in zip(inputs, names, strict=True)
    ]
    x = helper.make_tensor_value_info("x", TensorProto.INT64, shape)
    y = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in outputs]
    node = helper.make_node(op, ["x", *names], outputs, **attributes)
    proto = helper.make_model(
        helper.make_graph([node], "g", [x], y, data), opset_imports=[helper.make_opsetid("", opset)]
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


@pytest.mark.parametrize(
    ("op", "attributes", "inputs", "opset"),
    [
        ("Squeeze", {}, [], 18),
        ("Squeeze", {}, [[1]], 18),
        ("Squeeze", {}, [[-1]], 18),
        ("Squeeze", {}, [], 11),
        ("Squeeze", {"axes": [1]}, [], 11),
        ("Unsqueeze", {}, [[0, 3]], 18),
        ("Unsqueeze", {"axes": [0, 3]}, [], 11),
        ("Reshape", {}, [[8]], 18),
        ("Reshape", {}, [[1, 2, 4]], 18),
    ],
)
def test_axes_of_size_one_are_removed_and_added(
    op: str, attributes: dict[str, Any], inputs: list[list[int]], opset: int
) -> None:
    """The axes are an input in new opsets and an attribute in old ones; without axes, Squeeze takes all."""
    shape = (2, 1, 4, 1)
    model, proto, outputs = single_node_graph(op, attributes, inputs, shape=shape, opset=opset)
    (node,) = model.graph
    index = np.arange(8).reshape(shape)
    moved = move_indices(node, node.outputs[0], index)
    assert moved is not None
    np.testing.assert_array_equal(moved, ReferenceEvaluator(proto).run(outputs, {"x": index})[0], strict=True)


@pytest.mark.parametrize(("before", "after"), [((1,), (1, 1, 1)), ((1, 1, 1), (1,)), ((1, 3), (1, 1, 1, 3))])
def test_a_reshape_that_only_adds_or_removes_axes_is_followed(
    before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    """A gate may have a single unit, so that every axis has size one."""
    model, _, _ = single_node_graph("Reshape", {}, [list(after)], shape=before)
    (node,) = model.graph
    index = np.arange(np.prod(before)).reshape(before)
    np.testing.assert_array_equal(
        move_indices(node, node.outputs[0], index), index.reshape(after), strict=True
    )


@pytest.mark.parametrize(("before", "after"), [(9, 3), (3, 9)])
def test_a_reshape_between_shapes_that_contradict_each_other_is_not_followed(before: int, after: int) -> None:
    """A graph may declare wrong shapes; it is read without an error."""
    model, _, _ = single_node_graph("Reshape", {}, [[before]], shape=(before,))
    (node,) = model.graph
    node.outputs[0].shape = ir.Shape([after])
    assert move_indices(node, node.outputs[0], np.arange(before)) is None


def test_a_reshape_over_an_unknown_size_is_not_followed() -> None:
    """Only axes after the dynamic one are followed."""
    model, _, _ = single_node_graph("Reshape", {}, [[12, 1, 4]])
    (node,) = model.graph
    model.graph.inputs[0].shape = ir.Shape(["batch", 6, 4])
    node.outputs[0].shape = ir.Shape([None, 1, 4])
    assert move_indices(node, node.outputs[0], np.arange(6).reshape(1, 6, 1)) is None
    last = move_indices(node, node.outputs[0], np.arange(4).reshape(1, 1, 4))
    np.testing.assert_array_equal(last, np.arange(4).reshape(1, 1, 4))
