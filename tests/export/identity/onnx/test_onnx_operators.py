"""Each ONNX operator of export/identity, run in float64, computes what onnxruntime computes.

Both interpreters share the operators of export/identity/algebra. An error in these would change both sides
of a decision in the same way, so that only a comparison with other implementations finds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.support.identity_operators import (
    onnx_control_flow,
    onnx_elementwise,
    onnx_layers,
    onnx_reductions,
    onnx_shapes,
    onnx_writes,
)
from tests.support.identity_operators.onnx_case import (
    Known,
    OnnxCases,
    booleans,
    floats,
    integers,
    known,
    known_floats,
    number,
)
from tests.support.identity_operators.runs import Interpreters
from turnpike.export.identity.algebra.arithmetic.terms import UndecidedError
from turnpike.export.identity.onnx.run_graph import OPERATORS

CASES = {
    **onnx_elementwise.CASES,
    **onnx_reductions.CASES,
    **onnx_shapes.CASES,
    **onnx_control_flow.CASES,
    **onnx_layers.CASES,
    **onnx_writes.CASES,
}
INTERPRETERS = Interpreters.load()


@pytest.mark.parametrize("name", CASES)
def test_float64_run_equals_onnxruntime(name: str) -> None:
    assert CASES[name].difference(INTERPRETERS) is None


def test_cases_have_every_operator() -> None:
    found: set[str] = set()
    for case in CASES.values():
        found |= case.run(INTERPRETERS)[0].operators
    assert OPERATORS.keys() == found


REFUSALS = OnnxCases()
# what the error says of each
MESSAGES: dict[str, str] = {}


def _refuse(message: str, operator: str, *inputs: Any, **options: Any) -> None:
    name = f"{operator}: {message}"
    REFUSALS.node(name, operator, *inputs, **options)
    MESSAGES[name] = message


x = floats(2, 4, 5)
_refuse("not known here", "Hardmax", x)
_refuse("opset 8, expected 9 or later", "Relu", x, opset=8)
_refuse("a shape depends on the input", "Reshape", x, integers(2))
_refuse("training mode", "Dropout", x, number(0.5, np.float32), number(True, np.bool_))
_refuse("output y1 is not computed", "Dropout", x, outputs=2)
_refuse("output y1 is not computed", "MaxPool", x, outputs=2, kernel_shape=[2])
_refuse("output y1 is not computed", "LayerNormalization", x, known_floats(5), outputs=2)
_refuse("another axis", "OneHot", integers(3), number(4), Known(np.array([0, 1], np.float32)), axis=0)
_refuse("IsInf of one sign", "IsInf", x, detect_negative=0)
_refuse("along no axis", "ReduceL1", x, known(), noop_with_empty_axes=1)
_refuse("of the last index", "ArgMax", x, select_last_index=1)
_refuse("exclusive or reversed", "CumSum", x, number(1), exclusive=1)
_refuse("that is exclusive or reversed", "CumSum", x, number(0), reverse=1)
_refuse("before opset 13", "Softmax", x, opset=12)
_refuse("EyeLike with another dtype", "EyeLike", x[0], dtype=TensorProto.DOUBLE)
_refuse("batch_dims", "GatherND", x, Known(np.array([[0], [1]])), batch_dims=1)
_refuse("different numbers to one place", "ScatterND", x, Known(np.array([[0], [0]])), floats(2, 4, 5))
_refuse("outside of a tensor", "ScatterND", x, Known(np.array([[3]])), floats(1, 4, 5))
_refuse("Col2Im with 1 axes", "Col2Im", floats(1, 2, 4), known(5), known(2))
twice = Known(np.array([[0, 0]]))
_refuse("writes different numbers to one place", "ScatterElements", floats(2, 3), twice, floats(1, 2), axis=1)
_refuse("output_shape or auto_pad", "ConvTranspose", x, known_floats(4, 2, 3), output_shape=[8])
_refuse("or auto_pad", "ConvTranspose", x, known_floats(4, 2, 3), auto_pad="SAME_UPPER")
_refuse("with dilations", "AveragePool", x, kernel_shape=[2], dilations=[2])
_refuse("training mode", "BatchNormalization", x, *(known_floats(4) for _ in range(4)), training_mode=1)
_refuse("before opset 21", "GroupNormalization", x, known_floats(2), known_floats(2), num_groups=2)
layer = (x, known_floats(1, 12, 5), known_floats(1, 12, 4))
recurrent = {"hidden_size": 4, "outputs": ["", "last"]}
_refuse("clip", "GRU", *layer, clip=2.0, **recurrent)
_refuse("layout", "GRU", *layer, layout=1, **recurrent)
_refuse("activations", "GRU", *layer, activations=["Tanh", "Tanh"], **recurrent)
_refuse("lengths", "GRU", *layer, None, Known(np.array([1, 2, 2, 2], np.int32)), **recurrent)
layer = (x, known_floats(1, 16, 5), known_floats(1, 16, 4))
_refuse("peepholes", "LSTM", *layer, None, None, None, None, known_floats(1, 12), **recurrent)
_refuse("input_forget", "LSTM", *layer, input_forget=1, **recurrent)
microsoft = {"domain": "com.microsoft"}
_refuse("the activation Mish", "FusedConv", x, known_floats(3, 4, 2), activation="Mish", **microsoft)

_refuse(
    "FusedGemm with Elu without its parameters",
    "FusedGemm",
    *(floats(2, 3), known_floats(3, 4), known_floats(4)),
    activation="Elu",
    **microsoft,
)

CONTROL_FLOW = {
    "different shapes": """
    case (bool b, float[4] x) => (float[N] y) {
        y = If (b) <
            then_branch = yes () => (float[N] a) {
                first = Constant <value_ints = [0]> ()
                a = Gather (x, first)
            },
            else_branch = no () => (float[N] c) { c = Neg (x) }
        >
    }
    """,
    "the condition of a Loop depends": """
    case (bool b, float[4] x) => (float[4] y) {
        count = Constant <value_int = 3> ()
        y = Loop (count, b, x) <
            body = body (int64 step, bool before, float[4] a) => (bool more, float[4] c) {
                c = Neg (a)
                more = Identity (before)
            }
        >
    }
    """,
    "a Loop without a step": """
    case (bool b, float[4] x) => (float[4] y, float[N, 4] all) {
        count = Constant <value_int = 0> ()
        y, all = Loop (count, , x) <
            body = body (int64 step, bool before, float[4] a) => (bool more, float[4] c, float[4] d) {
                c = Neg (a)
                d = Neg (a)
                more = Identity (before)
            }
        >
    }
    """,
}
for message, text in CONTROL_FLOW.items():
    REFUSALS.text(message, text, b=booleans(1).reshape(()), x=floats(4))
    MESSAGES[message] = message


@pytest.mark.parametrize("name", REFUSALS)
def test_refuses_what_it_cannot_compute(name: str) -> None:
    with pytest.raises(UndecidedError, match=MESSAGES[name]):
        REFUSALS[name].run(INTERPRETERS)
