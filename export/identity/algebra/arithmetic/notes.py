"""Notes about terms, by which laws of functions are recognized: facts, and the formulas that made them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from turnpike.export.identity.algebra.arithmetic.terms import Array, Term, Value
from turnpike.export.identity.numbers.error_bound import ErrorBound

Fact = TypeVar("Fact")
# Formulas that are looked at to rewrite a value. Further ones stay as they are, which is always right.
MAX_FORMULAS = 96


class Notes(Generic[Fact]):
    """A fact about each of some terms.

    A fact is about the elements: it holds for a term of another kind with the same elements, too, and is
    forgotten when the elements are moved. Rounded numbers may be equal by chance, so that their facts are
    about that array alone.
    """

    def __init__(self, bound: ErrorBound, *, exact: bool) -> None:
        self._bound, self._exact = bound, exact
        # by a few of the elements
        self._facts: dict[tuple[object, ...], tuple[Term, Fact]] = {}

    def add(self, term: Value, fact: Fact) -> None:
        if isinstance(term, Term) and term.data.size:
            self._facts[sample(term.data)] = (term, fact)

    def get(self, value: Value) -> Fact | None:
        if not isinstance(value, Term) or not value.data.size:
            return None
        noted, fact = self._facts.get(sample(value.data), (None, None))
        if noted is None:
            return None
        if noted.data is not value.data:
            if not self._exact or not np.array_equal(noted.data, value.data):
                return None
            self._bound.count_comparison(value.data[0].size, value.size.plus(noted.size))
        return fact


def sample(data: Array) -> tuple[object, ...]:
    """The shape, and the first, a middle and the last element: enough to find most other arrays different."""
    places = (tuple(0 for _ in data.shape[1:]), tuple(size // 2 for size in data.shape[1:]))
    last = tuple(size - 1 for size in data.shape[1:])
    return data.shape, *(data[(slice(None), *place)].tobytes() for place in (*places, last))


@dataclass(frozen=True)
class Formula:
    """How a term was computed: a named operator, and its operands."""

    name: str
    compute: Callable[..., Value]
    operands: tuple[Value, ...]


class Formulas:
    """The formulas of terms, by the identity of their array: one term is never made from itself."""

    def __init__(self) -> None:
        # the array is kept so that no other one gets its place in memory
        self._made: dict[int, tuple[Array, Formula]] = {}

    def add(self, term: Value, name: str, compute: Callable[..., Value], *operands: Value) -> None:
        if isinstance(term, Term) and not any(
            isinstance(operand, Term) and operand.data is term.data for operand in operands
        ):
            self._made[id(term.data)] = (term.data, Formula(name, compute, operands))

    def get(self, value: Value) -> Formula | None:
        found = self._made.get(id(value.data)) if isinstance(value, Term) else None
        return None if found is None else found[1]

    def operands_of(self, value: Value, name: str) -> list[Value]:
        """The different first operands of the formulas of this name from which a value is computed."""
        found: dict[int, Value] = {}
        seen: set[int] = set()
        waiting = [value]
        while waiting and len(seen) < MAX_FORMULAS:
            formula = self.get(part := waiting.pop())
            if formula is None or not isinstance(part, Term) or id(part.data) in seen:
                continue
            seen.add(id(part.data))
            if formula.name == name and isinstance(operand := formula.operands[0], Term):
                found[id(operand.data)] = operand
            waiting.extend(formula.operands)
        return list(found.values())

    def rewritten(self, value: Value, replace: Callable[[Term, Formula | None], Value | None]) -> Value:
        """A value computed again, with other values in the place of some that it is computed from.

        Args:
            value: The value; it is returned itself if nothing is replaced.
            replace: Returns what takes the place of a term with its formula, or None.
        """
        done: dict[int, Value] = {}

        def visit(part: Value) -> Value:
            if not isinstance(part, Term) or len(done) >= MAX_FORMULAS:
                return part
            if id(part.data) not in done:
                # what is computed from itself would never end
                done[id(part.data)] = part
                done[id(part.data)] = compute(part)
            return done[id(part.data)]

        def compute(part: Term) -> Value:
            formula = self.get(part)
            replaced = replace(part, formula)
            if replaced is not None or formula is None:
                return part if replaced is None else replaced
            operands = [visit(operand) for operand in formula.operands]
            if all(new is old for new, old in zip(operands, formula.operands, strict=True)):
                return part
            return formula.compute(*operands)

        return visit(value)
