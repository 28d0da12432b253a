"""Whether every weight of a graph is, bit for bit, the one it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import onnx_ir as ir
import torch

from export.errors import ParityError
from export.parity.torch_reference import recompute_constant
from export.source import Array, Source
from export.trace.trace import TracedGraph

# literals of a formula, shapes and places are no weights: what they do shows in the answers
MAX_LITERAL_SIZE = 8
# tensors of more axes are not looked for transposed
MAX_TRANSPOSED_AXES = 4
# what a constant that was folded may be off by, in units in the last place
MAX_ULP = 2.0


@dataclass(frozen=True)
class WeightMatch:
    """How many initializers are the parameters themselves, and how many were worked out from them."""

    identical: int
    derived: int
    ulp: float


def check_weights(source: Source, traced: TracedGraph | None, model: ir.Model) -> WeightMatch:
    """Find the origin of every initializer; a ParityError names the first that has none."""
    originals = parameters(source, traced)
    index = _TensorIndex(originals)
    identical = derived = 0
    worst = 0.0
    for name, value in initializers(model):
        if name in originals:
            expect_identical(name, value, originals[name])
            identical += 1
        elif value.dtype.kind != "f" or value.size <= MAX_LITERAL_SIZE or not value.any():
            continue
        elif index.holds(value):
            identical += 1
        else:
            worst = max(worst, rounding_distance(name, value, traced))
            derived += 1
    return WeightMatch(identical, derived, worst)


def parameters(source: Source, traced: TracedGraph | None) -> dict[str, Array]:
    """Every tensor that the source holds: parameters, buffers and constants, by name."""
    if source.graph is not None:
        return dict(initializers(ir.from_proto(source.graph)))
    found: dict[str, torch.Tensor] = {}
    program = source.program if source.program is not None else traced.program if traced is not None else None
    if program is not None:
        found |= {name: held for name, held in program.constants.items() if isinstance(held, torch.Tensor)}
        found |= program.state_dict
    if source.module is not None:
        # the module itself has the last word: a program is only what was made of it
        found |= dict(source.module.named_buffers(remove_duplicate=False))
        found |= dict(source.module.named_parameters(remove_duplicate=False))
    return {name: tensor.detach().cpu().numpy() for name, tensor in found.items()}


def initializers(model: ir.Model) -> Iterator[tuple[str, Array]]:
    """Every constant of a graph and of the graphs inside it, by name."""
    for graph in model.graphs():
        for name, value in graph.initializers.items():
            if value.const_value is not None:
                yield name, value.const_value.numpy()
        for node in graph:
            if node.op_type == "Constant" and node.domain == "" and node.outputs[0].name:
                tensor = ir.convenience.get_const_tensor(node.outputs[0])
                if tensor is not None and tensor.dtype is not ir.DataType.STRING:
                    yield node.outputs[0].name, tensor.numpy()


def expect_identical(name: str, came: Array, expected: Array) -> None:
    """Stop with a ParityError unless two tensors are the same, to the last bit."""
    if came.shape != expected.shape or came.dtype != expected.dtype:
        raise ParityError(
            f"{name}: expected the network's weights of {expected.dtype}{list(expected.shape)}, "
            f"the graph has {came.dtype}{list(came.shape)}"
        )
    differ = _bits(came) != _bits(expected)
    if differ.any():
        place = tuple(int(at) for at in np.argwhere(differ)[0])
        raise ParityError(
            f"{name}: expected the network's weights bit for bit, {np.count_nonzero(differ)} of "
            f"{came.size} differ, first {came[place]!r} for {expected[place]!r} at {list(place)}"
        )


def rounding_distance(name: str, value: Array, traced: TracedGraph | None) -> float:
    """How far a constant is from the program's own, worked out again in float64.

    Counted in units in the last place of its greatest number: where sines and the like come into it, a
    number near zero is no better than those that it was made of.
    """
    again = None if traced is None else recompute_constant(traced.program, name)
    if again is None:
        raise ParityError(
            f"{name}: the graph has a constant {value.dtype}{list(value.shape)} that is none of the "
            "network's weights, nor made of them by transposing, reshaping or joining"
        )
    if again.shape != value.shape:
        raise ParityError(
            f"{name}: expected a constant of shape {list(again.shape)}, got {list(value.shape)}"
        )
    unit = float(np.spacing(np.abs(again).max(initial=0.0).astype(value.dtype)))
    units = float(np.max(np.abs(value.astype(np.float64) - again))) / unit
    if not units <= MAX_ULP:
        raise ParityError(
            f"{name}: expected a constant within {MAX_ULP:g} units in the last place of the network's own, "
            f"worked out again in float64, got one that is {units:.3g} off"
        )
    return units


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


class _TensorIndex:
    """Finds a tensor among others by its bits: as it is, reshaped, transposed, or several joined as one."""

    def __init__(self, originals: Mapping[str, Array]) -> None:
        self._originals = [array for array in originals.values() if array.size > 1]

    def holds(self, value: Array) -> bool:
        """Whether every bit of a tensor is from others."""
        if value.size <= MAX_LITERAL_SIZE:
            return False
        alike = [
            array.tobytes()
            for array in self._originals
            if array.dtype == value.dtype and array.size == value.size
        ]
        turns = permutations(range(value.ndim)) if alike and value.ndim <= MAX_TRANSPOSED_AXES else []
        if any(value.transpose(turn).tobytes() in alike for turn in turns):
            return True
        return any(self._is_joined(np.moveaxis(value, axis, 0)) for axis in range(value.ndim))

    def _is_joined(self, value: Array) -> bool:
        """Whether it is whole tensors, as they are or transposed, one after another along its first axis."""
        start = 0
        while start < len(value):
            rest = value[start:]
            fits = (
                len(part)
                for array in self._originals
                for part in (array, array.T)
                if part.dtype == value.dtype
                and part.ndim == value.ndim
                and part.shape[1:] == value.shape[1:]
                and len(part) <= len(rest)
                and part.tobytes() == rest[: len(part)].tobytes()
            )
            length = next(fits, 0)
            if not length:
                return False
            start += length
        return value.size > 0
