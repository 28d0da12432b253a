"""Gates of graphs that were not written by torch: from old exporters, other tools, and by hand."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from export.gates.instrument import Instrumentation, instrument
from service.artifact.runtime import Runtime, open_model
from tests.highways.onnx_text import (
    FUSED_LINEAR,
    HAND_WRITTEN,
    TORCHSCRIPT,
    UNKNOWN_RANK,
    model_from_text,
    weights_of,
)

ROWS = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)


def instrument_proto(proto: onnx.ModelProto) -> tuple[ir.Model, Instrumentation, Runtime]:
    model = ir.from_proto(proto)
    instrumentation = instrument(model)
    result = ir.to_proto(model)
    onnx.checker.check_model(result, full_check=True)
    return model, instrumentation, open_model(result.SerializeToString())


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


@pytest.mark.parametrize(
    "text", [TORCHSCRIPT, HAND_WRITTEN, FUSED_LINEAR], ids=["TorchScript", "written by hand", "fused Linear"]
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
    assert instrumentation.warnings == ("left out 1 gates, whose number of dimensions depends on the input",)
