"""Planted bugs: each is caught, by the figures where figures can, and the first layer that broke is named."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from export.errors import ExportError, ParityError, UntraceableError
from export.gates.instrument import Origin, instrument
from export.input_spec import parse_inputs
from export.parity import prove as parity
from export.parity.prove import Proof, prove
from export.parity.weight_origins import WeightMatch
from export.source import Source
from export.trace.trace import TracedGraph, trace
from models.networks.families import build_network
from models.networks.feedforward import MlpConfig
from service.artifact.runtime import open_model

CONFIG = MlpConfig(inputs=(6,), classes=3, width=12, layers=3)


@dataclass(frozen=True)
class Subject:
    """A network and its graph, which a test may spoil a copy of."""

    source: Source
    traced: TracedGraph
    origins: dict[str, Origin]

    def spoilt(self, spoil: Callable[[ir.Model], None] = lambda model: None) -> Proof:
        """The proof of a graph after something was done to it."""
        model = ir.from_proto(ir.to_proto(self.traced.model))
        spoil(model)
        runtime = open_model(ir.to_proto(model).SerializeToString())
        return prove(self.source, self.traced, model, self.origins, runtimes=[runtime])


def subject_of(module: nn.Module, *inputs: str) -> Subject:
    source = Source("planted", "module", parse_inputs(inputs), module=module.eval())
    traced = trace(source)
    return Subject(source, traced, instrument(traced.model).origins)


@pytest.fixture(scope="module")
def subject() -> Subject:
    torch.manual_seed(0)
    net = build_network(CONFIG)
    with torch.no_grad():
        for parameter in net.parameters():  # H's biases start at zero, and could be dropped unseen
            parameter.add_(0.1 * torch.randn_like(parameter))
    return subject_of(net, "x:float32[batch,6]")


@pytest.fixture
def by_figures_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check of the initializers, which would be first to see most of these."""
    monkeypatch.setattr(parity, "check_weights", lambda *args: WeightMatch(0, 0, 0.0))


def change(name: str, how: Callable[[np.ndarray], np.ndarray]) -> Callable[[ir.Model], None]:
    """Replace a weight of the graph."""

    def spoil(model: ir.Model) -> None:
        value = model.graph.initializers[name]
        assert value.const_value is not None
        value.const_value = ir.Tensor(how(value.const_value.numpy().copy()), name=name)

    return spoil


def one_more(by: float) -> Callable[[np.ndarray], np.ndarray]:
    def how(array: np.ndarray) -> np.ndarray:
        array.reshape(-1)[1] += np.float32(by)
        return array

    return how


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


def deaf_to_nan(model: ir.Model) -> None:
    """The output is 0 where it would be NaN."""
    value = model.graph.outputs[0]
    node, name = value.producer(), value.name
    assert node is not None
    assert name is not None
    value.name = "before"
    zero = ir.Value(name="nothing", const_value=ir.Tensor(np.float32(0), name="nothing"))
    model.graph.initializers.add(zero)
    asks = ir.Node("", "IsNaN", [value], name="asks")
    chooses = ir.Node("", "Where", [asks.outputs[0], zero, value], name="chooses")
    chooses.outputs[0].name, chooses.outputs[0].type, chooses.outputs[0].shape = name, value.type, value.shape
    model.graph.extend([asks, chooses])
    model.graph.outputs[0] = chooses.outputs[0]


def test_the_graph_as_it_is_holds(subject: Subject) -> None:
    """Nothing is reported of a correct graph: every weight is the network's, rows do not mix."""
    proof = subject.spoilt()
    assert proof.parity.verdict == "pass"
    assert not proof.batch_coupled
    assert proof.warnings == ()
    assert proof.parity.identical >= len(subject.source.module.state_dict())
    assert [one.name for one in proof.parity.tensors][-1] == "output"
    assert {one.name for one in proof.parity.tensors} == {"output", *subject.origins}


@pytest.mark.parametrize(
    ("spoil", "broken"),
    [
        (change("layers.1.gate.bias", one_more(1e-3)), "layer01.transform_gate"),
        (
            change("layers.1.gate.weight", lambda w: w.astype(np.float16).astype(np.float32)),
            "layer01.transform_gate",
        ),
        (change("layers.1.normal_layer.bias", np.zeros_like), "layer01.output"),
        (change("layers.2.gate.weight", lambda w: np.ascontiguousarray(w.T)), "layer02.transform_gate"),
        (other_carry, "layer01.output"),
        (other_activation, "layer02.output"),
        (deaf_to_nan, "output"),
    ],
)
@pytest.mark.usefixtures("by_figures_alone")
def test_figures_catch_it_and_name_where_it_began(
    subject: Subject, spoil: Callable[[ir.Model], None], broken: str
) -> None:
    """The first tensor that broke is named, marked in the table, and nothing before it is blamed."""
    with pytest.raises(ParityError, match=f"^{broken} with the batch") as caught:
        subject.spoilt(spoil)
    marked = [line for line in caught.value.table.splitlines() if line.endswith("<- here")]
    assert [line.split()[0] for line in marked] == [broken]


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("layers.1.gate.bias", one_more(1e-3)),
        (
            "layers.0.normal_layer.weight",
            lambda w: w * np.where(np.arange(w.size) == 7, 1.0001, 1).astype("f").reshape(w.shape),
        ),
        ("output.weight", lambda w: np.nextafter(w, np.float32(2))),
        ("layers.2.gate.weight", lambda w: np.ascontiguousarray(w.T)),
        ("layers.2.gate.weight", lambda w: w.astype(np.float16).astype(np.float32)),
    ],
)
def test_a_weight_that_is_another_is_named(
    subject: Subject, name: str, how: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Be it by the last bit: figures need not show it."""
    with pytest.raises(ParityError, match=f"^{name}: expected the network's weights bit for bit"):
        subject.spoilt(change(name, how))


class Moody(nn.Module):
    """A network whose behaviour tests turn on after it was traced."""

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


def mood(name: str, value: float | bool) -> Callable[[], Subject]:
    def make() -> Subject:
        module = Moody()
        made = subject_of(module, "x:float32[batch,4]")
        setattr(module, name, value)
        return made

    return make


def test_a_baked_random_number_is_found() -> None:
    """A number that Python drew while tracing is a constant in the graph, and another in the network."""

    class Drawing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * random.random()

    with pytest.raises(
        UntraceableError, match="^output: the network answers otherwise when it is asked again"
    ):
        subject_of(Drawing(), "x:float32[batch,4]").spoilt()


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (mood("random", True), UntraceableError, "answers otherwise when it is asked again"),
        (mood("counting", True), UntraceableError, "^count: forward changes it"),
        (
            mood("factor", 1.0000001),
            ParityError,
            "^output: the traced program does not compute what the network",
        ),
    ],
)
def test_what_a_trace_cannot_hold_is_found(
    make: Callable[[], Subject], error: type[ExportError], says: str
) -> None:
    """Random numbers, a lost update of a buffer, and a number that changed since, are each told apart."""
    with pytest.raises(error, match=says):
        make().spoilt()
