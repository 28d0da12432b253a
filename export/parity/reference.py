"""What the original network answers, in its own precision and in float64: what an export is measured by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import onnx_ir as ir

from export.gates.instrument import Origin
from export.parity.batches import ProofBatch
from export.source import Array

TensorValues = dict[str, Array]

# how far two computations in float64 may be apart, for each unit of what they compute
RELATIVE_TOLERANCE = 1e-9
# what may be left of numbers near 1 that cancel out
ABSOLUTE_TOLERANCE = 1e-14


class RejectedError(Exception):
    """The network itself takes no such batch."""


class Reference(Protocol):
    """The network's own answers by the names of the graph's outputs.

    `reference` says what they come from. `noise` is how far the truth itself may be off, for each unit of
    its size, where it is not in float64. One that `forgets` may lose a NaN in a maximum itself.
    """

    reference: str
    warnings: tuple[str, ...]
    noise: float
    forgets: bool

    def own(self, batch: ProofBatch) -> TensorValues:
        """In the network's own precision; a RejectedError where it takes no such batch."""
        ...

    def wide(self, batch: ProofBatch) -> TensorValues:
        """In float64."""
        ...

    def expect_stateless(self, batch: ProofBatch) -> None:
        """Stop with an UntraceableError where a run leaves something behind for the next."""
        ...


def public_outputs(model: ir.Model, origins: Mapping[str, Origin]) -> list[str]:
    """The outputs that are the network's own, in order."""
    return [str(value.name) for value in model.graph.outputs if value.name not in origins]


def network_inputs(model: ir.Model) -> list[str]:
    """The inputs that are the network's own, in order: biases that may be overridden are not among them."""
    return [str(value.name) for value in model.graph.inputs if value.name not in model.graph.initializers]


def one_line(exc: Exception) -> str:
    """What an exception says, in one line."""
    return " ".join(str(exc).split())[:300] or type(exc).__name__


def complement(value: Array, origin: Origin) -> Array:
    """The value that a hidden output stands for, of the value it came from."""
    return 1 - value if origin.complement else value


def equal_up_to_rounding(one: Array, other: Array, noise: float = 0.0) -> bool:
    """Whether two arrays of the truth are the same but for its rounding; whole numbers must be equal."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind != "f":
        return np.array_equal(one, other)
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(other)):
        return False
    share = max(RELATIVE_TOLERANCE, noise)
    scale = float(np.abs(one[finite]).max(initial=0.0))
    return bool(np.all(np.abs(one[finite] - other[finite]) <= share * scale + ABSOLUTE_TOLERANCE))
