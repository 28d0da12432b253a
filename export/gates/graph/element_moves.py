"""Index maps of operators that only move elements: Reshape, Transpose, Slice, Split, Gather and others.

A gate's bias often reaches the gate through such operators, for example the second half of one Linear's bias.
`move_indices` follows an array of element indices through a node, in NumPy, and so tells which element of the
bias belongs to which element of the gate.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from turnpike.export.gates.graph.nodes import (
    attribute,
    axes_of,
    constant_array,
    constant_integers,
    first_input,
)

Indices = np.ndarray[Any, np.dtype[np.int64]]

MOVE_OPS = frozenset(
    {
        "Identity",
        "Cast",
        "CastLike",
        "Dropout",
        "Transpose",
        "Unsqueeze",
        "Squeeze",
        "Reshape",
        "Flatten",
        "Expand",
        "Slice",
        "Split",
        "Gather",
    }
)


def shape_of(value: ir.Value) -> list[int | None] | None:
    """The shape, with None for a dynamic dimension; None if even the rank is unknown."""
    if value.shape is None:
        return None
    return [dim if isinstance(dim, int) else None for dim in value.shape]


def before_moves(value: ir.Value) -> ir.Value:
    """The value before its elements were moved."""
    while (node := value.producer()) is not None and node.op_type in MOVE_OPS:
        value = first_input(node)
    return value


def move_indices(node: ir.Node, output: ir.Value, index: Indices) -> Indices | None:
    """Follow an index map through a node of MOVE_OPS; None if the result cannot be known.

    Args:
        node: The node whose first input the map belongs to.
        output: The output of the node to follow it to.
        index: The map, with the rank of the node's first input, and size 1 along axes on which it is
            constant.
    """
    match node.op_type:
        case "Identity" | "Cast" | "CastLike" | "Dropout":
            return index
        case "Transpose":
            return np.transpose(index, attribute(node, "perm"))
        case "Unsqueeze":
            axes = axes_of(node)
            return None if axes is None else np.expand_dims(index, tuple(axes))
        case "Squeeze":
            return _through_squeeze(node, index)
        case "Reshape" | "Flatten":
            return _through_reshape(node, output, index)
        case "Expand":
            shape = shape_of(output)
            return None if shape is None else index.reshape((1,) * (len(shape) - index.ndim) + index.shape)
        case "Slice":
            return _through_slice(node, index)
        case "Split":
            return _through_split(node, output, index)
        case "Gather":
            return _through_gather(node, index)
    return None


def _through_squeeze(node: ir.Node, index: Indices) -> Indices | None:
    axes = axes_of(node)
    if axes is None and (shape := shape_of(first_input(node))) is not None:
        axes = [axis for axis, size in enumerate(shape) if size == 1]
    return None if axes is None else np.squeeze(index, tuple(axes))


def _through_reshape(node: ir.Node, output: ir.Value, index: Indices) -> Indices | None:
    before, after = shape_of(first_input(node)), shape_of(output)
    if before is None or after is None:
        return None
    # Match the axes of both shapes in runs, from the last axis on: [2, 6, 4] -> [12, 1, 4] is 4 -> 4, then
    # 2 * 6 -> 12 * 1. A run along which the map is constant stays constant; other runs are written out.
    new_shape: list[int] = []
    index_so_far = index
    i, j = len(before), len(after)
    while i > 0 and j > 0:
        # the shortest run of axes on either side, ending at i and j, with the same number of elements
        left, right = before[i - 1], after[j - 1]
        a, b = i - 1, j - 1
        while left is not None and right is not None and left != right:
            if left < right and a > 0:
                a -= 1
                left = None if (size := before[a]) is None else left * size
            elif left > right and b > 0:
                b -= 1
                right = None if (size := after[b]) is None else right * size
            else:
                break
        if left is None or right is None or left != right:
            break
        if all(size == 1 for size in index_so_far.shape[a:i]):
            new_shape[:0] = [1] * (j - b)
        else:
            full = [
                *index_so_far.shape[:a],
                *(size or 0 for size in before[a:i]),
                *index_so_far.shape[i:],
            ]
            index_so_far = np.broadcast_to(index_so_far, full)
            new_shape[:0] = [size or 0 for size in after[b:j]]
        i, j = a, b
    # the axes left over hold a dynamic dimension: the map must be constant along them
    if any(size != 1 for size in index_so_far.shape[:i]):
        return None
    return index_so_far.reshape([1] * j + new_shape)


def _through_slice(node: ir.Node, index: Indices) -> Indices | None:
    # bounds are inputs in new opsets, attributes in old ones
    if len(node.inputs) > 1:
        starts, ends = constant_integers(node.inputs[1]), constant_integers(node.inputs[2])
        axes = constant_integers(node.inputs[3]) if len(node.inputs) > 3 else None
        has_steps = len(node.inputs) > 4 and node.inputs[4] is not None
        steps = constant_integers(node.inputs[4]) if has_steps else None
        if has_steps and steps is None:
            return None
    else:
        starts, ends = attribute(node, "starts"), attribute(node, "ends")
        axes, steps = attribute(node, "axes"), None
    if starts is None or ends is None:
        # computed bounds: harmless only if the map is constant
        return index if index.size == 1 else None
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = number if axes is None else axes[number]
        step = 1 if steps is None else steps[number]
        if index.shape[axis] > 1:
            selection: list[slice] = [slice(None)] * index.ndim
            stop = None if step < 0 and end < -index.shape[axis] else end
            selection[axis] = slice(start, stop, step)
            index = index[tuple(selection)]
    return index


def _through_split(node: ir.Node, output: ir.Value, index: Indices) -> Indices | None:
    axis = attribute(node, "axis", 0)
    size = index.shape[axis]
    if size == 1:
        return index
    lengths = constant_integers(node.inputs[1]) if len(node.inputs) > 1 else None
    lengths = lengths or attribute(node, "split")
    if lengths is None:
        # equal parts, of which the last may be shorter
        length = -(-size // len(node.outputs))
        lengths = [min(length, size - length * number) for number in range(len(node.outputs))]
    number = node.outputs.index(output)
    start = sum(lengths[:number])
    return np.take(index, range(start, start + lengths[number]), axis=axis)


def _through_gather(node: ir.Node, index: Indices) -> Indices | None:
    axis = attribute(node, "axis", 0)
    axis += index.ndim if axis < 0 else 0
    where = node.inputs[1]
    chosen = constant_array(where)
    if index.shape[axis] > 1:
        return None if chosen is None else np.take(index, chosen, axis=axis)
    # constant along the axis: only the rank of what is gathered matters
    rank = chosen.ndim if chosen is not None else None
    if rank is None and where is not None and where.shape is not None:
        rank = len(where.shape)
    if rank is None:
        return None
    return index.reshape(index.shape[:axis] + (1,) * rank + index.shape[axis + 1 :])
