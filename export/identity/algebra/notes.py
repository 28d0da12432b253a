"""Notes about terms, by which laws of functions are recognized: what the elements were computed from."""

from __future__ import annotations

from typing import Generic, TypeVar

from turnpike.export.identity.algebra.terms import Array, Term, Value

Fact = TypeVar("Fact")


class Notes(Generic[Fact]):
    """A fact about each of some terms.

    A fact is about the array of elements: it holds for a term of another kind with the same array, too, and
    is forgotten when the elements are moved.
    """

    def __init__(self) -> None:
        # by the identity of the array, which is kept so that no other one gets its place in memory
        self._facts: dict[int, tuple[Array, Fact]] = {}

    def add(self, term: Term, fact: Fact) -> None:
        self._facts[id(term.data)] = (term.data, fact)

    def get(self, value: Value) -> Fact | None:
        found = self._facts.get(id(value.data)) if isinstance(value, Term) else None
        return None if found is None else found[1]
