"""Planted faults: each is caught, and the first tensor that differs is named."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from turnpike.export.errors import ExportError, ParityError, UntraceableError
from turnpike.export.gates.instrument import Origin, instrument
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.parity.rounding import Rounding, measure_rounding
from turnpike.export.trace.trace_network import TracedGraph, trace
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import MlpConfig
from turnpike.service.artifact.runtime import open_model

CONFIG = MlpConfig(inputs=(6,), classes=3, width=12, layers=3)


@dataclass(frozen=True)
class Subject:
    """A network and its graph; a test changes a copy of the graph."""

    network: Network
    traced: TracedGraph
    origins: dict[str, Origin]

    def prove_changed(self, change: Callable[[ir.Model], None] = lambda model: None) -> Rounding:
        """Prove a copy of the graph after changing it."""
        model = ir.from_proto(ir.to_proto(self.traced.model))
        change(model)
        runtime = open_model(ir.to_proto(model).SerializeToString())
        return measure_rounding(self.network, self.traced, model, self.origins, runtimes=[runtime])


def subject_of(module: nn.Module, *inputs: str) -> Subject:
    network = Network("planted", "module", parse_inputs(inputs), module=module.eval())
    traced = trace(network)
    return Subject(network, traced, instrument(traced.model).origins)


@pytest.fixture(scope="module")
def subject() -> Subject:
    torch.manual_seed(0)
    net = build_network(CONFIG)
    with torch.no_grad():
        # H's biases are zero at first, so a missing bias would make no difference
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return subject_of(net, "x:float32[batch,6]")


def change(name: str, function: Callable[[np.ndarray], np.ndarray]) -> Callable[[ir.Model], None]:
    """Replace a weight of the graph."""

    def change(model: ir.Model) -> None:
        value = model.graph.initializers[name]
        assert value.const_value is not None
        value.const_value = ir.Tensor(function(value.const_value.numpy().copy()), name=name)

    return change


def add_to_one_cell(amount: float) -> Callable[[np.ndarray], np.ndarray]:
    def function(array: np.ndarray) -> np.ndarray:
        array.reshape(-1)[1] += np.float32(amount)
        return array

    return function


def other_carry(model: ir.Model) -> None:
    """C = 0.9999 - T in the second layer."""
    sub = [node for node in model.graph if node.op_type == "Sub" and "gate" in str(node.inputs[1].name)][1]
    literal = ir.Value(name="almost", const_value=ir.Tensor(np.float32(0.9999), name="almost"))
    model.graph.initializers.add(literal)
    sub.replace_input_with(0, literal)


def other_activation(model: ir.Model) -> None:
    """tanh for relu in the last layer."""
    last = [node for node in model.graph if node.op_type == "Relu"][-1]
    last.op_type = "Tanh"


def nan_to_zero(model: ir.Model) -> None:
    """The output is 0 where it would be NaN."""
    value = model.graph.outputs[0]
    node, name = value.producer(), value.name
    assert node is not None
    assert name is not None
    value.name = "before"
    zero = ir.Value(name="nothing", const_value=ir.Tensor(np.float32(0), name="nothing"))
    model.graph.initializers.add(zero)
    is_nan = ir.Node("", "IsNaN", [value], name="is_nan")
    where = ir.Node("", "Where", [is_nan.outputs[0], zero, value], name="where")
    where.outputs[0].name, where.outputs[0].type, where.outputs[0].shape = name, value.type, value.shape
    model.graph.extend([is_nan, where])
    model.graph.outputs[0] = where.outputs[0]


def test_a_correct_graph_passes(subject: Subject) -> None:
    proof = subject.prove_changed()
    assert proof.parity.verdict == "pass"
    assert not proof.batch_coupled
    assert proof.warnings == ()
    assert [tensor.name for tensor in proof.parity.tensors][-1] == "output"
    assert {tensor.name for tensor in proof.parity.tensors} == {"output", *subject.origins}


@pytest.mark.parametrize(
    ("change", "failed"),
    [
        (change("layers.1.gate.bias", add_to_one_cell(1e-3)), "layer01.transform_gate"),
        pytest.param(
            change("layers.1.gate.weight", lambda w: w.astype(np.float16).astype(np.float32)),
            "layer01.transform_gate",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            change("layers.1.normal_layer.bias", np.zeros_like), "layer01.output", marks=pytest.mark.slow
        ),
        pytest.param(
            change("layers.2.gate.weight", lambda w: np.ascontiguousarray(w.T)),
            "layer02.transform_gate",
            marks=pytest.mark.slow,
        ),
        (other_carry, "layer01.output"),
        pytest.param(other_activation, "layer02.output", marks=pytest.mark.slow),
    ],
)
def test_the_first_wrong_tensor_is_named(
    subject: Subject, change: Callable[[ir.Model], None], failed: str
) -> None:
    """It is marked in the table too, and no earlier tensor is."""
    with pytest.raises(ParityError, match=f"^{failed} over all ordinary batches") as raised:
        subject.prove_changed(change)
    marked = [line for line in raised.value.table.splitlines() if line.endswith("<- failed")]
    assert [line.split()[0] for line in marked] == [failed]


def test_a_nan_that_is_lost_is_warned_about(subject: Subject) -> None:
    proof = subject.prove_changed(nan_to_zero)
    (warning,) = proof.warnings
    assert warning.startswith("rounding: output with the batch 'one NaN': expected NaN in the ")
    assert warning.endswith("; if the network never gets such values, give --input-range LOW:HIGH")
    assert not proof.keeps_bounds


class Changeable(nn.Module):
    """A network whose behavior a test changes after it was traced."""

    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(()))
        self.random = self.counting = False
        self.factor = 1.0

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) * self.factor
        if self.random:
            y = y + random.random()
        if self.counting:
            self.count += 1
        return y


def changed_after_tracing(name: str, value: float | bool) -> Callable[[], Subject]:
    def make() -> Subject:
        module = Changeable()
        subject = subject_of(module, "x:float32[batch,4]")
        setattr(module, name, value)
        return subject

    return make


def test_a_baked_random_number_is_found() -> None:
    """A number that Python draws while tracing is a constant in the graph, and changes in the network."""

    class Drawing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * random.random()

    with pytest.raises(
        UntraceableError, match="^output: the network gives another answer when it is run again"
    ):
        subject_of(Drawing(), "x:float32[batch,4]").prove_changed()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            changed_after_tracing("random", True),
            UntraceableError,
            "gives another answer when it is run again",
        ),
        (changed_after_tracing("counting", True), UntraceableError, "^count: forward changes it"),
        (
            changed_after_tracing("factor", 1.0000001),
            ParityError,
            "^output: the traced program does not compute what the network",
        ),
    ],
)
def test_values_that_a_trace_cannot_hold_are_found(
    make: Callable[[], Subject], error: type[ExportError], message: str
) -> None:
    """Random numbers, a buffer that is updated, and a number that has changed since."""
    with pytest.raises(error, match=message):
        make().prove_changed()
