"""Constants that onnxruntime computes are explained by the file's expressions, as far as they round."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

from turnpike.export.identity.decision import Verdict
from turnpike.export.optimized.constants import MAX_ULPS, explain_constants
from turnpike.export.optimized.decide_optimized import decide_optimized
from turnpike.export.optimized.normal_form import as_model

HEAD = '<ir_version: 10, opset_import: ["" : 20]>'
# (2 - 1) / sqrt(3 + 1) = 0.5 and so on: exact in float32 but for the epsilon, which is nothing here
FILE = f"""{HEAD}
case (float[N, 1, 2, 2] x) => (float[N, 2, 2, 2] y)
<float[2, 1, 1, 1] w = {{3.0, 5.0}}, float[2] b = {{1.0, 2.0}}, float[2] scale = {{2.0, 6.0}},
 float[2] shift = {{7.0, 8.0}}, float[2] mean = {{9.0, 10.0}}, float[2] variance = {{16.0, 4.0}}> {{
    c = Conv (x, w, b)
    y = BatchNormalization <epsilon: float = 0.0> (c, scale, shift, mean, variance)
}}"""


def joined(weight: list[float], bias: list[float]) -> ir.Model:
    """The file's convolution with the numbers of its batch norm."""
    text = f"""{HEAD}
    case (float[N, 1, 2, 2] x) => (float[N, 2, 2, 2] y)
    <float[2, 1, 1, 1] joined_w = {{0.0, 0.0}}, float[2] joined_b = {{0.0, 0.0}}> {{
        y = Conv (x, joined_w, joined_b)
    }}"""
    model = as_model(parser.parse_model(text).SerializeToString())
    for name, numbers, shape in (("joined_w", weight, (2, 1, 1, 1)), ("joined_b", bias, (2,))):
        array = np.array(numbers, np.float32).reshape(shape)
        model.graph.initializers[name].const_value = ir.tensor(array, name=name)
    return model


def file() -> ir.Model:
    return as_model(parser.parse_model(FILE).SerializeToString())


# the factors are 2 / 4 and 6 / 2: 3 * 0.5, 5 * 3, (1 - 9) * 0.5 + 7, (2 - 10) * 3 + 8
WEIGHT, BIAS = [1.5, 15.0], [3.0, -16.0]


def test_a_batch_norm_in_a_convolution_by_hand() -> None:
    found, unknown = explain_constants(file(), joined(WEIGHT, BIAS))
    assert {constant.name: (constant.value, constant.ulps) for constant in found} == {
        "joined_w": ("y", 0.0),
        "joined_b": ("y", 0.0),
    }
    assert unknown == []


def test_weights_are_measured_number_by_number() -> None:
    """1.5 has the unit 2**-23."""
    found, _ = explain_constants(file(), joined([1.5 + 3 * 2**-23, 15.0], BIAS))
    assert max(constant.ulps for constant in found) == 3


def test_a_sum_is_measured_against_its_largest_summand() -> None:
    """That of 3 is 7, whose unit is 2**-21."""
    found, _ = explain_constants(file(), joined(WEIGHT, [3.0 + 2**-20, -16.0]))
    assert max(constant.ulps for constant in found) == 2


@pytest.mark.parametrize("place", [0, 1])
def test_a_constant_that_is_too_far_is_unknown(place: int) -> None:
    weight = list(WEIGHT)
    weight[place] *= 1 + (MAX_ULPS + 2) * 2**-23
    found, unknown = explain_constants(file(), joined(weight, BIAS))
    assert unknown == ["joined_w"]
    assert [constant.name for constant in found] == ["joined_b"]


def test_an_infinite_constant_is_unknown() -> None:
    assert explain_constants(file(), joined([np.inf, 15.0], BIAS))[1] == ["joined_w"]


# of a batch norm that changes no bit: 2 / sqrt(4) = 1
NOTHING = FILE.replace("{2.0, 6.0}", "{2.0, 1.0}").replace("{7.0, 8.0}", "{0.0, 0.0}")
NOTHING = NOTHING.replace("{9.0, 10.0}", "{0.0, 0.0}").replace("{16.0, 4.0}", "{4.0, 1.0}")
# a weight norm whose norm is that of its direction: (3, 4) / 5 * 5
WEIGHT_NORM = f"""{HEAD}
case (float[N, 2] x) => (float[N, 2] y)
<float[2, 2] w = {{3.0, 4.0, 4.0, 3.0}}, float[2, 1] size = {{5.0, 5.0}}, int64[1] axes = {{1}}> {{
    norm = ReduceL2 (w, axes)
    factor = Div (size, norm)
    weight = Mul (w, factor)
    y = MatMul (x, weight)
}}"""


@pytest.mark.parametrize("text", [NOTHING, WEIGHT_NORM])
def test_a_constant_may_be_an_expression_that_changes_no_bit(text: str) -> None:
    """onnxruntime leaves the weight as it is, and the file computes it from random functions of numbers."""
    graph = decide_optimized(parser.parse_model(text).SerializeToString())
    assert not {"BatchNormalization", "Mul"} & graph.after.keys()
    assert graph.decision.verdict is Verdict.IDENTICAL, graph.verdict_text
    assert graph.ulps == 0


def test_constants_of_the_file_need_no_explanation() -> None:
    assert explain_constants(file(), file()) == ([], [])
