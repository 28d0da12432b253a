"""Graphs by the reference evaluator: in float64 through and through, and only what is asked."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.gates.instrument import Origin
from export.input_spec import parse_inputs
from export.parity.batches import ProofBatch
from export.parity.onnx_reference import ORT_NOISE, GraphEvaluator, OnnxReference, keep_only
from export.parity.reference import RejectedError
from export.source import Source

THIRD = np.float32(1 / 3)


def model(
    nodes: list[onnx.NodeProto], output: str, *, overridable: bool = False, **weights: np.ndarray
) -> onnx.ModelProto:
    """A graph of an input x [batch, 2]; its weights may be inputs with a default."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])
    y = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    levers = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors if overridable]
    graph = helper.make_graph(nodes, "g", [x, *levers], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


X = np.float32([[0.1, 0.7]])


@pytest.mark.parametrize(
    "nodes",
    [
        [helper.make_node("Div", ["x", "three"], ["y"])],
        [
            helper.make_node("Cast", ["x"], ["c"], to=TensorProto.FLOAT),
            helper.make_node("Div", ["c", "three"], ["y"]),
        ],
        [
            helper.make_node("Constant", [], ["c"], value_float=3.0),
            helper.make_node("Div", ["x", "c"], ["y"]),
        ],
        [
            helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.float32([3.0]))),
            helper.make_node("Div", ["x", "c"], ["y"]),
        ],
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node(
                "ConstantOfShape", ["s"], ["c"], value=numpy_helper.from_array(np.float32([3.0]))
            ),
            helper.make_node("Div", ["x", "c"], ["y"]),
        ],
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("ConstantOfShape", ["s"], ["nothing"]),
            helper.make_node("Add", ["x", "nothing"], ["c"]),
            helper.make_node("Div", ["c", "three"], ["y"]),
        ],
        [
            helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
            helper.make_node("Cast", ["h"], ["c"], to=TensorProto.FLOAT),
            helper.make_node("Div", ["c", "three"], ["y"]),
        ],
    ],
    ids=["weight", "cast", "literal", "constant", "filled", "empty", "half"],
)
def test_every_narrow_number_is_widened(nodes: list[onnx.NodeProto]) -> None:
    """Weights, casts and literals alike; the graph's own precision stays beside it."""
    evaluator = GraphEvaluator(model(nodes, "y", three=np.float32([3.0])), ["y"])
    wide = evaluator.run({"x": X}, wide=True)["y"]
    assert wide.dtype == np.float64
    np.testing.assert_array_equal(wide, X.astype(np.float64) / 3)
    own = evaluator.run({"x": X}, wide=False)["y"]
    assert own.dtype == np.float32


def test_only_what_is_asked_is_worked_out() -> None:
    """An operator that the evaluator cannot run does no harm where nothing wanted needs it."""
    nodes = [
        helper.make_node("Relu", ["x"], ["inner"]),
        helper.make_node("NoSuchThing", ["inner"], ["y"], domain="nowhere"),
    ]
    found = GraphEvaluator(model(nodes, "y"), ["inner", "x"]).run({"x": -X}, wide=True)
    assert list(found) == ["inner", "x"]
    assert not found["inner"].any()


def test_a_bias_that_may_be_overridden_is_a_weight() -> None:
    """It need not be fed."""
    made = model([helper.make_node("Add", ["x", "b"], ["y"])], "y", overridable=True, b=np.float32([1, 2]))
    np.testing.assert_allclose(GraphEvaluator(made, ["y"]).run({"x": X}, wide=True)["y"], [[1.1, 2.7]])
    graph = ir.from_proto(made)
    keep_only(graph, ["y"])
    assert [value.name for value in graph.graph.inputs] == ["x"]


def truth(made: onnx.ModelProto, origins: dict[str, Origin]) -> OnnxReference:
    source = Source("s", "onnx", parse_inputs(["x:float32[batch,2]"]), graph=made)
    changed = ir.from_proto(made)
    for value in changed.graph.outputs:
        value.name = "called"
    return OnnxReference(source, changed, origins)


BATCH = ProofBatch("b", 1, {"x": X}, {"x": 0})


def test_an_adopted_graph_is_its_own_truth() -> None:
    """By the values' names before anything was renamed, complements of gates worked out."""
    made = model([helper.make_node("Sigmoid", ["x"], ["g"]), helper.make_node("Mul", ["x", "g"], ["y"])], "y")
    found = truth(made, {"c": Origin("g"), "t": Origin("g", complement=True)})
    wide = found.wide(BATCH)
    g = 1 / (1 + np.exp(-X.astype(np.float64)))
    np.testing.assert_allclose(wide["called"], X * g, rtol=1e-15)
    np.testing.assert_allclose(wide["c"], g, rtol=1e-15)
    np.testing.assert_allclose(wide["t"], 1 - g, rtol=1e-15)
    assert found.own(BATCH)["t"].dtype == np.float32
    assert found.reference == "the graph as it came, by onnx's reference evaluator in float64"
    assert (found.noise, found.warnings) == (0.0, ())


def test_where_the_evaluator_cannot_onnxruntime_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record says so, there is a warning, and the truth is as noisy as single precision."""

    def unable(self: GraphEvaluator, feeds: object, *, wide: bool) -> None:
        raise NotImplementedError("no Relu here")

    monkeypatch.setattr(GraphEvaluator, "run", unable)
    found = truth(model([helper.make_node("Relu", ["x"], ["y"])], "y"), {})
    np.testing.assert_array_equal(found.own(BATCH)["called"], X)
    np.testing.assert_array_equal(found.wide(BATCH)["called"], X)
    assert found.noise == ORT_NOISE
    assert found.reference == "the graph as it came, by onnxruntime alone"
    assert "cannot run the graph (no Relu here)" in found.warnings[0]


def test_a_batch_that_the_graph_does_not_take_is_rejected() -> None:
    """Whichever way it is run."""
    found = truth(model([helper.make_node("Add", ["x", "b"], ["y"])], "y", b=np.float32([1, 2])), {})
    with pytest.raises(RejectedError):
        found.own(ProofBatch("b", 1, {"x": np.zeros((1, 3), np.float32)}, {"x": 0}))
    assert found.own(BATCH)["called"].shape == (1, 2)
    assert found.warnings == ()
