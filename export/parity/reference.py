"""The reference that an export is measured by: the original network, natively and in float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import onnx_ir as ir

from turnpike.export.gates.instrument import Origin
from turnpike.export.network import Array
from turnpike.export.parity.batches import ProofBatch

# arrays by the names of the graph's outputs
TensorValues = dict[str, Array]

# difference allowed between two float64 computations of one tensor, relative to its largest value
RELATIVE_TOLERANCE = 1e-9
# absolute difference that remains when numbers near 1 cancel out in float64
ABSOLUTE_TOLERANCE = 1e-14


class RejectedError(Exception):
    """The network itself does not accept the batch."""


class Reference(Protocol):
    """Computes the network's own values of every output of the graph, hidden ones included.

    Attributes:
        description: What the values come from, for the manifest.
        warnings: What a user should know about the reference.
        noise: Relative error of the float64 values, if they are not really float64; otherwise 0.
        may_drop_nan: Whether the reference itself may lose a NaN in a maximum.
    """

    description: str
    noise: float
    may_drop_nan: bool

    @property
    def warnings(self) -> tuple[str, ...]: ...

    def native(self, batch: ProofBatch) -> TensorValues:
        """The values in the network's own precision; a RejectedError if it does not accept the batch."""
        ...

    def float64(self, batch: ProofBatch) -> TensorValues:
        """The values in float64."""
        ...

    def expect_stateless(self, batch: ProofBatch) -> None:
        """Raise an UntraceableError if a run changes the result of the next."""
        ...


def public_outputs(model: ir.Model, origins: Mapping[str, Origin]) -> list[str]:
    """The network's own outputs, in order, without the hidden ones."""
    return [str(value.name) for value in model.graph.outputs if value.name not in origins]


def network_inputs(model: ir.Model) -> list[str]:
    """The network's own inputs, in order, without the levers."""
    return [str(value.name) for value in model.graph.inputs if value.name not in model.graph.initializers]


def hidden_value(value: Array, origin: Origin) -> Array:
    """The value of a hidden output, from the value of the network that it represents."""
    value = np.moveaxis(value, origin.row_axis, 0) if origin.row_axis else value
    is_value = (origin.scale, origin.offset) == (1.0, 0.0)
    return value if is_value else origin.scale * value + origin.offset


def equal_up_to_rounding(first: Array, second: Array, noise: float = 0.0) -> bool:
    """Whether two arrays of the reference are equal up to its rounding; integers must be equal exactly."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype.kind != "f":
        return np.array_equal(first, second)
    finite = np.isfinite(first)
    if not np.array_equal(finite, np.isfinite(second)):
        return False
    tolerance = max(RELATIVE_TOLERANCE, noise)
    scale = float(np.abs(first[finite]).max(initial=0.0))
    return bool(np.all(np.abs(first[finite] - second[finite]) <= tolerance * scale + ABSOLUTE_TOLERANCE))
