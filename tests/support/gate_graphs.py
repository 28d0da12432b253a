"""Networks traced into graphs, and graphs with gates opened and moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from torch import nn

from turnpike.export.gates.instrument import Instrumentation, instrument
from turnpike.export.input_spec import InputSpec
from turnpike.export.network import Network
from turnpike.export.trace.trace_network import trace
from turnpike.service.artifact.manifest import Gate
from turnpike.service.artifact.runtime import Runtime, open_model

Array = np.ndarray[Any, np.dtype[Any]]


def trace_net(net: nn.Module, shape: tuple[int, ...], inputs: tuple[str, ...] = ("x",)) -> ir.Model:
    specs = tuple(InputSpec(name, "float32", ("batch", *shape)) for name in inputs)
    return trace(Network("net", "module", specs, module=net.eval())).model


def open_graph(model: ir.Model) -> Runtime:
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    return open_model(proto.SerializeToString())


def shifted_biases(model: ir.Model, gates: tuple[Gate, ...], shift: float) -> dict[str, Array]:
    """The biases, with the part of each gate shifted by its levers."""
    biases: dict[str, Array] = {}
    for lever in {lever for gate in gates for lever in gate.levers}:
        value = model.graph.initializers[lever.tensor].const_value
        assert value is not None
        bias = biases.setdefault(lever.tensor, value.numpy().copy())
        bias.reshape(-1)[lever.start : lever.stop] += lever.sign * shift
    return biases


def instrument_proto(proto: onnx.ModelProto) -> tuple[ir.Model, Instrumentation, Runtime]:
    model = ir.from_proto(proto)
    instrumentation = instrument(model)
    return model, instrumentation, open_graph(model)


def instrument_net(
    net: nn.Module, shape: tuple[int, ...], inputs: tuple[str, ...] = ("x",)
) -> tuple[ir.Model, Instrumentation]:
    model = trace_net(net, shape, inputs)
    return model, instrument(model)
