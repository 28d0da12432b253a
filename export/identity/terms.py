"""Values of an exact run: what is known before it, and terms, which depend on the inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from turnpike.export.identity.numbers.error_bound import Size

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class UndecidedError(Exception):
    """A program has something that no exact run covers, so that nothing is decided. Names the operator."""


@dataclass(frozen=True, eq=False)
class Term:
    """A tensor of field elements.

    Attributes:
        data: The elements; the first axis is that of the primes.
        kind: What the program has in their place: "f" for floats, "i" for integers, "b" for booleans.
        size: Bounds of the polynomials that the elements stand for.
        is_binary: They are 0 or 1 in the program, as after a cast from booleans.
    """

    data: Array
    kind: str
    size: Size
    is_binary: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape[1:]

    @property
    def ndim(self) -> int:
        return self.data.ndim - 1


# A NumPy array or a number of Python is known before the run: a weight, a literal, a shape or an index.
Known: TypeAlias = Array | np.generic | int | float | bool
Value: TypeAlias = Term | Known


def kind_of(value: Value) -> str:
    """The kind of a value: "f", "i" or "b"."""
    if isinstance(value, Term):
        return value.kind
    return {"f": "f", "b": "b", "i": "i", "u": "i"}[np.asarray(value).dtype.kind]


def joint_kind(*values: Value) -> str:
    """The kind of a result of arithmetic on these values."""
    kinds = {kind_of(value) for value in values}
    return next(kind for kind in "fib" if kind in kinds)


def shape_of(value: Value) -> tuple[int, ...]:
    return value.shape if isinstance(value, Term) else np.shape(value)


def known_integers(*values: Value) -> list[Array] | None:
    """The values if all are known integers or booleans, with which NumPy computes exactly; else None."""
    if any(isinstance(value, Term) for value in values):
        return None
    arrays = [np.asarray(value) for value in values]
    return arrays if all(array.dtype.kind in "biu" for array in arrays) else None


def known(value: Value, what: str) -> Array:
    """A value that must be known before the run. `what` names it in the error."""
    if isinstance(value, Term):
        raise UndecidedError(f"{what} depends on the input")
    return np.asarray(value)
