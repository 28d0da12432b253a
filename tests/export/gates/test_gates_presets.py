"""The gates of our own networks, against what the networks say of themselves."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from export.gates.instrument import instrument
from export.input_spec import InputSpec
from export.source import Source
from export.trace.trace import trace
from models.layers.gate import record_gates
from models.networks.families import build_network
from models.training.presets import PRESETS
from service.artifact.runtime import open_model

# memory cells, which the networks do not list: gates by layer and depth, and how often each repeats
CELLS = {
    "highway-lstm": {(0, None): 8, (1, 0): 8, (1, 1): 8, (2, 0): 8, (2, 1): 8},
    "grid-lstm": {(0, None): 24},
    "grid-lstm-1d": {(0, None): 6},
    "grid-lstm-3d": {(0, None): 14},
}
FAST = {"digits-10", "charcnn"}
NAMES = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PRESETS]


@pytest.mark.parametrize("name", NAMES)
def test_every_gate_of_a_preset_is_found(name: str) -> None:
    """T of every gated layer is among the hidden outputs, in order, with a lever."""
    config = PRESETS[name].config
    net = build_network(config).eval()
    dims = [f"axis{at}" if at in net.free_axes else size for at, size in enumerate(config.inputs)]
    one = InputSpec("x", "int64" if net.reads_ids else "float32", ("batch", *dims))
    model = trace(Source(name, "preset", (one,), module=net)).model
    found = instrument(model)
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    assert not found.warnings
    assert all(gate.levers and gate.carry == "identity" for gate in found.gates)
    places: dict[tuple[int, int | None], int] = {}
    for gate in found.gates:
        places[gate.layer, gate.depth] = places.get((gate.layer, gate.depth), 0) + 1
    if name in CELLS:
        assert places == CELLS[name]
        return
    x = torch.randint(0, 5, (3, *config.inputs)) if net.reads_ids else torch.rand(3, *config.inputs)
    with torch.no_grad(), record_gates(net) as recordings:
        net(x)
    times = max((len(recording.transform_gates) for recording in recordings.values()), default=0)
    expected = [recording.transform_gates[time] for time in range(times) for recording in recordings.values()]
    assert len(found.gates) == len(expected)
    if expected:
        runtime = open_model(proto.SerializeToString())
        got = runtime.run({"x": x.numpy()}, [gate.name for gate in found.gates])
        for values, wanted in zip(got, expected, strict=True):
            np.testing.assert_allclose(values, wanted, atol=1e-5)
