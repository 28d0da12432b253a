"""References for PyTorch networks: the original code in float64, and its traced program for inner values."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import Tensor, nn

from turnpike.export.errors import ParityError
from turnpike.export.gates.instrument import Origin
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.parity.batches import ProofBatch
from turnpike.export.parity.onnx_reference import GraphEvaluator
from turnpike.export.parity.reference import RejectedError, equal_up_to_rounding
from turnpike.export.parity.torch_reference import TorchReference
from turnpike.export.trace.trace_network import TracedGraph, trace

INPUT = "x:float32[batch,3]"
BATCH = ProofBatch("b", 2, {"x": np.float32([[0.1, 0.2, 0.3], [1, 2, 3]])}, {"x": 0})


class Gated(nn.Module):
    """y = T x, with T a sigmoid, and float32 requested by name."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(3, 3)
        self.extra = 0.0

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32 and getattr(self, "narrow", False):
            raise TypeError("float32 only")
        return torch.sigmoid(self.gate(x)).float() * x + self.extra


def traced_of(module: nn.Module, *inputs: str) -> tuple[Network, TracedGraph]:
    network = Network("s", "module", parse_inputs(inputs or (INPUT,)), module=module.eval())
    return network, trace(network)


@pytest.fixture(scope="module")
def shared() -> tuple[Network, TracedGraph]:
    torch.manual_seed(0)
    return traced_of(Gated())


@pytest.fixture
def network(shared: tuple[Network, TracedGraph]) -> Network:
    """A copy of the source, whose network a test may change."""
    return replace(shared[0], module=copy.deepcopy(shared[0].module))


@pytest.fixture
def traced(shared: tuple[Network, TracedGraph]) -> TracedGraph:
    return replace(shared[1], model=ir.from_proto(ir.to_proto(shared[1].model)))


def reference_for(
    network: Network, traced: TracedGraph, origins: dict[str, Origin] | None = None
) -> TorchReference:
    return TorchReference(network, traced, traced.model, origins or {})


def test_outputs_and_gates_are_computed_in_float64(network: Network, traced: TracedGraph) -> None:
    """They equal the formula up to the rounding of float64. Native values are float32."""
    net = network.module
    reference = reference_for(
        network, traced, {"t": Origin("sigmoid"), "c": Origin("sigmoid", scale=-1.0, offset=1.0)}
    )
    float64, native = reference.float64(BATCH), reference.native(BATCH)
    x = BATCH.arrays["x"].astype(np.float64)
    w, b = (p.detach().numpy().astype(np.float64) for p in (net.gate.weight, net.gate.bias))
    t = 1 / (1 + np.exp(-(x @ w.T + b)))
    np.testing.assert_allclose(float64["t"], t, rtol=1e-14)
    np.testing.assert_allclose(float64["c"], 1 - t, rtol=1e-14)
    np.testing.assert_allclose(float64["output"], t * x, rtol=1e-14)
    assert native["t"].dtype == np.float32
    np.testing.assert_array_equal(native["output"], net(torch.from_numpy(BATCH.arrays["x"])).detach().numpy())
    assert reference.description == "the original network in float64"
    assert reference.warnings == ()


def test_the_users_module_does_not_change(network: Network, traced: TracedGraph) -> None:
    """Neither its mode nor its weights change, nor does torch's random state."""
    net = network.module
    net.train()
    before, random = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    reference = reference_for(network, traced)
    reference.native(BATCH)
    reference.float64(BATCH)
    assert net.training
    assert all(torch.equal(value, net.state_dict()[name]) for name, value in before.items())
    assert torch.equal(random, torch.get_rng_state())


def test_large_batches_have_only_outputs(network: Network, traced: TracedGraph) -> None:
    reference = reference_for(network, traced, {"t": Origin("sigmoid")})
    large = ProofBatch("b", 2, BATCH.arrays, BATCH.axes, compare_layers=False)
    assert set(reference.native(large)) == set(reference.float64(large)) == {"output"}


def test_a_value_without_a_traced_node_is_computed_from_the_graph(
    network: Network, traced: TracedGraph
) -> None:
    """The description names the reference evaluator."""
    sigmoid = next(node for node in traced.model.graph if node.op_type == "Sigmoid")
    sigmoid.outputs[0].name = "t"
    traced.model.graph.outputs.append(sigmoid.outputs[0])
    traced.model.graph.outputs[0].name = "output"
    reference = reference_for(network, traced, {"t": Origin("val_of_no_node")})
    known = reference_for(network, traced, {"t": Origin("sigmoid")})
    np.testing.assert_allclose(reference.float64(BATCH)["t"], known.float64(BATCH)["t"], rtol=1e-14)
    np.testing.assert_allclose(reference.native(BATCH)["t"], known.native(BATCH)["t"], rtol=1e-5)
    assert reference.native(BATCH)["t"].dtype == np.float32
    assert reference.description.endswith("the graph by onnx's reference evaluator in float64 for t")


def test_a_value_that_the_evaluator_cannot_compute_is_not_measured(
    network: Network, traced: TracedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime computes it, unless the graph is proved by this value."""
    sigmoid = next(node for node in traced.model.graph if node.op_type == "Sigmoid")
    sigmoid.outputs[0].name = "t"
    traced.model.graph.outputs.append(sigmoid.outputs[0])
    traced.model.graph.outputs[0].name = "output"
    origins = {"t": Origin("val_of_no_node")}
    known = reference_for(network, traced, {"t": Origin("sigmoid")}).native(BATCH)["t"]

    def fail(*_: object, **__: object) -> None:
        raise IndexError("out of bounds")

    monkeypatch.setattr(GraphEvaluator, "run", fail)
    reference = reference_for(network, traced, origins)
    for run in (reference.native, reference.float64):
        np.testing.assert_allclose(run(BATCH)["t"], known, rtol=1e-5)
    (warning,) = reference.warnings
    assert warning == (
        "the rounding of t was not measured: onnx's reference evaluator cannot compute t with the batch 'b': "
        "out of bounds"
    )
    assert reference.description.endswith("the graph by onnxruntime for t")
    strict = TorchReference(network, traced, traced.model, origins, falls_back=False)
    with pytest.raises(ParityError, match="cannot compute t with the batch 'b': out of bounds"):
        strict.native(BATCH)


def test_a_float32_only_network_is_replaced_by_its_program(network: Network, traced: TracedGraph) -> None:
    """The description and a warning say so."""
    expected = reference_for(network, traced).float64(BATCH)["output"]
    network.module.narrow = True
    reference = reference_for(network, traced)
    np.testing.assert_allclose(reference.float64(BATCH)["output"], expected, rtol=1e-14)
    assert reference.description == "the traced program in float64"
    assert "does not run in float64 (float32 only)" in reference.warnings[0]


def test_a_program_that_differs_from_the_network_is_found(network: Network, traced: TracedGraph) -> None:
    """A difference of 1e-7 is enough."""
    network.module.extra = 1e-7
    with pytest.raises(
        ParityError, match="output: the traced program does not compute what the network does"
    ):
        reference_for(network, traced).float64(BATCH)


def test_a_batch_that_the_network_does_not_accept_is_rejected(network: Network, traced: TracedGraph) -> None:
    """A batch that only the traced program does not accept is an error."""
    reference = reference_for(network, traced)
    wider = ProofBatch("b", 1, {"x": np.zeros((1, 4), np.float32)}, {"x": 0})
    with pytest.raises(RejectedError, match="shapes"):
        reference.native(wider)
    network.module.forward = lambda x: x
    with pytest.raises(
        ParityError, match="the traced program does not accept the batch 'b', which the network"
    ):
        reference_for(network, traced).native(wider)


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ([1e6, 1.0], [1e6, 1.0 + 1e-5], True),  # tolerance is relative to the largest
        ([1.0, 1.0], [1.0, 1.0 + 1e-7], False),
        ([0.0], [1e-16], True),
        ([np.nan, 1.0], [np.nan, 1.0], True),
        ([np.nan, 1.0], [0.0, 1.0], False),
        ([1], [1], True),
        ([1], [2], False),
        ([1.0], [[1.0]], False),
    ],
)
def test_equality_allows_for_rounding(first: list[float], second: list[float], equal: bool) -> None:
    """The tolerance is that of float64. Integers must be equal."""
    assert equal_up_to_rounding(np.array(first), np.array(second)) == equal


def test_equality_allows_for_noise_of_the_reference() -> None:
    """If float32 serves as the reference, its rounding is allowed."""
    assert equal_up_to_rounding(np.array([1.0]), np.array([1.000001]), noise=4e-6)
    assert not equal_up_to_rounding(np.array([1.0]), np.array([1.00001]), noise=4e-6)
