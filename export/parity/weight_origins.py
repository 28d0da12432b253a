"""Traces every initializer of a graph to the network's parameter it came from, and compares bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import onnx_ir as ir
import torch

from turnpike.export.errors import ParityError
from turnpike.export.identity.aten.run_program import to_numpy
from turnpike.export.network import Array, Network
from turnpike.export.parity.network_runs import recompute_constant
from turnpike.export.trace.trace_network import TracedGraph

# up to this size a constant may be a literal, shape or index instead of a weight; the outputs show its effect
MAX_LITERAL_SIZE = 8
# transposed copies are searched only for tensors of up to this many axes: there are factorially many
MAX_TRANSPOSED_AXES = 4
# error allowed for a constant that the exporter computed (batch norm folded into a layer), in units in the
# last place
MAX_ULP = 2.0


@dataclass(frozen=True)
class WeightMatch:
    """How many initializers are identical to parameters, how many were computed from them, and the error."""

    identical: int
    derived: int
    ulp: float


def check_weights(
    network: Network, traced: TracedGraph | None, model: ir.Model, *, decided: bool = False
) -> WeightMatch:
    """Find the origin of every initializer, or raise a ParityError that names the first without one.

    If the graph is decided to be the network's function, constants may come from anywhere.
    """
    originals = parameters(network, traced)
    index = _TensorIndex(originals)
    identical = derived = 0
    worst = 0.0
    for name, value in initializers(model):
        if name in originals:
            expect_identical(name, value, originals[name])
            identical += 1
        elif value.dtype.kind != "f" or value.size <= MAX_LITERAL_SIZE or not value.any():
            continue
        elif index.contains(value):
            identical += 1
        else:
            with suppress(ParityError) if decided else nullcontext():
                worst = max(worst, rounding_distance(name, value, traced))
                derived += 1
    return WeightMatch(identical, derived, worst)


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


def rounding_distance(name: str, value: Array, traced: TracedGraph | None) -> float:
    """How far a constant is from the program's own, recomputed in float64.

    Measured in units in the last place of its largest number: sines, for example, leave numbers near zero
    no more accurate than the larger numbers they were computed from.
    """
    recomputed = None if traced is None else recompute_constant(traced.program, name)
    if recomputed is None:
        known = [] if traced is None else list(traced.program.state_dict)
        hint = f"; the network has {', '.join(known[:4])}{' and others' * (len(known) > 4)}" if known else ""
        raise ParityError(
            f"{name}: expected one of the network's weights, or several transposed, reshaped or "
            f"concatenated, got another constant {value.dtype}{list(value.shape)}{hint}"
        )
    if recomputed.shape != value.shape:
        raise ParityError(
            f"{name}: expected a constant of shape {list(recomputed.shape)}, got {list(value.shape)}"
        )
    unit = float(np.spacing(np.abs(recomputed).max(initial=0.0).astype(value.dtype)))
    units = float(np.max(np.abs(value.astype(np.float64) - recomputed))) / unit
    if not units <= MAX_ULP:
        raise ParityError(
            f"{name}: expected a constant within {MAX_ULP:g} units in the last place of the network's own, "
            f"recomputed in float64, got one that is off by {units:.3g}"
        )
    return units


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


class _TensorIndex:
    """Finds tensors by their bits: unchanged, reshaped, transposed, several concatenated, or rows of one."""

    def __init__(self, originals: Mapping[str, Array]) -> None:
        self._originals = [array for array in originals.values() if array.size > 1]

    def contains(self, value: Array) -> bool:
        """Whether all bits of a tensor come from known ones."""
        if value.size <= MAX_LITERAL_SIZE:
            return False
        same_size = [
            array.tobytes()
            for array in self._originals
            if array.dtype == value.dtype and array.size == value.size
        ]
        axis_orders = (
            permutations(range(value.ndim)) if same_size and value.ndim <= MAX_TRANSPOSED_AXES else []
        )
        if any(value.transpose(axes).tobytes() in same_size for axes in axis_orders):
            return True
        axes = range(value.ndim)
        return any(
            self._is_concatenation(np.moveaxis(value, axis, 0)) or self._is_selection(value, axis)
            for axis in axes
        )

    def _is_selection(self, value: Array, axis: int) -> bool:
        """Whether it has some rows of a known tensor along an axis, in their order."""
        parts = [part.tobytes() for part in np.moveaxis(value, axis, 0)]
        for array in self._originals:
            if array.dtype == value.dtype and array.ndim == value.ndim:
                known = iter([part.tobytes() for part in np.moveaxis(array, axis, 0)])
                if all(part in known for part in parts):
                    return True
        return False

    def _is_concatenation(self, value: Array) -> bool:
        """Whether it is a concatenation of known tensors, possibly transposed, along the first axis."""
        start = 0
        while start < len(value):
            rest = value[start:]
            matching_lengths = (
                len(part)
                for array in self._originals
                for part in (array, array.T)
                if part.dtype == value.dtype
                and part.ndim == value.ndim
                and part.shape[1:] == value.shape[1:]
                and len(part) <= len(rest)
                and part.tobytes() == rest[: len(part)].tobytes()
            )
            length = next(matching_lengths, 0)
            if not length:
                return False
            start += length
        return value.size > 0
