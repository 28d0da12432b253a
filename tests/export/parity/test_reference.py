"""The truth of a network: its own code in float64, the traced program inside, and both the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from export.errors import ParityError, UntraceableError
from export.gates.instrument import Origin
from export.input_spec import parse_inputs
from export.parity.batches import ProofBatch
from export.parity.reference import RejectedError, equal_up_to_rounding
from export.parity.torch_reference import NetworkCopy, TorchReference, recompute_constant
from export.source import Source
from export.trace.trace import TracedGraph, trace

INPUT = "x:float32[batch,3]"
BATCH = ProofBatch("b", 2, {"x": np.float32([[0.1, 0.2, 0.3], [1, 2, 3]])}, {"x": 0})


class Gated(nn.Module):
    """y = T x, with T a sigmoid, and single precision asked for by name."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(3, 3)
        self.extra = 0.0

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32 and getattr(self, "narrow", False):
            raise TypeError("float32 only")
        return torch.sigmoid(self.gate(x)).float() * x + self.extra


def traced_of(module: nn.Module, *inputs: str) -> tuple[Source, TracedGraph]:
    source = Source("s", "module", parse_inputs(inputs or (INPUT,)), module=module.eval())
    return source, trace(source)


@pytest.fixture(scope="module")
def shared() -> tuple[Source, TracedGraph]:
    torch.manual_seed(0)
    return traced_of(Gated())


@pytest.fixture
def source(shared: tuple[Source, TracedGraph]) -> Source:
    """A copy, whose network a test may change."""
    return replace(shared[0], module=copy.deepcopy(shared[0].module))


@pytest.fixture
def traced(shared: tuple[Source, TracedGraph]) -> TracedGraph:
    return replace(shared[1], model=ir.from_proto(ir.to_proto(shared[1].model)))


def truth_of(source: Source, traced: TracedGraph, origins: dict[str, Origin] | None = None) -> TorchReference:
    return TorchReference(source, traced, traced.model, origins or {})


def test_outputs_and_gates_are_worked_out_in_float64(source: Source, traced: TracedGraph) -> None:
    """By the formula, to the rounding of float64; the network's own precision beside it."""
    net = source.module
    found = truth_of(source, traced, {"t": Origin("sigmoid"), "c": Origin("sigmoid", complement=True)})
    wide, own = found.wide(BATCH), found.own(BATCH)
    x = BATCH.arrays["x"].astype(np.float64)
    w, b = (p.detach().numpy().astype(np.float64) for p in (net.gate.weight, net.gate.bias))
    t = 1 / (1 + np.exp(-(x @ w.T + b)))
    np.testing.assert_allclose(wide["t"], t, rtol=1e-14)
    np.testing.assert_allclose(wide["c"], 1 - t, rtol=1e-14)
    np.testing.assert_allclose(wide["output"], t * x, rtol=1e-14)
    assert own["t"].dtype == np.float32
    np.testing.assert_array_equal(own["output"], net(torch.from_numpy(BATCH.arrays["x"])).detach().numpy())
    assert found.reference == "the original network in float64"
    assert found.warnings == ()


def test_the_users_module_is_left_alone(source: Source, traced: TracedGraph) -> None:
    """Its mode, its weights, its type and torch's random numbers."""
    net = source.module
    net.train()
    before, random = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    found = truth_of(source, traced)
    found.own(BATCH)
    found.wide(BATCH)
    assert net.training
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in before.items())
    assert torch.equal(random, torch.get_rng_state())


def test_large_batches_show_their_outputs_alone(source: Source, traced: TracedGraph) -> None:
    """Gates are looked at in small batches."""
    found = truth_of(source, traced, {"t": Origin("sigmoid")})
    large = ProofBatch("b", 2, BATCH.arrays, BATCH.axes, small=False)
    assert set(found.own(large)) == set(found.wide(large)) == {"output"}


def test_a_value_that_is_no_node_comes_from_the_graph(source: Source, traced: TracedGraph) -> None:
    """By the reference evaluator, which the record says."""
    sigmoid = next(node for node in traced.model.graph if node.op_type == "Sigmoid")
    sigmoid.outputs[0].name = "t"
    traced.model.graph.outputs.append(sigmoid.outputs[0])
    traced.model.graph.outputs[0].name = "output"
    found = truth_of(source, traced, {"t": Origin("val_of_no_node")})
    known = truth_of(source, traced, {"t": Origin("sigmoid")})
    np.testing.assert_allclose(found.wide(BATCH)["t"], known.wide(BATCH)["t"], rtol=1e-14)
    np.testing.assert_allclose(found.own(BATCH)["t"], known.own(BATCH)["t"], rtol=1e-5)
    assert found.reference.endswith("the graph by onnx's reference evaluator in float64 for t")


def test_a_network_that_knows_single_precision_only_is_stood_in_for(
    source: Source, traced: TracedGraph
) -> None:
    """By the program traced from it, which the record and a warning say."""
    expected = truth_of(source, traced).wide(BATCH)["output"]
    source.module.narrow = True
    found = truth_of(source, traced)
    np.testing.assert_allclose(found.wide(BATCH)["output"], expected, rtol=1e-14)
    assert found.reference == "the traced program in float64"
    assert "does not run in float64 (float32 only)" in found.warnings[0]


def test_a_program_that_is_not_the_network_is_found(source: Source, traced: TracedGraph) -> None:
    """Even if it is off by 1e-7, as in the last bit of a number that was baked in."""
    source.module.extra = 1e-7
    with pytest.raises(
        ParityError, match="output: the traced program does not compute what the network does"
    ):
        truth_of(source, traced).wide(BATCH)


def test_a_batch_that_the_network_does_not_take_is_rejected(source: Source, traced: TracedGraph) -> None:
    """With what it says of it; a program that does not take what the network does is another matter."""
    found = truth_of(source, traced)
    wider = ProofBatch("b", 1, {"x": np.zeros((1, 4), np.float32)}, {"x": 0})
    with pytest.raises(RejectedError, match="shapes"):
        found.own(wider)
    source.module.forward = lambda x: x
    with pytest.raises(ParityError, match="the traced program does not take the batch 'b' that the network"):
        truth_of(source, traced).own(wider)


def test_a_strided_batch_holds_the_same_numbers_elsewhere(source: Source) -> None:
    """The tensor is not contiguous, and the answers are the same."""
    network = NetworkCopy(source)
    strided = ProofBatch("b", 2, BATCH.arrays, BATCH.axes, strided=True)
    assert not network.tensors(strided)[0].is_contiguous()
    assert network.tensors(BATCH)[0].is_contiguous()
    np.testing.assert_array_equal(network.wide(strided)[0], network.wide(BATCH)[0])


def test_a_network_may_write_into_its_input() -> None:
    """The batch is what it was for whoever comes next."""

    class Writing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(2)

    network = NetworkCopy(Source("s", "m", parse_inputs([INPUT]), module=Writing()))
    before = BATCH.arrays["x"].copy()
    assert np.array_equal(network.own(BATCH)[0], 2 * before)
    assert np.array_equal(BATCH.arrays["x"], before)


def test_a_network_in_train_mode_is_asked_as_it_will_be_served() -> None:
    """Without dropout."""
    module = nn.Dropout(0.5).train()
    network = NetworkCopy(Source("s", "m", parse_inputs([INPUT]), module=module))
    assert np.array_equal(network.own(BATCH)[0], BATCH.arrays["x"])
    assert module.training


class Keeping(nn.Module):
    """Keeps something in a buffer, in one way or another."""

    def __init__(self, keep: Callable[[nn.Module], None]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.register_buffer("seen", torch.zeros(1))
        self.keep = keep

    def forward(self, x: Tensor) -> Tensor:
        self.keep(self)
        return x * self.weight


@pytest.mark.parametrize(
    ("keep", "name"),
    [
        (lambda net: net.seen.add_(1), "seen"),
        (lambda net: net.seen.data.add_(1), "seen"),
        (lambda net: setattr(net, "seen", net.seen + 1), "seen"),
        (lambda net: net.weight.data.mul_(2), "weight"),
        (lambda net: None, None),
    ],
)
def test_a_run_that_changes_a_tensor_is_found(keep: Callable[[nn.Module], None], name: str | None) -> None:
    """However it is written, in place, by the back door or anew."""
    network = NetworkCopy(Source("s", "m", parse_inputs([INPUT]), module=Keeping(keep)))
    assert network.changed_by(BATCH) == name


def test_a_program_without_its_module_is_the_original() -> None:
    """As a .pt2 brings it; arguments are put back in the places they had."""

    class Two(nn.Module):
        def forward(self, pair: dict[str, Tensor], scale: Tensor) -> dict[str, Tensor]:
            return {"sum": pair["a"] + pair["b"] * scale}

    a, b, scale = torch.rand(3, 3, 2)
    axis = {0: Dim("batch")}
    program = torch.export.export(
        Two(), ({"a": a, "b": b}, scale), dynamic_shapes=({"a": axis, "b": axis}, axis)
    )
    inputs = parse_inputs([f"{name}:float32[batch,2]" for name in ("a", "b", "scale")])
    source = Source("s", "pt2", inputs, program=program)
    arrays = {name: np.full((2, 2), value, np.float32) for name, value in (("a", 1), ("b", 2), ("scale", 3))}
    assert np.array_equal(NetworkCopy(source).wide(ProofBatch("b", 2, arrays, {}))[0], np.full((2, 2), 7.0))


def test_each_run_draws_its_own_random_numbers() -> None:
    """Or a network that answers by chance would seem steady."""

    class Drawing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.rand_like(x)

    network = NetworkCopy(Source("s", "m", parse_inputs([INPUT]), module=Drawing()))
    assert not np.array_equal(network.own(BATCH)[0], network.own(BATCH)[0])


def test_a_network_is_needed() -> None:
    """A graph alone has no network to ask."""
    with pytest.raises(UntraceableError, match="there is only a graph"):
        NetworkCopy(Source("s", "onnx", parse_inputs([INPUT])))


def test_constants_of_a_program_are_worked_out_again() -> None:
    """In float64, where no input has a part in them."""

    class Positions(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.sin(torch.arange(3) / 10)

    _, traced = traced_of(Positions())
    np.testing.assert_allclose(recompute_constant(traced.program, "sin"), np.sin([0, 0.1, 0.2]), rtol=1e-15)
    assert recompute_constant(traced.program, "add") is None or "add" not in {
        n.name for n in traced.program.graph.nodes
    }
    assert recompute_constant(traced.program, "absent") is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ([1e6, 1.0], [1e6, 1.0 + 1e-5], True),  # rounding is of the greatest
        ([1.0, 1.0], [1.0, 1.0 + 1e-7], False),
        ([0.0], [1e-16], True),
        ([np.nan, 1.0], [np.nan, 1.0], True),
        ([np.nan, 1.0], [0.0, 1.0], False),
        ([1], [1], True),
        ([1], [2], False),
        ([1.0], [[1.0]], False),
    ],
)
def test_alike_is_but_for_rounding(one: list[float], other: list[float], same: bool) -> None:
    """Of float64; whole numbers are equal or not."""
    assert equal_up_to_rounding(np.array(one), np.array(other)) == same


def test_alike_knows_a_noisy_truth() -> None:
    """Single precision stands for the truth where nothing better is there."""
    assert equal_up_to_rounding(np.array([1.0]), np.array([1.000001]), noise=4e-6)
    assert not equal_up_to_rounding(np.array([1.0]), np.array([1.00001]), noise=4e-6)
