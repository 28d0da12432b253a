"""The gates of this project's own presets, compared with what the networks record themselves."""

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

# networks of memory cells, whose gates `watched` does not record: (layer, depth) -> number of repeats
REPEATS_OF_CELLS = {
    "highway-lstm": {(0, None): 8, (1, 0): 8, (1, 1): 8, (2, 0): 8, (2, 1): 8},
    "grid-lstm": {(0, None): 24},
    "grid-lstm-1d": {(0, None): 6},
    "grid-lstm-3d": {(0, None): 14},
}
FAST = {"digits-10", "charcnn"}
NAMES = [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PRESETS]


@pytest.mark.parametrize("name", NAMES)
def test_every_gate_of_a_preset_is_found(name: str) -> None:
    """In order, each with a lever."""
    config = PRESETS[name].config
    net = build_network(config).eval()
    dims = [f"axis{axis}" if axis in net.free_axes else size for axis, size in enumerate(config.inputs)]
    spec = InputSpec("x", "int64" if net.reads_ids else "float32", ("batch", *dims))
    model = trace(Source(name, "preset", (spec,), module=net)).model
    instrumentation = instrument(model)
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    assert not instrumentation.warnings
    assert all(gate.levers and gate.carry == "identity" for gate in instrumentation.gates)
    repeats: dict[tuple[int, int | None], int] = {}
    for gate in instrumentation.gates:
        repeats[gate.layer, gate.depth] = repeats.get((gate.layer, gate.depth), 0) + 1
    if name in REPEATS_OF_CELLS:
        assert repeats == REPEATS_OF_CELLS[name]
        return
    x = torch.randint(0, 5, (3, *config.inputs)) if net.reads_ids else torch.rand(3, *config.inputs)
    with torch.no_grad(), record_gates(net) as recordings:
        net(x)
    times = max((len(recording.transform_gates) for recording in recordings.values()), default=0)
    expected = [recording.transform_gates[time] for time in range(times) for recording in recordings.values()]
    assert len(instrumentation.gates) == len(expected)
    if expected:
        runtime = open_model(proto.SerializeToString())
        gates = runtime.run({"x": x.numpy()}, [gate.name for gate in instrumentation.gates])
        for values, truth in zip(gates, expected, strict=True):
            np.testing.assert_allclose(values, truth, atol=1e-5)
