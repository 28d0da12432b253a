"""Gates of graphs that torch has not made: from old exporters, other tools, and by hand."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from export.gates.instrument import Instrumentation, instrument
from service.artifact.runtime import Runtime, open_model
from tests.highways.written import BY_HAND, FUSED, OLD, RANKLESS, weights, written

ROWS = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)


def offered(proto: onnx.ModelProto) -> tuple[ir.Model, Instrumentation, Runtime]:
    model = ir.from_proto(proto)
    found = instrument(model)
    made = ir.to_proto(model)
    onnx.checker.check_model(made, full_check=True)
    return model, found, open_model(made.SerializeToString())


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


@pytest.mark.parametrize("text", [OLD, BY_HAND, FUSED], ids=["old", "by hand", "fused"])
def test_one_highway_however_it_is_written(text: str) -> None:
    """One coupled gate with the identity for its carry, whose T is that of its weights."""
    proto = written(text)
    model, found, runtime = offered(proto)
    w = weights(proto)
    (gate,) = found.gates
    assert (gate.kind, gate.carry, gate.unit_axis, gate.units) == ("coupled", "identity", -1, 4)
    assert not found.warnings
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
    """A block's output that callers know is handed on under the readable name beside its own."""
    _, found, runtime = offered(written(OLD))
    y, output = runtime.run({"x": ROWS}, ["y", "layer00.output"])
    np.testing.assert_array_equal(y, output)
    assert found.origins["layer00.output"].value == "y"
    assert runtime.outputs[0].name == "y"


def test_gates_of_unknown_rank_are_left_out_and_said_so() -> None:
    """An output of a graph needs a rank."""
    proto = written(RANKLESS)
    model = ir.from_proto(proto)
    found = instrument(model)
    assert not found.gates
    assert len(model.graph.outputs) == 1
    assert found.warnings == ("left out 1 gates, whose number of dimensions depends on the input",)
