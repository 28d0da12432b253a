"""Gates of graphs that were not written by torch: from old exporters, other tools, and by hand."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.highways.onnx_text import (
    DIVIDED,
    FUSED_LINEAR,
    HAND_WRITTEN,
    INTERLEAVED,
    JAX,
    JOINED,
    JOINED_AND_DOUBLED,
    JOINED_AND_SCALED,
    JOINED_LOGITS,
    JOINED_MEAN,
    JOINED_WITH_UNKNOWN,
    KERAS,
    TORCHSCRIPT,
    UNKNOWN_RANK,
    WITHOUT_BIAS,
    model_from_text,
    weights_of,
)
from tests.support.gate_graphs import instrument_proto
from turnpike.export.gates.algebra.logits import MAX_LOGIT_DEPTH
from turnpike.export.gates.instrument import instrument

ROWS = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


@pytest.mark.parametrize(
    "text",
    [TORCHSCRIPT, JAX, KERAS, HAND_WRITTEN, DIVIDED, FUSED_LINEAR, JOINED, JOINED_AND_SCALED, JOINED_MEAN],
    ids=[
        *("TorchScript", "JAX", "Keras", "written by hand", "with a division", "fused Linear", "joined"),
        *("joined and scaled", "twice the mean"),
    ],
)
def test_every_way_to_write_a_highway_is_recognized(text: str) -> None:
    """There is one coupled gate with the identity carry, and T is as computed from the weights."""
    proto = model_from_text(text)
    model, instrumentation, runtime = instrument_proto(proto)
    w = weights_of(proto)
    (gate,) = instrumentation.gates
    assert (gate.kind, gate.carry, gate.unit_axis, gate.units) == ("coupled", "identity", -1, 4)
    assert not instrumentation.warnings
    t = sigmoid(ROWS @ w["w_t"] + w["b_t"])
    np.testing.assert_allclose(runtime.run({"x": ROWS}, [gate.name])[0], t, atol=1e-6)
    (lever,) = gate.levers
    value = model.graph.initializers[lever.tensor].const_value
    assert value is not None
    bias = value.numpy().copy()
    bias[lever.start : lever.stop] += lever.sign * np.float32(-1e4)
    (y,) = runtime.run({"x": ROWS, lever.tensor: bias}, ["y"])
    np.testing.assert_array_equal(y, ROWS)


def test_a_factor_of_all_joined_branches_is_a_factor_of_each() -> None:
    """The output is 2 t h + (1 - t) 2 x: a highway that carries twice its input."""
    proto = model_from_text(JOINED_AND_DOUBLED)
    _, instrumentation, runtime = instrument_proto(proto)
    (gate,) = instrumentation.gates
    assert (gate.kind, gate.carry) == ("coupled", "projected")
    w = weights_of(proto)
    t = sigmoid(ROWS @ w["w_t"] + w["b_t"])
    np.testing.assert_allclose(runtime.run({"x": ROWS}, [gate.name])[0], t, atol=1e-6)


@pytest.mark.parametrize(("nodes", "found"), [(MAX_LOGIT_DEPTH, True), (MAX_LOGIT_DEPTH + 1, False)])
def test_a_bias_is_found_behind_many_nodes(nodes: int, found: bool) -> None:
    """As many as the limit allows; behind more of them the gate is found without it."""
    negations = "".join(f"    n{number} = Neg (n{number - 1})\n" for number in range(2, nodes))
    text = TORCHSCRIPT.replace(
        "v11 = Sigmoid (v10)", f"n1 = Neg (v10)\n{negations}    v11 = Sigmoid (n{nodes - 1})"
    )
    proto = model_from_text(text)
    _, instrumentation, _ = instrument_proto(proto)
    (gate,) = instrumentation.gates
    sign = -1 if nodes % 2 == 0 else 1
    assert (gate.bias is not None) == found
    if gate.bias is not None:
        assert gate.bias.mean == pytest.approx(sign * weights_of(proto)["b_t"].mean())


@pytest.mark.parametrize("units", [4, 5])
def test_a_bias_in_many_pieces_is_not_used(units: int) -> None:
    """The units of T and of H take turns. Up to four pieces are levers, else the gate gets a new bias."""
    proto = onnx.parser.parse_model(INTERLEAVED.replace("UNITS", str(units)))
    random = np.random.default_rng(0)
    for name, shape in {"w": (units, 2 * units), "b": (2 * units,)}.items():
        data = random.normal(size=shape).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(data, name))
    _, instrumentation, _ = instrument_proto(proto)
    (gate,) = instrumentation.gates
    pieces = [("b", start, start + 1) for start in range(0, 8, 2)]
    expected = pieces if units == 4 else [("layer00.transform_gate.bias", 0, 5)]
    assert [(lever.tensor, lever.start, lever.stop) for lever in gate.levers] == expected


def test_a_bias_that_is_joined_with_a_part_of_unknown_length_is_left_out() -> None:
    """Which units it belongs to cannot be known, so the gate has neither a bias nor a lever."""
    _, instrumentation, _ = instrument_proto(model_from_text(JOINED_WITH_UNKNOWN))
    (gate,) = instrumentation.gates
    assert (gate.kind, gate.units, gate.bias, gate.levers) == ("coupled", None, None, ())


@pytest.mark.parametrize("axis", [1, -1])
def test_joined_biases_keep_their_places(axis: int) -> None:
    """The logit is joined of two linear maps. The first bias is that of its first units."""
    proto = model_from_text(JOINED_LOGITS.replace("AXIS", str(axis)))
    model, instrumentation, runtime = instrument_proto(proto)
    (gate,) = instrumentation.gates
    w = weights_of(proto)
    assert gate.units == 8
    assert gate.bias is not None
    assert (gate.bias.min, gate.bias.max) == pytest.approx(
        (min(w["b_t"].min(), w["b_c"].min()), max(w["b_t"].max(), w["b_c"].max()))
    )
    (lever,) = gate.levers
    bias = np.zeros(model.graph.initializers[lever.tensor].const_value.numpy().shape, np.float32)
    bias[..., 4:] = 3
    z = np.concatenate([ROWS @ w["w_t"] + w["b_t"], ROWS @ w["w_c"] + w["b_c"] + 3], 1)
    (t,) = runtime.run({"x": ROWS, lever.tensor: bias}, [gate.name])
    np.testing.assert_allclose(t, sigmoid(z), atol=1e-6)


def test_new_values_have_names_of_their_own() -> None:
    """They are derived from the gate's, so that they differ from all others in the graph."""
    model, instrumentation, _ = instrument_proto(model_from_text(WITHOUT_BIAS))
    (gate,) = instrumentation.gates
    assert gate.levers[0].tensor == "layer00.transform_gate.bias"
    assert [node.outputs[0].name for node in model.graph if node.op_type == "Add"] == [
        "layer00.transform_gate.logit",
        "y",
    ]


def test_a_public_output_keeps_its_name() -> None:
    """A copy of it is the hidden output under the readable name."""
    _, instrumentation, runtime = instrument_proto(model_from_text(TORCHSCRIPT))
    y, output = runtime.run({"x": ROWS}, ["y", "layer00.output"])
    np.testing.assert_array_equal(y, output)
    assert instrumentation.origins["layer00.output"].value == "y"
    assert runtime.outputs[0].name == "y"


def test_gates_of_unknown_rank_are_left_out_with_a_warning() -> None:
    """A graph output needs a rank."""
    proto = model_from_text(UNKNOWN_RANK)
    model = ir.from_proto(proto)
    instrumentation = instrument(model)
    assert not instrumentation.gates
    assert len(model.graph.outputs) == 1
    assert instrumentation.warnings == (
        "gates that are not in the file: t: the number of dimensions depends on the input",
    )
