"""Lower precision: what the files still offer, that they are near fp32, and that rows stay apart."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from export.errors import PrecisionError
from export.precision.lower import LowPrecision, lower
from export.source import Rows
from service.artifact.levers import override_biases
from service.artifact.runtime import open_model
from tests.support.tiny_highway import Gated, highway

BOTH = pytest.mark.parametrize("precision", ["fp16", "int8"])


@pytest.fixture(scope="module")
def net() -> Gated:
    return highway(layers=4, units=32, inputs=16)


def rows_of(count: int, inputs: int = 16) -> Rows:
    x = np.random.default_rng(1).normal(size=(count, inputs)).astype(np.float32)
    return Rows({"x": x})


def with_metadata(model: bytes) -> bytes:
    proto = onnx.load_model_from_string(model)
    helper.set_model_props(proto, {"made by": "hand"})
    return proto.SerializeToString()


def lone(
    nodes: list[onnx.NodeProto],
    weights: dict[str, np.ndarray],
    dims: tuple[int | str, ...],
    version: int = 20,
) -> bytes:
    """A graph of a few nodes from x to y."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = [helper.make_opsetid("", version)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()


@BOTH
def test_the_file_offers_what_it_did(net: Gated, precision: LowPrecision) -> None:
    """Inputs, outputs, hidden outputs, levers and metadata keep their names, shapes and float32."""
    made = lower(with_metadata(net.model), precision)
    onnx.checker.check_model(onnx.load_model_from_string(made), full_check=True)
    before, after = net.open(), open_model(made)
    assert after.inputs == before.inputs
    assert after.outputs == before.outputs
    assert after.levers == before.levers
    assert [prop.value for prop in onnx.load_model_from_string(made).metadata_props] == ["hand"]
    assert len(made) < len(net.model)


@BOTH
def test_the_same_file_comes_out_every_time(net: Gated, precision: LowPrecision) -> None:
    """Two makings of one variant are byte-identical."""
    assert lower(net.model, precision) == lower(net.model, precision)


@BOTH
def test_answers_and_gates_are_near(net: Gated, precision: LowPrecision) -> None:
    """Outputs and every hidden output are fp32's up to what so few bits can hold, and are not fp32's own."""
    rows = rows_of(50)
    bound = 2e-3 if precision == "fp16" else 3e-2
    names = [tensor.name for tensor in net.open().outputs]
    assert len(names) == 9
    for a, b in zip(
        net.open().run(rows.inputs, names),
        open_model(lower(net.model, precision)).run(rows.inputs, names),
        strict=True,
    ):
        assert 0 < np.abs(a - b).max() < bound


@BOTH
def test_levers_still_close_and_open(net: Gated, precision: LowPrecision) -> None:
    """In a variant, too, the bias of a gate can be overridden: T becomes exactly 0 or 1."""
    runtime, rows = open_model(lower(net.model, precision)), rows_of(5)
    gate = net.gates[2]
    closed = runtime.run(
        {**rows.inputs, **override_biases(net.biases, closed=[gate])}, [gate.name, "layer02.output"]
    )
    assert (closed[0] == 0).all()
    carried = runtime.run(rows.inputs, ["layer01.output"])[0]
    assert np.array_equal(closed[1], carried)
    assert (
        runtime.run({**rows.inputs, **override_biases(net.biases, opened=[gate])}, [gate.name])[0] == 1
    ).all()


@BOTH
def test_rows_do_not_touch_each_other(net: Gated, precision: LowPrecision) -> None:
    """A row's answer is the same alone, beside huge rows, and beside NaN; a row of NaN answers NaN."""
    runtime = open_model(lower(net.model, precision))
    x = rows_of(8).inputs["x"]
    alone = runtime.run({"x": x[:1]})[0]
    beside = x.copy()
    beside[2] *= 1e4
    beside[3, 5] = np.nan
    beside[4, 7] = np.inf
    answer = runtime.run({"x": beside})[0]
    np.testing.assert_allclose(answer[0], alone[0], rtol=0, atol=1e-3 if precision == "fp16" else 0)
    assert np.isnan(answer[3]).all()
    assert not np.isfinite(answer[4]).all()
    assert np.isfinite(answer[[0, 1, 2, 5, 6, 7]]).all()


def test_int8_rounds_as_it_should() -> None:
    """One matrix worked out: rows and channels by their largest sizes, sums in whole numbers."""
    x = np.array([[127.0, -63.4, 0.6], [0.0, 0.0, 0.0]], np.float32)
    w = np.array([[127.0, 1.0], [2.0, -127.0], [3.0, 2.0]], np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    got = open_model(lower(lone([node], {"w": w}, ("batch", 3)), "int8")).run({"x": x})[0]
    whole = np.array([[127, -63, 1], [0, 0, 0]])
    np.testing.assert_allclose(got, whole @ w, rtol=1e-6)


@pytest.mark.parametrize("version", [17, 18])
def test_int8_is_written_as_the_opset_has_it(version: int) -> None:
    """Of which older ones know some operators in another form."""
    weight = np.eye(4, dtype=np.float32)
    model = lone([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weight}, ("n", 4), version)
    rows = rows_of(3, 4).inputs
    assert np.allclose(open_model(lower(model, "int8")).run(rows)[0], rows["x"], atol=0.02)


@pytest.mark.parametrize("dims", [("batch", 3), ("batch", "words", 3)])
@pytest.mark.parametrize("form", ["plain", "turned", "twice"])
def test_int8_finds_weights_in_every_form(form: str, dims: tuple[int | str, ...]) -> None:
    """A weight as it is, behind a Transpose, and used twice; rows of texts have scales of their own."""
    w = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "v" if form == "turned" else "w"], ["z"])]
    if form == "turned":
        nodes.insert(0, helper.make_node("Transpose", ["w"], ["v"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["z", "w"] if form == "twice" else ["z", "u"], ["y"]))
    model = lone(nodes, {"w": w, **({} if form == "twice" else {"u": np.eye(3, dtype=np.float32)})}, dims)
    made = onnx.load_model_from_string(lower(model, "int8"))
    kinds = [node.op_type for node in made.graph.node]
    assert (kinds.count("MatMulInteger"), kinds.count("MatMul"), kinds.count("Transpose")) == (2, 0, 0)
    assert [i.data_type for i in made.graph.initializer].count(TensorProto.INT8) == (
        1 if form == "twice" else 2
    )
    x = np.random.default_rng(1).normal(size=(*(4, 2)[: len(dims) - 1], 3)).astype(np.float32)
    want, got = (open_model(m).run({"x": x})[0] for m in (model, made.SerializeToString()))
    np.testing.assert_allclose(got, want, atol=0.05)


@pytest.mark.parametrize("attributes", [{"alpha": 0.5}, {"beta": 2.0}, {"transA": 1}])
def test_int8_leaves_alone_what_it_does_not_know(attributes: dict[str, float]) -> None:
    """A Gemm that scales or turns what it multiplies stays in float32; with nothing else, that is said."""
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], **attributes)
    weights = {"w": np.ones((3, 3), np.float32), "b": np.ones(3, np.float32)}
    with pytest.raises(PrecisionError, match="this one has none"):
        lower(lone([node], weights, (3, 3)), "int8")


def test_int8_leaves_alone_what_a_caller_may_override() -> None:
    """A weight that is an input of the graph has no fixed values to round."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    proto = onnx.load_model_from_string(lone([node], {"w": np.eye(3, dtype=np.float32)}, (3, 3)))
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, (3, 3)))
    with pytest.raises(PrecisionError, match="this one has none"):
        lower(proto.SerializeToString(), "int8")


def test_fp16_says_the_right_types_of_what_stays_in_float32() -> None:
    """Around an operator that is kept in float32 (Max) the checker finds no contradiction."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("Max", ["z", "least"], ["m"]),
        helper.make_node("Exp", ["m"], ["y"]),
    ]
    weights = {"w": np.eye(3, dtype=np.float32), "least": np.zeros((), np.float32)}
    proto = onnx.load_model_from_string(lone(nodes, weights, (3, 3)))
    proto.graph.value_info.append(helper.make_tensor_value_info("least", TensorProto.FLOAT, ()))
    made = lower(proto.SerializeToString(), "fp16")
    onnx.checker.check_model(onnx.load_model_from_string(made), full_check=True)
    x = np.ones((3, 3), np.float32)
    got = open_model(made).run({"x": x})[0]
    np.testing.assert_allclose(got, np.exp(np.ones((3, 3))), rtol=1e-3)
