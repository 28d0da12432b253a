"""onnxruntime's graphs of honest files are their function, and planted faults of an optimizer are noticed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from tests.export.optimized.networks import CASES
from turnpike.export.identity.decision import Verdict
from turnpike.export.optimized.decide_optimized import decide_optimized
from turnpike.export.optimized.normal_form import NCHWC

# an operator that only onnxruntime's graph of each file has
JOINED = {
    "convolution": f"{NCHWC}.Conv",
    "attention": "com.microsoft.FusedMatMul",
    "highway": "com.microsoft.FusedGemm",
}
# rounding of each, which is at least that of a few operations in float32, or nothing
ROUNDED = {"convolution": True, "attention": True, "highway": False}


@pytest.mark.parametrize("name", CASES)
def test_the_optimized_graph_is_the_function_of_the_file(name: str) -> None:
    graph = decide_optimized(CASES[name].data)
    assert graph.decision.verdict is Verdict.IDENTICAL, graph.decision
    assert JOINED[name] in graph.after.keys() - graph.before.keys()
    assert (0 < graph.ulps < 4) is ROUNDED[name]
    assert graph.decision.error_bound < 1e-18


def test_a_file_in_blocks_is_as_the_file_says() -> None:
    """On a CPU without blocks of channels, the tests of this folder show nothing about them."""
    graph = CASES["convolution"].decide()
    assert graph.after[f"{NCHWC}.Conv"] == 2
    assert graph.before["BatchNormalization"] == 2 > graph.after.get("BatchNormalization", 0)


Change = Callable[[ir.Model], None]
FAULTS: dict[str, tuple[str, Change, Verdict, str]] = {}


def fault(case: str, verdict: Verdict, text: str) -> Callable[[Change], Change]:
    def add(change: Change) -> Change:
        FAULTS[change.__name__] = (case, change, verdict, text)
        return change

    return add


def node_of(model: ir.Model, operator: str, number: int = 0) -> ir.Node:
    return [node for node in model.graph if node.op_type == operator][number]


def change_weight(model: ir.Model, value: ir.Value | None, change: Callable[[np.ndarray], None]) -> None:
    assert value is not None
    assert value.const_value is not None
    array = value.const_value.numpy().copy()
    change(array)
    value.const_value = ir.tensor(array, name=value.name)


@fault("convolution", Verdict.DIFFERENT, "differs in output")
def loses_a_bias(model: ir.Model) -> None:
    node_of(model, "Conv").replace_input_with(2, None)


@fault("convolution", Verdict.DIFFERENT, "differs in output")
def has_another_pad(model: ir.Model) -> None:
    node_of(model, "Conv").attributes["pads"] = ir.AttrInt64s("pads", [0, 1, 2, 1])


@fault("convolution", Verdict.DIFFERENT, "differs in output")
def loses_an_activation(model: ir.Model) -> None:
    del node_of(model, "Conv").attributes["activation"]


@fault("convolution", Verdict.DIFFERENT, "differs in output")
def swaps_the_operands_of_a_difference(model: ir.Model) -> None:
    node = node_of(model, "Sub")
    first, second = node.inputs
    node.replace_input_with(0, second)
    node.replace_input_with(1, first)


@fault("convolution", Verdict.DIFFERENT, "differs in output")
def pads_with_another_number(model: ir.Model) -> None:
    node = node_of(model, "Pad")
    number = ir.Value(name="nine", const_value=ir.tensor(np.float32(9), name="nine"))
    model.graph.register_initializer(number)
    inputs = [*node.inputs[:2], number]
    new = ir.node("Pad", inputs, dict(node.attributes))
    new.outputs[0].name = "padded"
    model.graph.insert_before(node, new)
    for user, place in list(node.outputs[0].uses()):
        user.replace_input_with(place, new.outputs[0])


@fault("convolution", Verdict.DIFFERENT, "differs in output")
def swaps_channels_of_a_block(model: ir.Model) -> None:
    """Each number is one of the file."""

    def swap(weights: np.ndarray) -> None:
        weights[:] = weights[..., ::-1]

    change_weight(model, node_of(model, "Conv").inputs[1], swap)


@fault("convolution", Verdict.NOT_DECIDED, "nothing that the file computes")
def rounds_a_bias_too_far(model: ir.Model) -> None:
    """By 20 units in the last place of its number."""

    def move(bias: np.ndarray) -> None:
        bias[0] += 20 * np.spacing(np.abs(bias).max())

    change_weight(model, node_of(model, "Conv").inputs[2], move)


@fault("convolution", Verdict.DIFFERENT, "differs in output")
def leaves_numbers_in_channels_that_fill_a_block(model: ir.Model) -> None:
    """They would be added to the outputs of the next layer."""

    def fill(weights: np.ndarray) -> None:
        weights[-1] += weights[0]

    change_weight(model, node_of(model, "Conv", 1).inputs[1], fill)


@fault("convolution", Verdict.NOT_DECIDED, "an operator that is not known here")
def has_an_unknown_operator(model: ir.Model) -> None:
    node_of(model, "ReduceMean").op_type = "ReduceMeanOfBlocks"


@fault("attention", Verdict.DIFFERENT, "differs in output")
def doubles_the_scale(model: ir.Model) -> None:
    attributes = node_of(model, "FusedMatMul").attributes
    attributes["alpha"] = ir.AttrFloat32("alpha", 2 * attributes["alpha"].as_float())


@fault("attention", Verdict.DIFFERENT, "differs in output")
def loses_the_scale(model: ir.Model) -> None:
    del node_of(model, "FusedMatMul").attributes["alpha"]


@fault("attention", Verdict.DIFFERENT, "differs in output")
def approximates_gelu(model: ir.Model) -> None:
    node_of(model, "BiasGelu").op_type = "FastGelu"


@fault("attention", Verdict.DIFFERENT, "differs in output")
def has_another_epsilon(model: ir.Model) -> None:
    node_of(model, "SkipLayerNormalization").attributes["epsilon"] = ir.AttrFloat32("epsilon", 1e-12)


@fault("highway", Verdict.DIFFERENT, "differs in")
def has_another_activation(model: ir.Model) -> None:
    node = next(node for node in model.graph if node.op_type == "FusedGemm")
    node.attributes["activation"] = ir.AttrString("activation", "Tanh")


@fault("highway", Verdict.NOT_DECIDED, "the inputs")
def folds_a_lever(model: ir.Model) -> None:
    """The answers without an override are the same."""
    lever = next(value for value in model.graph.inputs if value.name in model.graph.initializers)
    model.graph.inputs.remove(lever)


@fault("highway", Verdict.DIFFERENT, "differs in")
def ignores_a_lever(model: ir.Model) -> None:
    """A constant with the default of the lever takes its place."""
    lever = next(value for value in model.graph.inputs if value.name in model.graph.initializers)
    assert lever.const_value is not None
    default = ir.Value(name="default", const_value=ir.tensor(lever.const_value.numpy(), name="default"))
    model.graph.register_initializer(default)
    for user, place in list(lever.uses()):
        user.replace_input_with(place, default)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_noticed(name: str) -> None:
    case, change, verdict, text = FAULTS[name]
    model = CASES[case].optimized()
    change(model)
    graph = CASES[case].decide(model)
    assert graph.decision.verdict is verdict, graph.verdict_text
    assert text in graph.verdict_text


def test_the_verdict_names_the_first_other_node() -> None:
    model = CASES["attention"].optimized()
    approximates_gelu(model)
    assert "the first node that differs is " in CASES["attention"].decide(model).verdict_text
