"""Gates and lesions of the service, compared with PyTorch on the same rows."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.gates_client import GatesClient, array_of
from turnpike.export.pipeline import export_model
from turnpike.models.layers.gate import GatedJoin, record_gates
from turnpike.models.networks.base import NetConfig
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import ConvConfig, MlpConfig
from turnpike.models.networks.recurrent import RhnConfig

Array = np.ndarray[Any, np.dtype[Any]]

IMAGE = (1, 6, 6)
CONFIGS: dict[str, NetConfig] = {
    "dense": MlpConfig(inputs=IMAGE, classes=3, width=8, layers=3, carry="independent"),
    "conv": ConvConfig(inputs=IMAGE, classes=3, stages=((4, 3),)),
    "recurrent": RhnConfig(inputs=IMAGE, classes=3, width=5, depth=2),
}


@pytest.fixture(scope="module", params=["dense", "conv", pytest.param("recurrent", marks=pytest.mark.slow)])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[nn.Module, GatesClient]:
    """A network, and the gates endpoints of its exported file."""
    torch.manual_seed(0)
    net = build_network(CONFIGS[request.param]).eval()
    done = export_model(
        net, tmp_path_factory.mktemp("repository"), name="net", inputs=["x:float32[batch,1,6,6]"]
    )
    return net, GatesClient(done.path)


def rows(count: int) -> Array:
    return np.random.default_rng(1).normal(size=(count, *IMAGE)).astype(np.float32)


@pytest.mark.parametrize("count", [1, 64])
def test_gates_and_blocks_equal_pytorchs(served: tuple[nn.Module, GatesClient], count: int) -> None:
    """T and y of every layer at every time step are compared, and the summary of T."""
    net, client = served
    x = rows(count)
    with torch.no_grad(), record_gates(net) as recordings:
        logits = net(torch.from_numpy(x)).numpy()
    answer = client.gates(x, {"detail": "rows", "blocks": "true"})
    np.testing.assert_allclose(array_of(answer["outputs"][0]), logits, atol=1e-5)
    tensors = {tensor["name"]: array_of(tensor) for tensor in answer["tensors"]}
    # a recurrent net is called step by step, each step through all its depths
    steps = len(next(iter(recordings.values())).transform_gates)
    calls = [(one.transform_gates[n], one.outputs[n]) for n in range(steps) for one in recordings.values()]
    assert len(answer["gates"]) == len(calls) > 0
    order = sorted(client.model.gates, key=lambda gate: (gate.time or 0, gate.layer, gate.depth or 0))
    summaries = {gate["name"]: gate for gate in answer["gates"]}
    for gate, (t, y) in zip(order, calls, strict=True):
        np.testing.assert_allclose(tensors[gate.name], t.numpy(), atol=2e-5)
        assert gate.output is not None
        np.testing.assert_allclose(tensors[gate.output], y.numpy(), atol=2e-5)
        assert summaries[gate.name]["mean"] == pytest.approx(t.mean().item(), abs=1e-5)
        assert summaries[gate.name]["sd"] == pytest.approx(t.std(correction=0).item(), abs=1e-5)
    depth = sum(t.flatten(1).mean(1) for t, _ in calls) / steps
    assert answer["route"]["effective_depth"] == pytest.approx(depth.tolist(), abs=1e-4)  # type: ignore[union-attr]
    assert len(answer["route"]["carried"]) == count


@pytest.mark.parametrize("count", [1, 64])
def test_closing_a_layer_equals_changing_its_bias_in_pytorch(
    served: tuple[nn.Module, GatesClient], count: int
) -> None:
    """The bias of its transform gate is far below 0, that of its carry gate far above."""
    net, client = served
    x = torch.from_numpy(rows(count))
    closed = copy.deepcopy(net)
    layers = [module for module in closed.modules() if isinstance(module, GatedJoin)]
    names = [f"layer{n:02}" for n in range(len(layers))]
    recurrent = any(gate.depth is not None for gate in client.model.gates)
    # the two depths of the recurrent layer are one layer
    for layer in layers if recurrent else layers[1:2]:
        with torch.no_grad():
            layer.gate.bias -= 1e4  # type: ignore[operator]
            if layer.carry_gate is not None:
                layer.carry_gate.bias += 1e4  # type: ignore[operator]
    answer = client.lesion(x.numpy(), close=[0 if recurrent else 1])
    with torch.no_grad():
        np.testing.assert_allclose(array_of(answer["outputs"][0]), net(x).numpy(), atol=1e-5)
        np.testing.assert_allclose(array_of(answer["lesioned"]["outputs"][0]), closed(x).numpy(), atol=1e-5)
    assert answer["lesion"]["closed"]
    assert all(name.startswith(names[0 if recurrent else 1]) for name in answer["lesion"]["closed"])
