"""Compares each weight of a graph with the network's parameter of its name, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
import torch

from turnpike.export.errors import ParityError
from turnpike.export.identity.aten.run_program import to_numpy
from turnpike.export.network import Array, Network
from turnpike.export.trace.trace_network import TracedGraph


def expect_same_weights(network: Network, traced: TracedGraph | None, model: ir.Model) -> None:
    """Raise a ParityError that names the first weight of the graph that the network has otherwise.

    Weights under names that the network does not have, such as transposed ones, are not compared.
    """
    originals = parameters(network, traced)
    for name, value in initializers(model):
        if name in originals:
            expect_identical(name, value, originals[name])


def parameters(network: Network, traced: TracedGraph | None) -> dict[str, Array]:
    """Every parameter, buffer and constant of the network, by name."""
    if network.graph is not None:
        return dict(initializers(ir.from_proto(network.graph)))
    tensors: dict[str, torch.Tensor] = {}
    program = (
        network.program if network.program is not None else traced.program if traced is not None else None
    )
    if program is not None:
        constants = program.constants.items()
        tensors |= {name: value for name, value in constants if isinstance(value, torch.Tensor)}
        tensors |= program.state_dict
    if network.module is not None:
        # the module overrides the program, which is only derived from it
        tensors |= dict(network.module.named_buffers(remove_duplicate=False))
        tensors |= dict(network.module.named_parameters(remove_duplicate=False))
    return {name: to_numpy(tensor) for name, tensor in tensors.items()}


def initializers(model: ir.Model) -> Iterator[tuple[str, Array]]:
    """Every constant of a graph and its nested graphs, with its name."""
    for graph in model.graphs():
        for name, value in graph.initializers.items():
            if value.const_value is not None:
                yield name, _array(value.const_value)
        for node in graph:
            if node.op_type == "Constant" and node.domain == "" and node.outputs[0].name:
                tensor = ir.convenience.get_const_tensor(node.outputs[0])
                if tensor is not None and tensor.dtype is not ir.DataType.STRING:
                    yield node.outputs[0].name, _array(tensor)


def _array(tensor: ir.TensorProtocol) -> Array:
    """The numbers of a constant; those in bfloat16, which NumPy does not have, in float32."""
    array = tensor.numpy()
    return array.astype(np.float32) if tensor.dtype is ir.DataType.BFLOAT16 else array


def expect_identical(name: str, actual: Array, expected: Array) -> None:
    """Raise a ParityError unless two tensors are equal bit for bit."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise ParityError(
            f"{name}: expected the network's weights of {expected.dtype}{list(expected.shape)}, "
            f"the graph has {actual.dtype}{list(actual.shape)}"
        )
    differs = _bits(actual) != _bits(expected)
    if differs.any():
        index = tuple(int(number) for number in np.argwhere(differs)[0])
        raise ParityError(
            f"{name}: expected the network's weights bit for bit, {np.count_nonzero(differs)} of "
            f"{actual.size} differ, first at {list(index)}: expected {expected[index]!r}, "
            f"got {actual[index]!r}"
        )


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
