"""Cases of ONNX operators that write into tensors, and of numbers where a mask holds."""

from __future__ import annotations

import numpy as np

from tests.support.identity_operators.onnx_case import (
    Known,
    OnnxCases,
    booleans,
    floats,
    integers,
    known,
    known_floats,
)

CASES = OnnxCases()
x = floats(2, 3, 4)


def ids(*rows: object) -> Known:
    return Known(np.array(rows, np.int64))


CASES.node("ScatterND", "ScatterND", x, ids([0, 1], [1, 2]), floats(2, 4))
CASES.node("ScatterND, rows", "ScatterND", known_floats(5, 3), ids([3], [0]), floats(2, 3))
CASES.node("ScatterND, whole places", "ScatterND", x, ids([[0, 1, 2]], [[1, -1, 0]]), floats(2, 1))
CASES.node("ScatterND, integers", "ScatterND", Known(integers(5)), ids([3], [0]), Known(integers(2)))
for reduction in ("add", "mul", "max", "min"):
    CASES.node(
        f"ScatterND {reduction}",
        "ScatterND",
        x,
        ids([0, 1], [1, 2], [0, 1], [0, 1]),
        floats(4, 4),
        reduction=reduction,
    )
    CASES.node(
        f"ScatterND {reduction}, an input",
        "ScatterND",
        x,
        np.array([[0, 1], [1, 2], [0, 1]]),
        floats(3, 4),
        reduction=reduction,
    )
CASES.node("ScatterND, an input", "ScatterND", x, np.array([[[0, 1], [1, 2]]]), floats(1, 2, 4))
CASES.node("ScatterND, rows at an input", "ScatterND", known_floats(5, 3), np.array([[3], [0]]), floats(2, 3))

columns = ids([2, -1], [1, 0])
CASES.node("ScatterElements", "ScatterElements", floats(2, 4), columns, floats(2, 2), axis=1)
CASES.node("ScatterElements, rows", "ScatterElements", floats(3, 4), ids([2, 0]), floats(1, 2))
CASES.node(
    "ScatterElements, added", "ScatterElements", floats(2, 4), columns, floats(2, 2), axis=-1, reduction="add"
)
twice = np.array([[2, 2, 1], [0, 3, 0]])
for reduction in ("add", "mul", "max", "min"):
    CASES.node(
        f"ScatterElements {reduction}",
        "ScatterElements",
        floats(2, 4),
        Known(twice),
        floats(2, 3),
        axis=1,
        reduction=reduction,
    )
    CASES.node(
        f"ScatterElements {reduction}, an input",
        "ScatterElements",
        floats(2, 4),
        twice,
        floats(2, 3),
        axis=1,
        reduction=reduction,
    )
once = np.array([[2, 0, 1], [0, 1, 2]])
CASES.node("ScatterElements, an input", "ScatterElements", floats(2, 4), once, floats(2, 3), axis=1)
CASES.node("ScatterElements, rows at an input", "ScatterElements", floats(3, 4), once[:, :2], floats(2, 2))
CASES.node(
    "ScatterElements, equal numbers",
    "ScatterElements",
    floats(2, 4),
    Known(twice),
    Known(np.ones((2, 3), np.float32)),
    axis=1,
)
CASES.node("Col2Im", "Col2Im", floats(2, 12, 12), known(4, 5), known(2, 2))
CASES.node(
    "Col2Im with all attributes",
    "Col2Im",
    floats(2, 12, 16),
    known(5, 6),
    known(2, 3),
    strides=[1, 2],
    dilations=[2, 1],
    pads=[1, 1, 0, 2],
)

MASK = np.array([[True, False, True], [False, True, True]])
CASES.text(
    "NonZero of a mask",
    """
    case (bool[2,3] b, float[2,3] x, float[3] z) => (float[2,3] y, float[2,3] same, float[2,3] sum) {
        places = NonZero (b)
        rows = Transpose <perm = [1, 0]> (places)
        chosen = GatherND (x, rows)
        doubled = Add (chosen, chosen)
        y = ScatterND (x, rows, doubled)
        same = ScatterND <reduction = "add"> (x, rows, chosen)
        total = ReduceSum <keepdims = 0> (chosen)
        mean = ReduceMean <keepdims = 0> (chosen)
        both = Add (total, mean)
        sum = Add (x, both)
    }""",
    b=MASK,
    x=floats(2, 3),
    z=floats(3),
)
CASES.text(
    "NonZero of rows",
    """
    case (bool[3] b, float[3,4] x, float[4] z) => (float[3,4] y, float[3,4] w, float[4] sum) {
        places = NonZero (b)
        rows = Transpose <perm = [1, 0]> (places)
        one = Constant <value_ints = [1]> ()
        last = Constant <value_ints = [-1]> ()
        first = Constant <value_ints = [0]> ()
        ids = Squeeze (rows, one)
        vector = Reshape (rows, last)
        length = Shape (ids)
        expanded = Expand (ids, length)
        again = Unsqueeze (expanded, last)
        joined = Concat <axis = -1> (again)
        chosen = GatherND (x, joined)
        gathered = Gather (x, vector)
        size = Shape (chosen)
        count = Gather (size, first)
        four = Constant <value_ints = [4]> ()
        wanted = Concat <axis = 0> (count, four)
        spread = Expand (z, wanted)
        mixed = Mul (spread, gathered)
        weights = Softmax (mixed)
        turned = Transpose <perm = [0, 1]> (weights)
        y = ScatterND (x, rows, turned)
        w = ScatterND (x, rows, spread)
        sum = ReduceSum <keepdims = 0> (chosen, first)
    }""",
    b=np.array([True, False, True]),
    x=floats(3, 4),
    z=floats(4),
)
CASES.text(
    "rows of a mask by their number",
    """
    case (bool[3] b, float[3,4] x, float[1,4] z) => (float[3,4] y) {
        last = Constant <value_ints = [-1]> ()
        column = Unsqueeze (b, last)
        size = Shape (x)
        whole = Expand (column, size)
        places = NonZero (whole)
        rows = Transpose <perm = [1, 0]> (places)
        numbers = Cast <to = 7> (b)
        count = ReduceSum <keepdims = 1> (numbers)
        four = Constant <value_ints = [4]> ()
        wanted = Concat <axis = 0> (count, four)
        spread = Expand (z, wanted)
        flat = Reshape (spread, last)
        y = ScatterND (x, rows, flat)
    }""",
    b=np.array([True, False, True]),
    x=floats(3, 4),
    z=floats(1, 4),
)
CASES.text(
    "first numbers where a mask holds",
    """
    case (bool[2,3] b, float[2,3] x, float[7] z) => (float[2,3] y) {
        places = NonZero (b)
        rows = Transpose <perm = [1, 0]> (places)
        size = Shape (rows)
        first = Constant <value_ints = [0]> ()
        count = Gather (size, first)
        chosen = Slice (z, first, count, first)
        y = ScatterND (x, rows, chosen)
    }""",
    b=MASK,
    x=floats(2, 3),
    z=floats(7),
)
CASES.text(
    "a number where a mask holds",
    """
    case (bool[2,3] b, float[2,3] x, float z) => (float[2,3] y) {
        places = NonZero (b)
        rows = Transpose <perm = [1, 0]> (places)
        last = Constant <value_ints = [-1]> ()
        flat = Reshape (b, last)
        numbers = Cast <to = 7> (flat)
        count = ReduceSum <keepdims = 1> (numbers)
        spread = Expand (z, count)
        vector = Reshape (spread, last)
        y = ScatterND (x, rows, vector)
    }""",
    b=booleans(2, 3),
    x=floats(2, 3),
    z=floats(),
)
CASES.text(
    "layers of rows where a mask holds",
    """
    case (bool[3] b, float[3,4] x, float[4,4] w, float[4] z) => (float[3,4] y, float[3,4] u) {
        places = NonZero (b)
        rows = Transpose <perm = [1, 0]> (places)
        chosen = GatherND (x, rows)
        product = MatMul (chosen, w)
        layer = Gemm <transB = 1> (product, w, z)
        normal = LayerNormalization (layer, z)
        y = ScatterND (x, rows, normal)
        logs = LogSoftmax (chosen)
        u = ScatterND (x, rows, logs)
    }""",
    b=np.array([True, False, True]),
    x=floats(3, 4),
    w=floats(4, 4),
    z=floats(4),
)
CASES.node("NonZero, known", "NonZero", Known(np.array([[0, 2], [1, 0]])))
