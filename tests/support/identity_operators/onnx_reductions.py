"""Cases of ONNX reductions."""

from __future__ import annotations

import itertools

import numpy as np

from tests.support.identity_operators.onnx_case import Known, OnnxCases, floats, integers, known, number

CASES = OnnxCases()
# all rows of three booleans
EVERY_ROW = np.array(list(itertools.product((False, True), repeat=3)))

for name in ("Sum", "Mean", "Max", "Min", "Prod", "SumSquare", "L1", "L2", "LogSum", "LogSumExp"):
    operator = f"Reduce{name}"
    x = floats(2, 3, 4, low=0.1)
    CASES.node(operator, operator, x, known(1))
    CASES.node(
        f"{operator}, negative axes", operator, -x if name != "LogSum" else x, known(-1, 0), keepdims=0
    )
    CASES.node(f"{operator} of all", operator, x)
    CASES.node(f"{operator} of all, keepdims", operator, x, keepdims=0)
    CASES.node(f"{operator}, axes of the input", operator, x, known(1, 2), keepdims=1, noop_with_empty_axes=1)
    older = 12 if name == "Sum" else 17
    CASES.node(f"{operator}, attributes", operator, x, opset=older, axes=[0, -1], keepdims=0)
for name in ("Sum", "Mean", "Max", "Min", "Prod"):
    CASES.node(f"Reduce{name} of nothing", f"Reduce{name}", floats(2, 3), known(), noop_with_empty_axes=1)
    CASES.node(f"Reduce{name} without axes", f"Reduce{name}", floats(2, 3), noop_with_empty_axes=1)
    CASES.node(f"Reduce{name} of nothing is all", f"Reduce{name}", floats(2, 3), known())
for name in ("Sum", "Max", "Min", "Prod"):
    CASES.node(f"Reduce{name}, integers", f"Reduce{name}", integers(3, 4), known(1))
CASES.node("ReduceMax of two", "ReduceMax", floats(3, 2), known(1))
CASES.node("ReduceMax, booleans", "ReduceMax", EVERY_ROW, known(1))
CASES.node("ReduceMin, booleans", "ReduceMin", EVERY_ROW, known(1))
for operator in ("ArgMax", "ArgMin"):
    CASES.node(operator, operator, floats(3, 4))
    CASES.node(f"{operator}, axis", operator, floats(2, 3, 4), axis=-1, keepdims=0)
    CASES.node(f"{operator}, ties", operator, integers(9, 4, high=2).astype(np.float32), axis=1)
CASES.node("CumSum", "CumSum", floats(3, 4), number(1))
CASES.node("CumSum, negative axis", "CumSum", floats(2, 3, 4), number(-2))
CASES.node("CumSum, integers", "CumSum", integers(3, 4), number(0))
for operator in ("Softmax", "LogSoftmax"):
    CASES.node(operator, operator, floats(2, 3, 4))
    CASES.node(f"{operator}, axis", operator, floats(2, 3, 4), axis=1)
for operator in ("GlobalAveragePool", "GlobalMaxPool"):
    CASES.node(operator, operator, floats(2, 3, 4))
    CASES.node(f"{operator} of images", operator, floats(2, 3, 4, 5))
CASES.node("Size", "Size", floats(2, 3, 4))
CASES.node("TopK", "TopK", floats(2, 5), Known(np.array([2])), outputs=2)
CASES.node("TopK of the smallest", "TopK", floats(5, 3), Known(np.array([2])), outputs=2, axis=0, largest=0)
