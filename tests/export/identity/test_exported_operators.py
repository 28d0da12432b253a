"""Each ATen case, exported by torch.onnx, is decided to be the same function as its graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.support.identity_operators import (
    aten_elementwise,
    aten_layers,
    aten_reductions,
    aten_shapes,
    aten_writes,
)
from turnpike.export.identity.decide import decide
from turnpike.export.identity.decision import InputShape, Verdict
from turnpike.export.trace.trace_network import clean_up

CASES = {
    **aten_elementwise.CASES,
    **aten_reductions.CASES,
    **aten_shapes.CASES,
    **aten_layers.CASES,
    **aten_writes.CASES,
}
# cases that are not identical, by the reason
EXCEPTIONS = {
    "torch.onnx does not export it": (
        *("broadcast_in_dim", "slice_copy", "select", "split_copy", "index by a mask"),
        "index_put at a known mask",
    ),
    "torch.onnx exports another function": (
        *("avg_pool2d, divisor", "elu, all scales", "literals of double tensors", "booleans and floats"),
        *("squeeze", "copy", "div floor, integers", "div trunc, integers"),
    ),
    "an operator or form without a table": (
        *(f"bitwise_{name}, known integers" for name in ("and", "or", "xor")),
        *("bitwise_not, integers", "concat", "index by an input"),
    ),
    "equal only by laws of integers, logarithms or rounding": (
        *("integers and floats", "floor_divide, integers", "log_sigmoid_forward", "arange"),
        *("right shift", "right shift, all bits", "bitwise_right_shift"),
    ),
}
NOT_IDENTICAL = {name for names in EXCEPTIONS.values() for name in names}


# five minutes: 400 exports
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_IDENTICAL])
def test_graph_of_torch_onnx_is_identical(name: str) -> None:
    case = CASES[name]
    exported = torch.onnx.export(case.program, dynamo=True, opset_version=20, verbose=False, optimize=False)
    assert exported is not None
    clean_up(exported.model)
    shapes = [InputShape(np.dtype(tensor.numpy().dtype), tuple(tensor.shape)) for tensor in case.inputs]
    decision = decide(case.program, exported.model, [shapes])
    assert decision.verdict is Verdict.IDENTICAL, decision
