"""GRU and LSTM operators, opened: the same outputs, and gates that are those of their equations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.gate_graphs import shifted_biases
from turnpike.export.gates.instrument import Instrumentation, instrument
from turnpike.export.pipeline import export_model
from turnpike.export.sources.checkpoint import network_input
from turnpike.export.trace.recurrent_operators import (
    closed_operators,
    has_open_operators,
    open_recurrent_operators,
)
from turnpike.export.verify import verify_model
from turnpike.models.networks.families import build_network
from turnpike.models.training.presets import find_preset
from turnpike.service.artifact.runtime import Runtime, open_model

Array = np.ndarray[Any, np.dtype[Any]]

STEPS, ROWS, INPUTS, UNITS = 5, 3, 2, 4
GATES = {"GRU": 3, "LSTM": 4}
X = np.random.default_rng(0).normal(size=(STEPS, ROWS, INPUTS)).astype(np.float32)


@dataclass(frozen=True)
class Layer:
    """A recurrent operator with random weights, and its equations in numpy."""

    op: str
    directions: int = 1
    backwards: bool = False
    has_bias: bool = True
    has_state: bool = True
    reset_after: bool = True

    def weights(self) -> dict[str, Array]:
        rng = np.random.default_rng(1)
        gates = GATES[self.op]
        shapes = {"w": (gates * UNITS, INPUTS), "r": (gates * UNITS, UNITS), "b": (2 * gates * UNITS,)}
        if not self.has_bias:
            del shapes["b"]
        if self.has_state:
            shapes |= {"h0": (ROWS, UNITS)} | ({"c0": (ROWS, UNITS)} if self.op == "LSTM" else {})
        return {
            name: rng.normal(size=(self.directions, *shape)).astype(np.float32)
            for name, shape in shapes.items()
        }

    def model(self, **attributes: Any) -> onnx.ModelProto:
        weights = self.weights()
        names = ["x", "w", "r", "b", "", "h0", *(["c0"] if self.op == "LSTM" else [])]
        inputs = [name if name in ("", "x") or name in weights else "" for name in names]
        outputs = ["y", "y_h", "y_c"][: 3 if self.op == "LSTM" else 2]
        direction = "bidirectional" if self.directions == 2 else "reverse" if self.backwards else "forward"
        attributes = {"hidden_size": UNITS, "direction": direction} | attributes
        if self.op == "GRU":
            attributes["linear_before_reset"] = int(self.reset_after)
        node = helper.make_node(self.op, inputs, outputs, **attributes)
        graph = helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["steps", "rows", INPUTS])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            [numpy_helper.from_array(array, name) for name, array in weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

    def states(self, direction: int) -> dict[str, Array]:
        """The states h and c, and the transform and carry gates, of all rows and steps."""
        weights = {name: array[direction].astype(np.float64) for name, array in self.weights().items()}
        bias_x, bias_h = np.split(weights.get("b", np.zeros(2 * GATES[self.op] * UNITS)), 2)
        h = weights.get("h0", np.zeros((ROWS, UNITS)))
        c = weights.get("c0", np.zeros((ROWS, UNITS)))
        backwards = self.backwards or direction == 1
        steps = []
        for x in X[::-1] if backwards else X:
            from_x = np.split(x @ weights["w"].T + bias_x, GATES[self.op], axis=-1)
            from_h = np.split(h @ weights["r"].T + bias_h, GATES[self.op], axis=-1)
            if self.op == "GRU":
                z, r = sigmoid(from_x[0] + from_h[0]), sigmoid(from_x[1] + from_h[1])
                inner = from_h[2]
                if not self.reset_after:
                    inner = inner - h @ weights["r"][2 * UNITS :].T + (r * h) @ weights["r"][2 * UNITS :].T
                h = (1 - z) * np.tanh(from_x[2] + (r if self.reset_after else 1) * inner) + z * h
                steps.append({"transform_gate": 1 - z, "output": h, "h": h})
            else:
                i, o, f, new = (a + b for a, b in zip(from_x, from_h, strict=True))
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(new)
                h = sigmoid(o) * np.tanh(c)
                gates = {"transform_gate": sigmoid(i), "carry_gate": sigmoid(f)}
                steps.append({**gates, "output": c, "h": h})
        ordered = steps[::-1] if backwards else steps
        return {name: np.stack([step[name] for step in ordered], axis=1) for name in ordered[0]}


LAYERS = [
    *(
        Layer("GRU", directions, has_bias=bias, reset_after=reset_after)
        for directions, bias, reset_after in itertools.product((1, 2), (True, False), (True, False))
    ),
    *(
        Layer("LSTM", directions, has_bias=bias)
        for directions, bias in itertools.product((1, 2), (True, False))
    ),
    *(Layer(op, backwards=True) for op in GATES),
    *(Layer(op, 2, has_state=False) for op in GATES),
]


def sigmoid(z: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-z))
    return result


def open_layer(proto: onnx.ModelProto) -> tuple[ir.Model, Instrumentation, Runtime]:
    model = ir.from_proto(proto)
    _, closed = open_recurrent_operators(model)
    assert closed == ()
    instrumentation = instrument(model)
    result = ir.to_proto(model)
    onnx.checker.check_model(result, full_check=True)
    return model, instrumentation, open_model(result.SerializeToString())


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_an_opened_layer_has_the_outputs_and_the_gates_of_its_equations(layer: Layer) -> None:
    """Each direction is a layer; every output of the operator is as it was."""
    proto = layer.model()
    _, instrumentation, runtime = open_layer(proto)
    assert instrumentation.warnings == ()
    outputs = [output.name for output in proto.graph.output]
    before = open_model(proto.SerializeToString()).run({"x": X}, outputs)
    for name, expected, actual in zip(outputs, before, runtime.run({"x": X}, outputs), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6, err_msg=name)
    assert len(instrumentation.gates) == layer.directions
    for direction, gate in enumerate(instrumentation.gates):
        expected = layer.states(direction)
        assert (gate.layer, gate.carry, gate.units, gate.time) == (direction, "identity", UNITS, None)
        assert gate.kind == ("coupled" if layer.op == "GRU" else "independent")
        names = [f"layer0{direction}.{part}" for part in expected if part != "h"]
        assert {gate.name, gate.output, gate.carry_gate or gate.name} == set(names)
        for name in names:
            (actual,) = runtime.run({"x": X}, [name])
            np.testing.assert_allclose(actual, expected[name.split(".")[1]], atol=1e-6, err_msg=name)


@pytest.mark.parametrize("layer", [Layer("GRU", 2), Layer("LSTM", 2), Layer("LSTM")], ids=str)
def test_an_opened_layer_may_lack_outputs(layer: Layer) -> None:
    """Exporters leave out the outputs that nothing uses, such as all states but the last."""
    proto = layer.model()
    (expected,) = open_model(proto.SerializeToString()).run({"x": X}, ["y_h"])
    node = proto.graph.node[0]
    node.name, node.output[0] = "layer", ""
    del proto.graph.output[2:], proto.graph.output[0], node.output[2:]
    _, instrumentation, runtime = open_layer(proto)
    assert len(instrumentation.gates) == layer.directions
    (actual,) = runtime.run({"x": X}, ["y_h"])
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize("layer", [Layer("GRU", 2), Layer("LSTM"), Layer("LSTM", has_bias=False)], ids=str)
def test_closing_an_opened_layer_keeps_its_state(layer: Layer) -> None:
    """With a lever at -1e4 the state is the initial one at every step; at +1e4 it is forgotten."""
    model, instrumentation, runtime = open_layer(layer.model())
    for shift, gate_value in ((-1e4, 0), (1e4, 1)):
        feeds = {"x": X, **shifted_biases(model, instrumentation.gates, shift)}
        for direction, gate in enumerate(instrumentation.gates):
            t, state = runtime.run(feeds, [gate.name, str(gate.output)])
            np.testing.assert_array_equal(t, np.full_like(t, gate_value))
            if shift < 0:
                initial = layer.weights()["h0" if layer.op == "GRU" else "c0"][direction]
                np.testing.assert_array_equal(state, np.repeat(initial[:, None], STEPS, axis=1))
            elif gate.carry_gate is not None:
                (c,) = runtime.run(feeds, [gate.carry_gate])
                np.testing.assert_array_equal(c, np.zeros_like(c))


def test_the_bias_of_an_opened_gate_is_the_sum_of_both_biases() -> None:
    """Of a GRU it is that of T, which is 1 - z."""
    layer = Layer("GRU")
    (gate,) = open_layer(layer.model())[1].gates
    bias = layer.weights()["b"][0]
    assert gate.bias is not None
    assert gate.bias.mean == pytest.approx(-(bias[:UNITS] + bias[3 * UNITS : 4 * UNITS]).mean(), abs=1e-6)


def test_a_closed_layer_is_named() -> None:
    """A sentence names its weights."""
    model = ir.from_proto(Layer("GRU").model())
    sentence = "the gates inside the GRU with the weights w are not in the file: --open-recurrent adds them"
    assert closed_operators(model.graph) == (sentence,)
    assert not has_open_operators(model)


@pytest.mark.parametrize(
    ("op", "attributes", "reason"),
    [
        ("GRU", {"clip": 1.0}, "it has the attribute clip or input_forget"),
        ("LSTM", {"input_forget": 1}, "it has the attribute clip or input_forget"),
        ("GRU", {"activations": ["HardSigmoid", "Tanh"]}, "it has other activations than Sigmoid, Tanh"),
        ("GRU", {"layout": 1}, "it takes rows before steps (layout = 1)"),
    ],
)
def test_a_layer_with_other_equations_stays_closed(op: str, attributes: dict[str, Any], reason: str) -> None:
    model = ir.from_proto(Layer(op).model(**attributes))
    opened, sentences = open_recurrent_operators(model)
    assert opened == {}
    assert sentences == (f"the gates inside the {op} with the weights w are not in the file: {reason}",)
    assert [node.op_type for node in model.graph] == [op]


def test_sequences_of_different_lengths_stay_closed() -> None:
    proto = Layer("GRU").model()
    proto.graph.node[0].input[4] = "lengths"
    proto.graph.input.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, ["rows"]))
    _, (sentence,) = open_recurrent_operators(ir.from_proto(proto))
    assert sentence.endswith("its sequences have different lengths")


def test_an_opened_layer_is_recognized() -> None:
    """`turnpike verify` has to open the layers of the source too."""
    model, _, _ = open_layer(Layer("LSTM").model())
    assert has_open_operators(model)


@pytest.mark.slow
def test_the_cbhg_shows_the_gates_of_its_gru(tmp_path: Path) -> None:
    """Four highways and both directions of the GRU behind them: proved at export, and again by `verify`."""
    net = build_network(find_preset("cbhg").config).eval()
    closed = export_model(net, tmp_path, name="closed", inputs=[network_input(net)])
    result = export_model(net, tmp_path, name="opened", inputs=[network_input(net)], open_recurrent=True)
    assert len(result.manifest.gates) == len(closed.manifest.gates) + 2
    assert all(gate.levers for gate in result.manifest.gates)
    assert verify_model(result.path, net).manifest == result.manifest
    assert not any("--open-recurrent" in warning for warning in result.warnings)
    assert any("--open-recurrent" in warning for warning in closed.warnings)
