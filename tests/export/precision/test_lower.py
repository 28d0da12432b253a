"""Lower precision: the files keep their interface, stay close to fp32, and keep rows independent."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.tiny_highway import Gated, highway
from turnpike.export.errors import PrecisionError
from turnpike.export.network import Rows
from turnpike.export.precision.lower import LowPrecision, lower
from turnpike.service.artifact.levers import override_biases
from turnpike.service.artifact.runtime import open_model

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


def graph_of(
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
def test_lowering_keeps_the_interface(net: Gated, precision: LowPrecision) -> None:
    """Inputs, outputs, hidden outputs, levers and metadata keep their names, shapes and float32."""
    lowered = lower(with_metadata(net.model), precision)
    onnx.checker.check_model(onnx.load_model_from_string(lowered), full_check=True)
    before, after = net.open(), open_model(lowered)
    assert after.inputs == before.inputs
    assert after.outputs == before.outputs
    assert after.levers == before.levers
    assert [prop.value for prop in onnx.load_model_from_string(lowered).metadata_props] == ["hand"]
    assert len(lowered) < len(net.model)


@BOTH
def test_lowering_is_reproducible(net: Gated, precision: LowPrecision) -> None:
    assert lower(net.model, precision) == lower(net.model, precision)


@BOTH
def test_outputs_and_gates_stay_close_to_fp32(net: Gated, precision: LowPrecision) -> None:
    """Every output is close to fp32's, as far as so few bits allow, but not identical."""
    rows = rows_of(50)
    bound = 2e-3 if precision == "fp16" else 5e-2
    names = [tensor.name for tensor in net.open().outputs]
    assert len(names) == 9
    for fp32, variant in zip(
        net.open().run(rows.inputs, names),
        open_model(lower(net.model, precision)).run(rows.inputs, names),
        strict=True,
    ):
        assert 0 < np.abs(fp32 - variant).max() < bound


@BOTH
def test_levers_of_a_variant_close_and_open_gates(net: Gated, precision: LowPrecision) -> None:
    """Overriding a gate's bias makes T exactly 0 or 1 in a variant too."""
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
def test_rows_of_a_variant_are_independent(net: Gated, precision: LowPrecision) -> None:
    """A row's answer is the same alone, beside huge rows, and beside NaN; a row with NaN gives NaN."""
    runtime = open_model(lower(net.model, precision))
    x = rows_of(8).inputs["x"]
    alone = runtime.run({"x": x[:1]})[0]
    neighbors = x.copy()
    neighbors[2] *= 1e4
    neighbors[3, 5] = np.nan
    neighbors[4, 7] = np.inf
    outputs = runtime.run({"x": neighbors})[0]
    np.testing.assert_allclose(outputs[0], alone[0], rtol=0, atol=1e-3 if precision == "fp16" else 0)
    assert np.isnan(outputs[3]).all()
    assert not np.isfinite(outputs[4]).all()
    assert np.isfinite(outputs[[0, 1, 2, 5, 6, 7]]).all()


def test_int8_rounding_worked_out_by_hand() -> None:
    """One matrix worked out by hand: scales from the largest magnitude of rows and channels."""
    x = np.array([[127.0, -63.4, 0.6], [0.0, 0.0, 0.0]], np.float32)
    w = np.array([[64.0, 1.0], [2.0, -64.0], [3.0, 2.0]], np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    actual = open_model(lower(graph_of([node], {"w": w}, ("batch", 3)), "int8")).run({"x": x})[0]
    quantized = np.array([[127, -63, 1], [0, 0, 0]])
    np.testing.assert_allclose(actual, quantized @ w, rtol=1e-6)


def test_int8_sums_of_the_largest_products_are_exact() -> None:
    """CPUs without VNNI add two products in 16 bits, which must not saturate."""
    x, w = np.full((1, 4), 127.0, np.float32), np.full((4, 2), 64.0, np.float32)
    model = graph_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": w}, ("batch", 4))
    quantized = onnx.load_model_from_string(lower(model, "int8"))
    (stored,) = [i for i in quantized.graph.initializer if i.name.endswith(".int8")]
    largest = int(np.abs(onnx.numpy_helper.to_array(stored).astype(int)).max())
    assert 2 * 255 * largest <= np.iinfo(np.int16).max
    np.testing.assert_allclose(open_model(lower(model, "int8")).run({"x": x})[0], x @ w, rtol=1e-6)


@pytest.mark.parametrize("version", [17, 18])
def test_int8_uses_operators_of_the_opset(version: int) -> None:
    """Older opsets pass the axes of ReduceMax as an attribute."""
    weight = np.eye(4, dtype=np.float32)
    model = graph_of([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weight}, ("n", 4), version)
    rows = rows_of(3, 4).inputs
    assert np.allclose(open_model(lower(model, "int8")).run(rows)[0], rows["x"], atol=0.02)


@pytest.mark.parametrize("dims", [("batch", 3), ("batch", "words", 3)])
@pytest.mark.parametrize("form", ["plain", "transposed", "twice"])
def test_int8_finds_weights_in_every_form(form: str, dims: tuple[int | str, ...]) -> None:
    """A plain weight, one behind a Transpose, and one used twice; words of a text have their own scales."""
    w = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "v" if form == "transposed" else "w"], ["z"])]
    if form == "transposed":
        nodes.insert(0, helper.make_node("Transpose", ["w"], ["v"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["z", "w"] if form == "twice" else ["z", "u"], ["y"]))
    model = graph_of(nodes, {"w": w, **({} if form == "twice" else {"u": np.eye(3, dtype=np.float32)})}, dims)
    lowered = onnx.load_model_from_string(lower(model, "int8"))
    kinds = [node.op_type for node in lowered.graph.node]
    assert (kinds.count("MatMulInteger"), kinds.count("MatMul"), kinds.count("Transpose")) == (2, 0, 0)
    assert [tensor.data_type for tensor in lowered.graph.initializer].count(TensorProto.INT8) == (
        1 if form == "twice" else 2
    )
    x = np.random.default_rng(1).normal(size=(*(4, 2)[: len(dims) - 1], 3)).astype(np.float32)
    expected, actual = (open_model(data).run({"x": x})[0] for data in (model, lowered.SerializeToString()))
    np.testing.assert_allclose(actual, expected, atol=0.05)


@pytest.mark.parametrize("attributes", [{"alpha": 0.5}, {"beta": 2.0}, {"transA": 1}])
def test_int8_keeps_scaling_and_transposing_gemms(attributes: dict[str, float]) -> None:
    """A Gemm that scales or transposes its inputs stays in float32."""
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], **attributes)
    weights = {"w": np.ones((3, 3), np.float32), "b": np.ones(3, np.float32)}
    with pytest.raises(PrecisionError, match="got one without any"):
        lower(graph_of([node], weights, (3, 3)), "int8")


def test_int8_keeps_overridable_weights() -> None:
    """A weight that is an input of the graph has no fixed values to quantize."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    proto = onnx.load_model_from_string(graph_of([node], {"w": np.eye(3, dtype=np.float32)}, (3, 3)))
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, (3, 3)))
    with pytest.raises(PrecisionError, match="got one without any"):
        lower(proto.SerializeToString(), "int8")


def test_fp16_declares_correct_types_around_float32_operators() -> None:
    """The checker finds no contradiction around an operator that is kept in float32 (Max)."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["z"]),
        helper.make_node("Max", ["z", "floor"], ["m"]),
        helper.make_node("Exp", ["m"], ["y"]),
    ]
    weights = {"w": np.eye(3, dtype=np.float32), "floor": np.zeros((), np.float32)}
    proto = onnx.load_model_from_string(graph_of(nodes, weights, (3, 3)))
    proto.graph.value_info.append(helper.make_tensor_value_info("floor", TensorProto.FLOAT, ()))
    lowered = lower(proto.SerializeToString(), "fp16")
    onnx.checker.check_model(onnx.load_model_from_string(lowered), full_check=True)
    x = np.ones((3, 3), np.float32)
    actual = open_model(lowered).run({"x": x})[0]
    np.testing.assert_allclose(actual, np.exp(np.ones((3, 3))), rtol=1e-3)


def test_fp16_refuses_loops() -> None:
    """The converter gives their bodies the wrong types, and onnxruntime would crash."""
    body = helper.make_graph(
        [helper.make_node("Add", ["h", "x_t"], ["next"]), helper.make_node("Identity", ["next"], ["out"])],
        "step",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (3,)) for name in ("h", "x_t")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (3,)) for name in ("next", "out")],
    )
    node = helper.make_node("Scan", ["h0", "x"], ["last", "y"], num_scan_inputs=1, body=body)
    data = graph_of([node], {"h0": np.zeros(3, np.float32)}, (3, 3))
    with pytest.raises(PrecisionError, match="without loops and branches, got Scan"):
        lower(data, "fp16")


def test_fp16_prepares_large_inputs_in_float32() -> None:
    """Days since 1970 and a number above the range of fp16 are standardized before they lose their digits.

    The constant `two` is also read after the multiplication, and `both` is computed of constants.
    """
    nodes = [
        helper.make_node("Add", ["half", "half"], ["both"]),
        helper.make_node("Sub", ["x", "shift"], ["moved"]),
        helper.make_node("Mul", ["moved", "scale"], ["standard"]),
        helper.make_node("Mul", ["standard", "two"], ["doubled"]),
        helper.make_node("Mul", ["doubled", "both"], ["ready"]),
        helper.make_node("MatMul", ["ready", "weight"], ["sums"]),
        helper.make_node("Mul", ["sums", "two"], ["y"]),
    ]
    shift, scale = np.array([17_000, 2_000_000], np.float32), np.array([1 / 400, 1 / 300_000], np.float32)
    weight = np.array([[0.5, -1.5], [1, 0.25]], np.float32)
    half, two = np.array([0.5], np.float32), np.array([2], np.float32)
    constants = {"half": half, "shift": shift, "scale": scale, "two": two, "weight": weight}
    model = graph_of(nodes, constants, ("batch", 2))
    draw = np.random.default_rng(2)
    rows = (shift + draw.normal(size=(50, 2)) / scale).astype(np.float32)
    expected, actual = (open_model(file).run({"x": rows}, ["y"])[0] for file in (model, lower(model, "fp16")))
    np.testing.assert_allclose(actual, expected, rtol=0.01, atol=0.01)
    types = {t.name: t.data_type for t in onnx.load_model_from_string(lower(model, "fp16")).graph.initializer}
    assert types["weight"] == TensorProto.FLOAT16


def test_fp16_keeps_an_output_of_the_preparation() -> None:
    """What is computed of the inputs alone may be an output, and so may be what a caller may override."""
    nodes = [
        helper.make_node("Add", ["x", "bias"], ["moved"]),
        helper.make_node("Mul", ["moved", "two"], ["y"]),
        helper.make_node("Mul", ["x", "two"], ["doubled"]),
    ]
    model = onnx.load_model_from_string(
        graph_of(nodes, {"bias": np.array([1], np.float32), "two": np.array([2], np.float32)}, ("batch", 2))
    )
    model.graph.input.append(helper.make_tensor_value_info("bias", TensorProto.FLOAT, [1]))
    model.graph.output.append(helper.make_tensor_value_info("doubled", TensorProto.FLOAT, ("batch", 2)))
    lowered = open_model(lower(model.SerializeToString(), "fp16"))
    x = np.array([[1, 2]], np.float32)
    assert lowered.run({"x": x}, ["y"])[0].tolist() == [[4, 6]]
    assert lowered.run({"x": x}, ["doubled"])[0].tolist() == [[2, 4]]
    assert lowered.run({"x": x, "bias": np.array([3], np.float32)}, ["y"])[0].tolist() == [[8, 10]]
