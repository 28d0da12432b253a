"""Planted faults in numbers and structure: none of them may be called identical.

Each changes the function for some input or for some size, which samples hardly show.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from tests.export.identity.planted_cases import (
    FLOAT,
    INT64,
    Case,
    Change,
    Step,
    answer,
    attribute,
    before,
    by,
    constant,
    decided,
    feed,
    operator,
    parameters,
    renamed,
    use,
    weight,
    wrap,
)
from tests.export.identity.planting import Array, Plant
from turnpike.export.identity.decision import Verdict

pytestmark = pytest.mark.slow


def ulp(index: int) -> Callable[[Array], None]:
    """One weight off by one unit in the last place."""

    def change(array: Array) -> None:
        array.flat[index] = np.nextafter(array.flat[index], np.float32(9))

    return change


def put(index: int, number: float) -> Callable[[Array], None]:
    def change(array: Array) -> None:
        array.flat[index] = number

    return change


def chain(*steps: tuple[str, float]) -> Step:
    """Operators in sequence, with one number each."""

    def build(p: Plant, v: ir.Value) -> ir.Value:
        for name, number in steps:
            v = getattr(p, name)(v, number)
        return v

    return build


def unary(*operators: str) -> Step:
    def build(p: Plant, v: ir.Value) -> ir.Value:
        for name in operators:
            v = getattr(p, name)(v)
        return v

    return build


def opset(version: int) -> Change:
    return lambda p: p.model.opset_imports.update({"": version})


def output_order(first: int, second: int) -> Change:
    def plant(p: Plant) -> None:
        outputs = p.model.graph.outputs
        values = list(outputs)
        values[first], values[second] = values[second], values[first]
        outputs[:] = values

    return plant


def own_relu(p: Plant) -> None:
    """A function of the file has the name Relu, and is none."""
    v = ir.Value(name="v")
    node = ir.node("LeakyRelu", [v], {"alpha": 0.5})
    node.outputs[0].name = "w"
    body = ir.Graph([v], node.outputs, nodes=[node], opset_imports={"": 20}, name="Relu")
    function = ir.Function("own", "Relu", graph=body, attributes=[])
    p.model.functions[function.identifier()] = function
    p.model.opset_imports["own"] = 1
    p.producer("relu").domain = "own"


def shadowed(p: Plant) -> None:
    """A branch computes with a value of its own that has a name of the graph."""
    node = p.producer("output")
    graph = node.attributes["then_branch"].as_graph()
    product = graph[0]
    double = ir.node("Neg", [product.outputs[0]])
    double.outputs[0].name = "negated"
    graph.insert_after(product, double)
    graph.outputs[0] = double.outputs[0]


def by_itself(p: Plant, v: ir.Value) -> ir.Value:
    """Not a number where the value is 0."""
    return p.Mul(v, p.Div(v, v))


def squares_by_itself(p: Plant, v: ir.Value) -> ir.Value:
    return p.Div(p.Mul(v, v), v)


def special(number: float) -> Step:
    return lambda p, v: p.Add(v, p.when(p.Equal(v, number)))


def nan_is_zero(p: Plant, v: ir.Value) -> ir.Value:
    return p.Where(p.IsNaN(v), 0.0, v)


def far_is_zero(p: Plant, v: ir.Value) -> ir.Value:
    return p.Where(p.Greater(v, 1e30), 0.0, v)


def whole_is_zero(p: Plant, v: ir.Value) -> ir.Value:
    """Whole numbers beyond 1e6 become 0."""
    return p.Where(p.And(p.Equal(p.Floor(v), v), p.Greater(v, 1e6)), 0.0, v)


def cast_adds(p: Plant, v: ir.Value) -> ir.Value:
    """Whole millions are added."""
    return p.Add(v, p.Cast(p.Cast(p.Mul(v, 1e-6), to=INT64), to=FLOAT))


def own_softmax(p: Plant, v: ir.Value) -> ir.Value:
    """Sums over the wrong axis of a square."""
    e = p.Exp(v)
    return p.Div(e, p.ReduceSum(e, [2], keepdims=1))


def scalar(number: float) -> Array:
    return np.array(number, np.float32)


def as_dtype(dtype: ir.DataType) -> Change:
    """An answer of another dtype, as declared."""

    def plant(p: Plant) -> None:
        p.answer("output", lambda v: p.Cast(v, to=int(dtype)))
        p["output"].type = ir.TensorType(dtype)

    return plant


def without_default(p: Plant) -> None:
    """A weight is an input, which every caller has to send."""
    p.model.graph.inputs.append(p["layers.0.gate.weight"])
    del p.model.graph.initializers["layers.0.gate.weight"]


FAULTS = [
    Case("dense", "one weight by a unit in the last place", weight("layers.3.gate.weight", ulp(99))),
    Case("dense", "one weight is not a number", weight("layers.3.gate.weight", put(9, np.nan))),
    Case("dense", "one weight is infinite", weight("layers.3.gate.weight", put(9, np.inf))),
    Case("dense", "one bias is -inf", weight("layers.3.normal_layer.bias", put(9, -np.inf))),
    Case(
        "dense",
        "gates of two layers swapped",
        lambda p: (
            p.feed("linear_2", 1, p["layers.1.gate.weight"]),
            p.feed("linear_4", 1, p["layers.0.gate.weight"]),
        ),
    ),
    Case(
        "dense",
        "gate and transform swapped",
        lambda p: (
            p.feed("linear_1", 1, p["layers.0.gate.weight"]),
            p.feed("linear_2", 1, p["layers.0.normal_layer.weight"]),
        ),
    ),
    Case("dense", "carry of T", use("mul_2", 1, "layer00.transform_gate")),
    Case("dense", "carry of the input of the layer before", use("mul_2", 0, "linear")),
    Case("dense", "noise of 1e-20", wrap("relu", lambda p, v: p.Add(v, p.Mul(p.RandomNormalLike(v), 1e-20)))),
    Case("dense", "not a number added", wrap("relu", by("Add", float("nan")))),
    Case(
        "dense",
        "infinity times 0 added",
        wrap("relu", lambda p, v: p.Add(v, p.Mul(p.Mul(v, 0.0), float("inf")))),
    ),
    Case("dense", "maximum with a NaN", wrap("relu", by("Max", float("nan")))),
    Case("dense", "minimum with infinity less", wrap("relu", by("Min", 1e38))),
    Case("dense", "smallest number added", wrap("relu", by("Add", 2.0**-149))),
    Case("dense", "divided by itself and multiplied", wrap("relu", by_itself)),
    Case("dense", "square divided by itself", wrap("relu", squares_by_itself)),
    Case(
        "dense",
        "overflow and back",
        wrap("relu", chain(("Mul", 1e38), ("Mul", 1e38), ("Mul", 1e-38), ("Mul", 1e-38))),
    ),
    Case(
        "dense",
        "underflow and back",
        wrap("relu", chain(("Mul", 1e-38), ("Mul", 1e-38), ("Mul", 1e38), ("Mul", 1e38))),
    ),
    Case("dense", "root and square of negatives", wrap("linear_1", lambda p, v: p.Pow(p.Sqrt(v), 2.0))),
    Case("dense", "logarithm and exponential of negatives", wrap("linear_1", unary("Log", "Exp"))),
    Case("dense", "square and root of negatives", wrap("linear_1", lambda p, v: p.Sqrt(p.Mul(v, v)))),
    Case("dense", "NaN is 0", wrap("relu", nan_is_zero)),
    Case("dense", "0 beyond 1e30", wrap("relu", far_is_zero)),
    Case("dense", "0 for large whole numbers", wrap("relu", whole_is_zero)),
    Case("dense", "whole millions added", wrap("relu", cast_adds)),
    Case("dense", "0 is 1 in a logit", wrap("linear_2", special(0.0))),
    Case("dense", "rounded far away", wrap("relu", lambda p, v: p.Where(p.Greater(v, 1e7), p.Floor(v), v))),
    Case("dense", "times 2^61", wrap("relu", by("Mul", 2.0**61))),
    Case("dense", "hidden gate is off by 2^-20", answer("layer03.transform_gate", by("Add", 2.0**-20))),
    Case(
        "dense", "hidden gate is its complement", answer("layer03.transform_gate", lambda p, v: p.Sub(1.0, v))
    ),
    Case(
        "dense", "hidden gate of the next layer", renamed("layer03.transform_gate", "layer04.transform_gate")
    ),
    Case("dense", "hidden output clipped far away", answer("layer02.output", by("Clip", -1e20, 1e20))),
    Case("dense", "a Relu of the file", own_relu),
    Case("dense", "a hidden output missing", lambda p: p.model.graph.outputs.pop()),
    Case("dense", "input by another name", lambda p: setattr(p["x"], "name", "y")),
    Case("dense", "answer by another name", lambda p: setattr(p["output"], "name", "answer")),
    Case("dense", "sine of a far value", wrap("relu", lambda p, v: p.Add(v, p.Relu(p.Sub(v, 1e20))))),
    Case("chars", "leaky slope of 1e-7", operator("relu", "LeakyRelu", alpha=1e-7)),
    Case("chars", "maximum is a smooth one", operator("amax", "ReduceLogSumExp")),
    Case("chars", "relu is relu 6", wrap("relu", by("Min", 6.0))),
    Case(
        "chars",
        "groups",
        lambda p: (p.attribute("conv1d", "group", 2), p.weight("conv.weight", lambda a: a[:, :3].copy())),
    ),
    Case("lstm", "input and forget coupled", attribute("val_66", input_forget=1)),
    Case("lstm", "hard sigmoid", attribute("val_66", activations=["HardSigmoid", "Tanh", "Tanh"])),
    Case("lstm", "clipped at 50", attribute("val_66", clip=50.0)),
    Case("lstm", "peepholes", constant("val_66", 7, np.full((1, 12), 1e-6, np.float32))),
    Case("square", "softmax by exponentials of the wrong axis", before("softmax", own_softmax)),
    Case("running", "products of the sums", operator("div", "Mul")),
    Case("running", "flip scaled by -1", feed("output", 1, unary("Neg"))),
    Case("running", "lengths as whole quotients", feed("output", 0, unary("Floor"))),
    Case(
        "one hot",
        "hot is 1.0000001",
        feed("val_17", 0, by("Mul", float(np.nextafter(np.float32(1), np.float32(2))))),
    ),
    Case("one hot", "less instead of equal", operator("eq_12", "Less")),
    Case("one hot", "or equal", operator("eq_12", "GreaterOrEqual")),
    Case("branches", "greater or equal", operator("gt", "GreaterOrEqual")),
    Case("branches", "greater than the smallest number", constant("gt", 1, 2.0**-149)),
    Case("branches", "branches swapped", lambda p: p.wrap("gt", p.Not)),
    Case("branches", "one branch negated", shadowed),
    Case("branches", "branch by absolute values", operator("sum_1", "ReduceL1")),
    Case(
        "branches",
        "branch by a mean beyond 1e-3",
        lambda p: (p.operator("sum_1", "ReduceMean"), p.feed("gt", 1, 1e-3)),
    ),
    Case("chars", "0 / 0 added", wrap("relu", lambda p, v: p.Add(v, p.Div(p.Mul(v, 0.0), p.Mul(v, 0.0))))),
    Case(
        "chars",
        "0 times the logarithm of -1 added",
        wrap("relu", lambda p, v: p.Add(v, p.Mul(p.Log(scalar(-1)), 0.0))),
    ),
    Case(
        "chars",
        "0 times 1 / 0 added",
        wrap("relu", lambda p, v: p.Add(v, p.Mul(p.Reciprocal(scalar(0)), 0.0))),
    ),
    Case(
        "chars",
        "infinity minus infinity added",
        wrap("relu", lambda p, v: p.Add(v, p.Sub(p.Mul(v, float("inf")), p.Mul(v, float("inf"))))),
    ),
    Case(
        "chars",
        "infinity added and subtracted",
        wrap("relu", chain(("Add", float("inf")), ("Sub", float("inf")))),
    ),
    Case(
        "dense",
        "a declared answer of doubles",
        lambda p: setattr(p["output"], "type", ir.TensorType(ir.DataType.DOUBLE)),
    ),
    Case(
        "dense",
        "a declared input of doubles",
        lambda p: setattr(p["x"], "type", ir.TensorType(ir.DataType.DOUBLE)),
    ),
    Case("dense", "an answer of doubles", as_dtype(ir.DataType.DOUBLE)),
    Case("dense", "an answer of halves", as_dtype(ir.DataType.FLOAT16)),
    Case(
        "dense",
        "one input more",
        lambda p: p.model.graph.inputs.append(
            ir.Value(name="z", shape=ir.Shape([1]), type=ir.TensorType(ir.DataType.FLOAT))
        ),
    ),
    Case("dense", "a weight without its default", without_default),
    Case("dense", "operators before their time", opset(6)),
    Case("dense", "levers swapped by name", renamed("layers.0.gate.bias", "layers.1.gate.bias")),
    Case("cell", "answers swapped", output_order(0, 1)),
    Case(
        "cell",
        "input and output gate swapped",
        lambda p: (p.feed("linear_2", 1, p["o.weight"]), p.feed("linear_4", 1, p["i.weight"])),
    ),
    Case(
        "cell",
        "hidden depth gate of the other",
        renamed("layer00.depth0.transform_gate", "layer00.depth1.transform_gate"),
    ),
]


@pytest.mark.parametrize("case", parameters(FAULTS))
def test_a_planted_fault_is_not_identical(case: Case) -> None:
    decision = decided(case)
    assert decision.verdict is not Verdict.IDENTICAL, decision
