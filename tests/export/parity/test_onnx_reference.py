"""Graphs evaluated by onnx's reference evaluator: entirely in float64, and only what is needed."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from turnpike.export.gates.instrument import Origin
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.parity.batches import ProofBatch
from turnpike.export.parity.onnx_reference import ORT_NOISE, GraphEvaluator, OnnxReference, keep_only
from turnpike.export.parity.reference import RejectedError

THIRD = np.float32(1 / 3)


def model(
    nodes: list[onnx.NodeProto], output: str, *, overridable: bool = False, **weights: np.ndarray
) -> onnx.ModelProto:
    """A graph with an input x [batch, 2]; its weights may be inputs with a default."""
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
def test_all_float32_values_become_float64(nodes: list[onnx.NodeProto]) -> None:
    """Weights, casts and literals; native evaluation stays float32."""
    evaluator = GraphEvaluator(model(nodes, "y", three=np.float32([3.0])), ["y"])
    float64 = evaluator.run({"x": X}, float64=True)["y"]
    assert float64.dtype == np.float64
    np.testing.assert_array_equal(float64, X.astype(np.float64) / 3)
    native = evaluator.run({"x": X}, float64=False)["y"]
    assert native.dtype == np.float32


def test_only_requested_values_are_computed() -> None:
    """An operator that the evaluator cannot run does no harm if no requested value needs it."""
    nodes = [
        helper.make_node("Relu", ["x"], ["inner"]),
        helper.make_node("NoSuchThing", ["inner"], ["y"], domain="nowhere"),
    ]
    values = GraphEvaluator(model(nodes, "y"), ["inner", "x"]).run({"x": -X}, float64=True)
    assert list(values) == ["inner", "x"]
    assert not values["inner"].any()


def test_an_overridable_bias_has_a_default() -> None:
    """A run need not feed it."""
    proto = model([helper.make_node("Add", ["x", "b"], ["y"])], "y", overridable=True, b=np.float32([1, 2]))
    np.testing.assert_allclose(GraphEvaluator(proto, ["y"]).run({"x": X}, float64=True)["y"], [[1.1, 2.7]])
    graph = ir.from_proto(proto)
    keep_only(graph, ["y"])
    assert [value.name for value in graph.graph.inputs] == ["x"]


def reference_for(proto: onnx.ModelProto, origins: dict[str, Origin]) -> OnnxReference:
    network = Network("s", "onnx", parse_inputs(["x:float32[batch,2]"]), graph=proto)
    changed = ir.from_proto(proto)
    for value in changed.graph.outputs:
        value.name = "renamed"
    return OnnxReference(network, changed, origins)


BATCH = ProofBatch("b", 1, {"x": X}, {"x": 0})


def test_an_onnx_source_is_its_own_reference() -> None:
    """Values are found by their names in the file, and complements of gates are computed."""
    proto = model(
        [helper.make_node("Sigmoid", ["x"], ["g"]), helper.make_node("Mul", ["x", "g"], ["y"])], "y"
    )
    reference = reference_for(proto, {"c": Origin("g"), "t": Origin("g", scale=-1.0, offset=1.0)})
    float64 = reference.float64(BATCH)
    g = 1 / (1 + np.exp(-X.astype(np.float64)))
    np.testing.assert_allclose(float64["renamed"], X * g, rtol=1e-15)
    np.testing.assert_allclose(float64["c"], g, rtol=1e-15)
    np.testing.assert_allclose(float64["t"], 1 - g, rtol=1e-15)
    assert reference.native(BATCH)["t"].dtype == np.float32
    assert reference.description == "the graph as it came, by onnx's reference evaluator in float64"
    assert (reference.noise, reference.warnings) == (0.0, ())


def test_onnxruntime_replaces_an_evaluator_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The description and a warning say so, and the noise is that of float32."""

    def fail(self: GraphEvaluator, feeds: object, *, float64: bool) -> None:
        raise NotImplementedError("no Relu here")

    monkeypatch.setattr(GraphEvaluator, "run", fail)
    reference = reference_for(model([helper.make_node("Relu", ["x"], ["y"])], "y"), {})
    np.testing.assert_array_equal(reference.native(BATCH)["renamed"], X)
    np.testing.assert_array_equal(reference.float64(BATCH)["renamed"], X)
    assert reference.noise == ORT_NOISE
    assert reference.description == "the graph as it came, by onnxruntime alone"
    assert "cannot run the graph (no Relu here)" in reference.warnings[0]


def test_a_batch_that_the_graph_does_not_accept_is_rejected() -> None:
    reference = reference_for(
        model([helper.make_node("Add", ["x", "b"], ["y"])], "y", b=np.float32([1, 2])), {}
    )
    with pytest.raises(RejectedError):
        reference.native(ProofBatch("b", 1, {"x": np.zeros((1, 3), np.float32)}, {"x": 0}))
    assert reference.native(BATCH)["renamed"].shape == (1, 2)
    assert reference.warnings == ()
