"""Every preset of `models` exports: parity proved, gates found, batches of any size answered."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from turnpike.export.network import Network
from turnpike.export.pipeline import export_model
from turnpike.export.sources.checkpoint import network_input
from turnpike.export.trace.trace_network import trace
from turnpike.models.layers.gate import record_gates
from turnpike.models.networks.families import build_network
from turnpike.models.training.presets import PRESETS, find_preset
from turnpike.service.artifact.runtime import open_model

QUICK = ("digits-10", "charcnn")
# the smallest of each kind; the others take as long as all other slow tests of exports
SMALL = (
    *("fig1-10", "fig1-10-plain", "fig1-10-residual", "conv-16", "fitnet-a", "cbhg"),
    *("rhn", "highway-lstm", "grid-lstm-1d", "transformer"),
)

# networks of memory cells, whose gates `record_gates` does not record: (layer, depth) -> number of repeats
REPEATS_OF_CELLS = {
    "highway-lstm": {(0, None): 8, (1, 0): 8, (1, 1): 8, (2, 0): 8, (2, 1): 8},
    "grid-lstm": {(0, None): 24},
    "grid-lstm-1d": {(0, None): 6},
    "grid-lstm-3d": {(0, None): 14},
}


@pytest.mark.parametrize(
    "name",
    [
        *QUICK,
        *(pytest.param(name, marks=pytest.mark.slow) for name in SMALL),
        *(
            pytest.param(name, marks=[pytest.mark.slow, pytest.mark.thorough])
            for name in PRESETS
            if name not in QUICK + SMALL
        ),
    ],
)
@pytest.mark.timeout(300)
def test_every_preset_can_be_exported(name: str, tmp_path: Path) -> None:
    """The file computes what the network computes, for any number of rows: outputs and gates, in order.

    There is no false alarm in outputs, gates and layers, no preset mixes the rows of a batch, and each gate
    has a lever.
    """
    torch.manual_seed(0)
    net = build_network(find_preset(name).config).eval()
    spec = network_input(net)
    result = export_model(net, tmp_path, name=name, inputs=[spec])
    gates = result.manifest.gates
    onnx.checker.check_model(result.path, full_check=True)
    assert result.manifest.parity.verdict == "pass"
    assert not result.manifest.batch_coupled
    assert result.manifest.identity is not None
    assert result.manifest.identity.proved
    # On some CPUs, a gate is about to switch on rows of huge numbers: a rounding error becomes a large one.
    known = re.compile(r"NaN|--open-recurrent|^rounding: \S+ with the batch 'large x")
    assert [warning for warning in result.warnings if not known.search(warning)] == []
    assert all(gate.levers and gate.carry == "identity" for gate in gates)
    if name in REPEATS_OF_CELLS:
        assert Counter((gate.layer, gate.depth) for gate in gates) == REPEATS_OF_CELLS[name]
    runtime = open_model(result.path)
    for rows in (1, 5):
        shape = spec.shape(
            **{dim: rows if dim == "batch" else 4 for dim in spec.dims if isinstance(dim, str)}
        )
        x = torch.randint(0, 5, shape) if net.reads_ids else torch.rand(shape)
        with torch.no_grad(), record_gates(net) as recordings:
            expected = net(x).numpy()
        output, *values = runtime.run({spec.name: x.numpy()}, ["output", *(gate.name for gate in gates)])
        np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-4)
        if name in REPEATS_OF_CELLS:
            continue
        times = max((len(recording.transform_gates) for recording in recordings.values()), default=0)
        transforms = [
            recording.transform_gates[time] for time in range(times) for recording in recordings.values()
        ]
        for gate_values, transform in zip(values, transforms, strict=True):
            np.testing.assert_allclose(gate_values, transform, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        *("digits-10", "transformer"),
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("conv-16", "highway-lstm")),
    ],
)
@pytest.mark.slow
def test_the_graph_of_every_preset_can_be_exported_again(name: str, tmp_path: Path) -> None:
    """The plain .onnx of a network, without the network: the same gates, proved against float64."""
    net = build_network(find_preset(name).config).eval()
    network = Network(name, "module", (network_input(net),), module=net)
    ir.save(trace(network).model, tmp_path / "plain.onnx")
    adopted = export_model(tmp_path / "plain.onnx", tmp_path, name="adopted").manifest
    original = export_model(net, tmp_path, name="original", inputs=[network_input(net)]).manifest
    assert adopted.gates == original.gates
    assert adopted.parity.reference == "the graph as it came, by onnx's reference evaluator in float64"
    assert adopted.weights == original.weights
