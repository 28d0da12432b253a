"""What operators that only move elements about do to an array, in NumPy: which element ends where."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from export.gates.graph_view import attribute, axes_of, constant_array, constant_integers, first_input

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
    """The shape, None for a dimension that varies; None where even the rank is unknown."""
    if value.shape is None:
        return None
    return [dim if isinstance(dim, int) else None for dim in value.shape]


def move_indices(node: ir.Node, output: ir.Value, index: Indices) -> Indices | None:
    """Where the elements `index` of a node's first input are in its output; None where unknown.

    `index` has the rank of that input, and 1 for an axis along which it does not change.
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
            return _squeezed(node, index)
        case "Reshape" | "Flatten":
            return _reshaped(node, output, index)
        case "Expand":
            shape = shape_of(output)
            return None if shape is None else index.reshape((1,) * (len(shape) - index.ndim) + index.shape)
        case "Slice":
            return _sliced(node, index)
        case "Split":
            return _split(node, output, index)
        case "Gather":
            return _gathered(node, index)
    return None


def _squeezed(node: ir.Node, index: Indices) -> Indices | None:
    axes = axes_of(node)
    if axes is None and (shape := shape_of(first_input(node))) is not None:
        axes = [axis for axis, size in enumerate(shape) if size == 1]
    return None if axes is None else np.squeeze(index, tuple(axes))


def _reshaped(node: ir.Node, output: ir.Value, index: Indices) -> Indices | None:
    before, after = shape_of(first_input(node)), shape_of(output)
    if before is None or after is None:
        return None
    shape: list[int] = []  # of the index afterwards, from the last axis on
    pieces = index
    i, j = len(before), len(after)
    while i > 0 and j > 0:
        # the shortest run of last axes on either side that holds as many elements
        left, right = before[i - 1], after[j - 1]
        a, b = i - 1, j - 1
        while left is not None and right is not None and left != right:
            if left < right and a > 0:
                a -= 1
                left = None if before[a] is None else left * (before[a] or 0)
            elif left > right and b > 0:
                b -= 1
                right = None if after[b] is None else right * (after[b] or 0)
            else:
                break
        if left is None or right is None or left != right:
            break
        run = pieces.shape[a:i]
        if all(size == 1 for size in run):
            shape[:0] = [1] * (j - b)
        else:
            whole = [*pieces.shape[:a], *(size or 0 for size in before[a:i]), *pieces.shape[i:]]
            pieces = np.broadcast_to(pieces, whole)
            shape[:0] = [size or 0 for size in after[b:j]]
        i, j = a, b
    if any(size != 1 for size in pieces.shape[:i]):
        return None
    return pieces.reshape([1] * j + shape)


def _sliced(node: ir.Node, index: Indices) -> Indices | None:
    if len(node.inputs) > 1:
        starts, ends = constant_integers(node.inputs[1]), constant_integers(node.inputs[2])
        axes = (
            constant_integers(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] is not None else None
        )
        given = len(node.inputs) > 4 and node.inputs[4] is not None
        steps = constant_integers(node.inputs[4]) if given else None
        if given and steps is None:
            return None
    else:
        starts, ends = attribute(node, "starts"), attribute(node, "ends")
        axes, steps = attribute(node, "axes"), None
    if starts is None or ends is None:
        # a slice by computed bounds is harmless only where the index does not change
        return index if index.size == 1 else None
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = number if axes is None else axes[number]
        step = 1 if steps is None else steps[number]
        if index.shape[axis] > 1:
            cut: list[slice] = [slice(None)] * index.ndim
            stop = None if step < 0 and end < -index.shape[axis] else end
            cut[axis] = slice(start, stop, step)
            index = index[tuple(cut)]
    return index


def _split(node: ir.Node, output: ir.Value, index: Indices) -> Indices | None:
    axis = attribute(node, "axis", 0)
    size = index.shape[axis]
    if size == 1:
        return index
    lengths = (
        constant_integers(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] is not None else None
    )
    lengths = lengths or attribute(node, "split")
    if lengths is None:
        each = -(-size // len(node.outputs))
        lengths = [min(each, size - each * number) for number in range(len(node.outputs))]
    number = node.outputs.index(output)
    start = sum(lengths[:number])
    return np.take(index, range(start, start + lengths[number]), axis=axis)


def _gathered(node: ir.Node, index: Indices) -> Indices | None:
    axis = attribute(node, "axis", 0)
    axis += index.ndim if axis < 0 else 0
    where = node.inputs[1]
    chosen = constant_array(where)
    if index.shape[axis] > 1:
        return None if chosen is None else np.take(index, chosen, axis=axis)
    rank = chosen.ndim if chosen is not None else None
    if rank is None and where is not None and where.shape is not None:
        rank = len(where.shape)
    if rank is None:
        return None
    return index.reshape(index.shape[:axis] + (1,) * rank + index.shape[axis + 1 :])
