"""Cases of ONNX operators that move, join, repeat or make numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from tests.support.identity_operators.onnx_case import (
    Known,
    OnnxCases,
    floats,
    integers,
    known,
    known_floats,
    number,
)

CASES = OnnxCases()
x = floats(2, 3, 4)

CONSTANTS: dict[str, Any] = {
    "value": numpy_helper.from_array(np.array([[1.5, -2]], np.float32)),
    "value_float": 1.5,
    "value_floats": [1.5, 2.5],
    "value_int": 3,
    "value_ints": [3, 4],
}
for key, value in CONSTANTS.items():
    CASES.node(f"Constant {key}", "Constant", **{key: value})
CASES.node("ConstantOfShape", "ConstantOfShape", known(2, 3))
filling = numpy_helper.from_array(np.array([7], np.int64))
CASES.node("ConstantOfShape value", "ConstantOfShape", known(2, 3), value=filling)
CASES.node("ConstantOfShape, a number", "ConstantOfShape", known(), value=filling)
CASES.node("Range", "Range", number(1), number(9), number(2))
CASES.node("Range backwards", "Range", number(9), number(1), number(-3))
CASES.node("Range of floats", "Range", *(number(value, np.float32) for value in (0.5, 3, 0.5)))
CASES.node("EyeLike", "EyeLike", floats(3, 4))
CASES.node("EyeLike, integers", "EyeLike", integers(3, 3))
CASES.node("EyeLike, diagonals", "EyeLike", floats(3, 4), k=1)
CASES.node("EyeLike, lower", "EyeLike", floats(3, 4), k=-2)
CASES.node("Shape", "Shape", x)
CASES.node("Shape, part", "Shape", x, start=1, end=-1)
CASES.node("Shape, negative start", "Shape", x, start=-2)

for sizes in ((6, 4), (-1, 8), (0, 0, 2, 2), (0, -1), (24,)):
    CASES.node(f"Reshape {sizes}", "Reshape", x, known(*sizes))
CASES.node("Reshape to a number", "Reshape", floats(1), known())
CASES.node("Reshape allowzero", "Reshape", Known(np.zeros((0, 3), np.float32)), known(3, 0), allowzero=1)
for axis in (0, 1, 2, 3, -1):
    CASES.node(f"Flatten {axis}", "Flatten", x, axis=axis)
CASES.node("Flatten", "Flatten", x)
CASES.node("Transpose", "Transpose", x)
CASES.node("Transpose perm", "Transpose", x, perm=[1, 2, 0])
ones = floats(1, 2, 1, 3)
CASES.node("Squeeze", "Squeeze", ones)
CASES.node("Squeeze axes", "Squeeze", ones, known(0))
CASES.node("Squeeze negative", "Squeeze", ones, known(-2, 0))
CASES.node("Squeeze attribute", "Squeeze", ones, opset=11, axes=[2])
CASES.node("Unsqueeze", "Unsqueeze", x, known(0, 2))
CASES.node("Unsqueeze negative", "Unsqueeze", x, known(-1))
CASES.node("Unsqueeze attribute", "Unsqueeze", x, opset=11, axes=[1])
CASES.node("Expand", "Expand", floats(3, 1), known(2, 1, 4))
CASES.node("Expand to fewer axes", "Expand", x, known(1))
CASES.node("Expand to nothing", "Expand", x, known())
CASES.node("Tile", "Tile", floats(2, 3), known(2, 3))
CASES.node("Concat", "Concat", x, floats(2, 1, 4), known_floats(2, 2, 4), axis=1)
CASES.node("Concat, negative axis", "Concat", x, x * 2, axis=-1)
CASES.node("Concat, known", "Concat", known(1, 2), known(3), axis=0)

y = floats(6, 5, 7)
CASES.node("Slice", "Slice", y, known(1, 0), known(4, 3))
CASES.node("Slice axes", "Slice", y, known(1, -3), known(2**62, -1), known(-1, 0))
CASES.node("Slice steps", "Slice", y, known(0, 1), known(6, 5), known(0, 2), known(2, 3))
CASES.node("Slice backwards", "Slice", y, known(-1, 4), known(-(2**62), 1), known(0, 2), known(-1, -2))
CASES.node("Slice attributes", "Slice", y, opset=9, starts=[1, 2], ends=[-1, 9], axes=[0, 2])
CASES.node("Slice attributes, no axes", "Slice", y, opset=9, starts=[1, 2], ends=[-1, 9])
CASES.node("Split", "Split", y, outputs=3, num_outputs=3)
CASES.node("Split uneven", "Split", y, outputs=3, num_outputs=3, axis=-1)
CASES.node("Split sizes", "Split", y, known(1, 4), outputs=2, axis=1)
CASES.node("Split attribute", "Split", y, outputs=2, opset=11, split=[2, 4])
CASES.node("Split without sizes", "Split", y, outputs=2, opset=13)
CASES.node("Gather", "Gather", y, known(2, 0, -1))
CASES.node("Gather, axis", "Gather", y, Known(np.array([[1, 0], [2, 2]])), axis=-2)
CASES.node("Gather, a number", "Gather", y, number(1), axis=1)
CASES.node("Gather, an input", "Gather", known_floats(5, 3), integers(2, 4))
CASES.node("Gather, an input along an axis", "Gather", known_floats(2, 5, 3), integers(2, 4), axis=1)
CASES.node("GatherElements", "GatherElements", floats(2, 4), Known(np.array([[2, -1], [1, 0]])), axis=1)
CASES.node(
    "GatherElements, fewer rows", "GatherElements", floats(2, 4), Known(np.array([[2, -1, 0]])), axis=-1
)
CASES.node("GatherND", "GatherND", x, Known(np.array([[[0, 1]], [[1, -1]]])))
CASES.node("GatherND, whole places", "GatherND", x, Known(np.array([[0, 1, 2], [1, 2, 0]])))
CASES.node("Pad", "Pad", x, known(1, 0, 2, 0, 1, 0))
CASES.node("Pad value", "Pad", x, known(1, 0, 0, 0, 1, 2), number(1.5, np.float32))
CASES.node("Pad axes", "Pad", x, known(1, 2), None, known(-1))
CASES.node("Pad negative", "Pad", x, known(0, -1, 1, 0, 0, -2))
for mode in ("reflect", "edge", "wrap"):
    CASES.node(f"Pad {mode}", "Pad", x, known(0, 1, 2, 0, 2, 1), mode=mode)
square = floats(2, 4, 5)
CASES.node("Trilu", "Trilu", square)
CASES.node("Trilu lower", "Trilu", square, upper=0)
CASES.node("Trilu, diagonal", "Trilu", square, number(1))
CASES.node("Trilu lower, diagonal", "Trilu", square, number(-1), upper=0)
CASES.node("DepthToSpace", "DepthToSpace", floats(2, 8, 2, 3), blocksize=2)
CASES.node("DepthToSpace CRD", "DepthToSpace", floats(2, 8, 2, 3), blocksize=2, mode="CRD")
CASES.node("GatherElements, an input", "GatherElements", floats(2, 4), integers(2, 3, high=4), axis=1)
