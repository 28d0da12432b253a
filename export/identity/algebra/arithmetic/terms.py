"""Values of an exact run: what is known before it, terms, which depend on the inputs, and sizes of inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
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

    @cached_property
    def digest(self) -> bytes:
        """A digest of the elements."""
        # residues have 31 bits
        return digest_of(self.data.astype(np.uint32) if self.data.dtype == np.uint64 else self.data)


def digest_of(array: Array) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(array).data).digest()


# programs write bounds of this size for "to the end"
NO_BOUND = 2**31 - 1


class SizeLedger:
    """The sizes that the first program computes: the second one may shape its tensors by no others.

    Without this, a graph could cut its tensors differently for 37 rows, and be the same at all sizes that are
    run. Sums and products of sizes are harmless: they grow with the sizes, so one that fits at the few random
    sizes of the runs fits at all.
    """

    def __init__(self, from_integers: Callable[[Array], Array]) -> None:
        """`from_integers` converts numbers to field elements."""
        self._from_integers = from_integers
        self._allowed: set[bytes] = set()
        self._expected: set[tuple[object, ...]] = set()
        # the first program is run, and defines what is allowed
        self.is_open = True
        # the node that is run
        self.node = ""
        # uses of other sizes
        self.others: list[str] = []

    def use_bound(self, bound: object, length: int) -> None:
        """Note a number that cuts an axis: one beyond the axis cuts longer ones, and nothing here."""
        if isinstance(bound, int) and length < abs(bound) < NO_BOUND:
            self.expect(("bound", abs(bound)), f"a bound of {bound} for {length} places")

    def use_reach(self, reach: int, length: int) -> None:
        """Note a distance between places, such as that of a window's edge from its middle."""
        self.use_bound(reach, length - 1)

    def use_table(self, table: Array) -> None:
        """Note a known table that is cut by sizes: its other numbers belong to longer inputs."""
        self.expect(("table", str(table.dtype), digest_of(table)), "a table of numbers that is cut by sizes")

    def expect(self, key: tuple[object, ...], what: str) -> None:
        """Note something that the second program may have only if the first one has it, too."""
        if self.is_open:
            self._expected.add(key)
        elif key not in self._expected:
            self.others.append(f"{self.node}: {what}")

    def allow(self, elements: Array) -> None:
        """Allow the sizes that these field elements stand for."""
        self._allowed.update(_each(elements))

    def use(self, sizes: Sizes, what: str) -> Array:
        """The numbers of sizes that shape a tensor."""
        if self.is_open:
            self.allow(sizes.term.data)
        elif not sizes.is_growing:
            literals = _each(self._from_integers(sizes.numbers))
            elements = _each(sizes.term.data)
            if any(
                element != literal and element not in self._allowed
                for element, literal in zip(elements, literals, strict=True)
            ):
                self.others.append(f"{self.node}: {what} that is computed from sizes")
        return sizes.numbers


def _each(elements: Array) -> list[bytes]:
    return [element.tobytes() for element in elements.reshape(len(elements), -1).T]


@dataclass(frozen=True, eq=False)
class Sizes:
    """Integers that a program computed from the sizes of its inputs.

    `numbers` are those of this run, which shape tensors. `term` stands for any sizes: each size that was read
    from a tensor is an atom. So a program that computes with its number of rows differs from one that does
    not, whatever the number is in this run.
    """

    numbers: Array
    term: Term
    ledger: SizeLedger
    # sums and products of sizes that were read, and of numbers of at least 0
    is_growing: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numbers.shape

    @property
    def ndim(self) -> int:
        return self.numbers.ndim

    def __index__(self) -> int:
        return int(self.ledger.use(self, "a size"))

    __int__ = __index__

    def __bool__(self) -> bool:
        return bool(self.ledger.use(self, "a condition on sizes"))


# A NumPy array or a number of Python is known before the run: a weight, a literal, a shape or an index.
Known: TypeAlias = Array | np.generic | int | float | bool
Value: TypeAlias = Term | Sizes | Known


def kind_of(value: Value) -> str:
    """The kind of a value: "f", "i" or "b"."""
    if isinstance(value, Term):
        return value.kind
    if isinstance(value, Sizes):
        value = value.numbers
    return {"f": "f", "b": "b", "i": "i", "u": "i"}[np.asarray(value).dtype.kind]


def joint_kind(*values: Value) -> str:
    """The kind of a result of arithmetic on these values."""
    kinds = {kind_of(value) for value in values}
    return next(kind for kind in "fib" if kind in kinds)


def shape_of(value: Value) -> tuple[int, ...]:
    return value.shape if isinstance(value, Term | Sizes) else np.shape(value)


def known_integers(*values: Value) -> list[Array] | None:
    """The values if all are known integers or booleans, with which NumPy computes exactly; else None."""
    if any(isinstance(value, Term | Sizes) for value in values):
        return None
    arrays = [np.asarray(value) for value in values]
    return arrays if all(array.dtype.kind in "biu" for array in arrays) else None


def known(value: Value, what: str) -> Array:
    """A value that must be known before the run. `what` names it in the error."""
    if isinstance(value, Term):
        raise UndecidedError(f"{what} depends on the input")
    return value.ledger.use(value, what) if isinstance(value, Sizes) else np.asarray(value)
