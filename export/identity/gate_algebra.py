"""An algebra that finds the logits of gates, and can give a sigmoid other values at some of its arguments.

In a run on random elements, an element is computed at one place only, or equals that of another place because
both are the same formula. So the logit of a gate is found by the elements of the gate: whatever the graph
computes from a sigmoid, a tanh, a softmax or 1 / (1 + exp(x)), the table of the results of the run has it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import Array, Term, Value
from turnpike.export.identity.algebra.arithmetic.values import Options
from turnpike.export.identity.numbers.residues import Residues

U64 = np.uint64


class ElementTable:
    """Finds elements among others. Columns are elements, rows their residues."""

    def __init__(self, elements: Array) -> None:
        self.elements = elements
        self._factors = np.array([secrets.randbits(64) | 1 for _ in elements], U64)
        keys = self._keys(elements)
        self._order = np.argsort(keys)
        self._sorted = keys[self._order]

    def _keys(self, elements: Array) -> Array:
        # sums of 64 bits wrap around; a key that agrees by chance is found out by the residues
        keys: Array = (elements * self._factors[:, None]).sum(0, dtype=U64)
        return keys

    def find(self, elements: Array) -> Array:
        """The column of each element; -1 for one that the table does not have."""
        found = np.full(elements.shape[1], -1)
        if not self._sorted.size:
            return found
        keys = self._keys(elements)
        # a search for ascending keys stays in the processor's cache
        order = np.argsort(keys)
        keys = keys[order]
        places = np.searchsorted(self._sorted, keys).clip(max=self._sorted.size - 1)
        same = self._sorted[places] == keys
        order, columns = order[same], self._order[places[same]]
        agree = (self.elements[:, columns] == elements[:, order]).all(0)
        found[order[agree]] = columns[agree]
        return found

    def find_all(self, elements: Array) -> Array:
        """All columns that have one of these elements."""
        keys, places = np.unique(self._keys(elements)), self._sorted.size + 1
        starts = np.bincount(np.searchsorted(self._sorted, keys), minlength=places)
        ends = np.bincount(np.searchsorted(self._sorted, keys, side="right"), minlength=places)
        # 1 from the start of a key to its end, 0 between keys
        return self._order[np.cumsum(starts - ends)[:-1] > 0]


@dataclass(frozen=True)
class Record:
    """One application of a function: the first result of its node, and the elements."""

    node: str
    argument: Array
    result: Array


@dataclass(frozen=True)
class Logits:
    """What a gate is computed from, one column for each of its elements.

    Attributes:
        function: The function of the logits: "sigmoid" or "exp".
        arguments: Its arguments: the logits times `sign`.
        results: Its results.
        sign: 1, or -1 for 1 / (1 + exp(-logit)).
        nodes: The first results of the nodes that compute the gate.
    """

    function: str
    arguments: Array
    results: Array
    sign: int
    nodes: frozenset[str]


class GateAlgebra(Algebra):
    """Records sigmoids, exponentials and quotients, and replaces results of the first two."""

    def __init__(self, numbers: Residues, **options: Unpack[Options]) -> None:
        super().__init__(numbers, **options)
        self.is_recording = False
        self._records: dict[str, list[Record]] = {"sigmoid": [], "exp": [], "divide": [], "reciprocal": []}
        self._replaced: dict[str, tuple[ElementTable, Array]] = {}
        self._hits: dict[str, set[int]] = {}
        self._came: dict[str, ElementTable] = {}

    # ---- the functions

    def sigmoid(self, a: Value) -> Term:
        return self._applied("sigmoid", self.term(a), self.term(super().sigmoid(a)))

    def tanh(self, a: Value) -> Term:
        # tanh(a) = 2 sigmoid(2a) - 1
        return self.term(self.subtract(self.multiply(2, self.sigmoid(self.multiply(2, a))), 1))

    def exp(self, a: Value) -> Value:
        return self._applied("exp", self.term(a), self.term(super().exp(a)))

    def reciprocal(self, a: Value) -> Term:
        result = self.term(super().reciprocal(a))
        return self._applied("reciprocal", a, result) if isinstance(a, Term) else result

    def divide(self, a: Value, b: Value) -> Value:
        result = super().divide(a, b)
        if isinstance(a, Term) and isinstance(result, Term):
            data = np.broadcast_to(a.data, result.data.shape) if a.ndim == result.ndim else None
            if data is not None:
                self._applied("divide", Term(data, a.kind, a.size), result)
        return result

    def _applied(self, name: str, argument: Term, result: Term) -> Term:
        columns = columns_of(argument.data)
        if self.is_recording:
            self._records[name].append(
                Record(self.sizes.node.partition(" = ")[0], columns, columns_of(result.data))
            )
        if name not in self._replaced:
            return result
        table, replacements = self._replaced[name]
        found = table.find(columns)
        places = np.flatnonzero(found >= 0)
        if not places.size:
            return result
        self._hits.setdefault(name, set()).update(found[places].tolist())
        data = columns_of(result.data).copy()
        data[:, places] = replacements[:, found[places]]
        return Term(data.reshape(result.data.shape), result.kind, result.size, result.is_binary)

    # ---- the logits of gates, and other values for them

    def replace_results(self, results: dict[str, tuple[Array, Array]]) -> None:
        """From now on, give these results, in columns, for these arguments of sigmoid and exp."""
        self._hits.clear()
        self._came.clear()
        self._replaced = {name: (ElementTable(old), new) for name, (old, new) in results.items()}

    def came(self, function: str, arguments: Array) -> Array:
        """For each of some replaced arguments, in columns: whether the function was applied to it.

        Ask when the run is over: the answers are for all that has come until the first question.
        """
        if function not in self._came:
            hits = sorted(self._hits.get(function, set()))
            self._came[function] = ElementTable(self._replaced[function][0].elements[:, hits])
        return self._came[function].find(arguments) >= 0

    def tables(self) -> GateTables:
        return GateTables(self, self._records)


class GateTables:
    """Tables of what was recorded."""

    def __init__(self, algebra: Algebra, records: dict[str, list[Record]]) -> None:
        self._algebra = algebra
        numbers = algebra.numbers
        # the node of each column
        self._nodes: dict[str, Array] = {
            name: np.repeat([r.node for r in found], [r.result.shape[1] for r in found])
            for name, found in records.items()
        }
        self._arguments = {name: _joined([r.argument for r in found]) for name, found in records.items()}
        self._results = {name: _joined([r.result for r in found]) for name, found in records.items()}
        # sigmoid(-x) = 1 - sigmoid(x)
        results = self._results["sigmoid"]
        one = numbers.from_integers(np.ones(1, np.int64))
        both = np.concatenate([results, numbers.subtract(one, results)], 1)
        self._tables = {
            name: ElementTable(both if name == "sigmoid" else found) for name, found in self._results.items()
        }

    def logits(self, gate: Term) -> Logits | None:
        """The logits of a gate; None if it is none of the known functions of them."""
        numbers, elements = self._algebra.numbers, columns_of(gate.data)
        columns = self._tables["sigmoid"].find(elements)
        if (columns >= 0).all():
            count = self._results["sigmoid"].shape[1]
            found = self._arguments["sigmoid"][:, columns % count]
            negated = numbers.subtract(np.zeros_like(found), found)
            # one of them may compute 1 - T
            nodes = self._nodes_at("sigmoid", self._tables["sigmoid"].find_all(elements) % count)
            return Logits("sigmoid", np.where(columns < count, found, negated), elements, 1, nodes)
        # a softmax, or 1 / (1 + exp(-x))
        columns = self._tables["divide"].find(elements)
        if (columns >= 0).all():
            powers = self._tables["exp"].find(self._arguments["divide"][:, columns])
            if (powers >= 0).all():
                nodes = self._nodes_at("divide", self._tables["divide"].find_all(elements))
                return self._power(powers, 1, nodes)
        columns = self._tables["reciprocal"].find(elements)
        if (columns >= 0).all():
            divisors = self._arguments["reciprocal"][:, columns]
            one = numbers.from_integers(np.ones(1, np.int64))
            powers = self._tables["exp"].find(numbers.subtract(divisors, one))
            if (powers >= 0).all():
                nodes = self._nodes_at("reciprocal", self._tables["reciprocal"].find_all(elements))
                return self._power(powers, -1, nodes)
        return None

    def _power(self, columns: Array, sign: int, nodes: frozenset[str]) -> Logits:
        arguments, results = self._arguments["exp"][:, columns], self._results["exp"][:, columns]
        return Logits("exp", arguments, results, sign, nodes)

    def _nodes_at(self, name: str, columns: Array) -> frozenset[str]:
        names = self._nodes[name]
        return frozenset(map(str, np.unique(names[columns])))


def columns_of(data: Array) -> Array:
    """Elements as a matrix with a column for each."""
    return data.reshape(len(data), -1)


def _joined(parts: Sequence[Array]) -> Array:
    return np.concatenate(parts, 1) if parts else np.zeros((6, 0), U64)
