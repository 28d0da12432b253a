"""Operators of ONNX that write into tensors."""

from __future__ import annotations

import numpy as np

from turnpike.export.identity.algebra import writes
from turnpike.export.identity.algebra.arithmetic.terms import UndecidedError, Value, shape_of
from turnpike.export.identity.onnx.operator_table import NodeCall, OperatorTable, integers

table = OperatorTable()


@table.operators("ScatterND")
def scatter_places(call: NodeCall, x: Value, ids: Value, updates: Value) -> Value:
    columns = [
        call.algebra.move(ids, lambda data, at=at: np.asarray(data[..., at]))
        for at in range(shape_of(ids)[-1])
    ]
    return writes.write_at(call.algebra, x, columns, updates, call.get("reduction", "none"))


@table.operators("ScatterElements")
def scatter_elements(call: NodeCall, x: Value, ids: Value, updates: Value) -> Value:
    axis, reduction = call.get("axis", 0), call.get("reduction", "none")
    return writes.write_along(call.algebra, x, ids, updates, axis, reduction)


@table.operators("Col2Im")
def columns_to_image(call: NodeCall, x: Value, size: Value, kernel: Value) -> Value:
    sizes, widths = integers(size, "the size of an image"), integers(kernel, "the shape of a window")
    rank = len(widths)
    pads, ones = call.get("pads", [0] * 2 * rank), [1] * rank
    pairs = list(zip(pads[:rank], pads[rank:], strict=True))
    strides, dilations = call.get("strides", ones), call.get("dilations", ones)
    if rank != 2:
        raise UndecidedError(f"Col2Im with {rank} axes")
    return writes.add_windows(call.algebra, x, sizes, widths, strides, pairs, dilations)
