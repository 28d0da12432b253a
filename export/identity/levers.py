"""Decides whether levers move their gates and nothing else, and whether closed layers carry their input.

A lever is a bias of a gate that a caller may replace. The graph has run with its own biases, and runs again
with a random element d added to each lever. In the second run, the sigmoids of the gates get the values of
the first run back at the arguments logit + d, and random values at the arguments logit. So the second run
has the results of the first one in all outputs if, and only if, each lever adds d to the logits of its own
gate wherever they are read, and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from turnpike.export.identity.algebra.arithmetic.terms import Array, Term, UndecidedError, Value
from turnpike.export.identity.closed_layers import ClosedLayers
from turnpike.export.identity.decision import LeverDecision, Verdict
from turnpike.export.identity.gate_algebra import GateAlgebra, GateTables, Logits, columns_of
from turnpike.export.identity.numbers.error_bound import ATOM
from turnpike.export.identity.onnx.run_graph import GraphRun, run_graph
from turnpike.service.artifact.manifest import Gate, Lever


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A run of a graph with its own biases, and what it ran on."""

    algebra: GateAlgebra
    inputs: Sequence[Value]
    graph: GraphRun


def record_run(model: ir.Model, algebra: GateAlgebra, inputs: Sequence[Value]) -> RecordedRun:
    """Run a graph, and record what its gates are computed from."""
    algebra.is_recording = True
    graph = run_graph(model, algebra, inputs)
    algebra.is_recording = False
    return RecordedRun(algebra, inputs, graph)


def decide_levers(
    model: ir.Model, gates: Sequence[Gate], run: RecordedRun, trusted: ir.Model | None = None
) -> LeverDecision:
    """Decide about all levers and all layers of a graph.

    Args:
        model: The graph.
        gates: Its gates, as the manifest describes them.
        run: A run of the graph. More than one row shows a lever that works in one row only.
        trusted: A graph that was exported here from the same network, for gates whose logits are not found:
            their levers have to do the same in both.
    """
    with np.errstate(over="ignore"):
        try:
            return _Levers(model, gates, run, trusted).decide()
        except UndecidedError as error:
            return LeverDecision(Verdict.NOT_DECIDED, reason=str(error).splitlines()[0])


@dataclass(frozen=True, eq=False)
class _Part:
    """T or C of a gate: a shift of d adds d to the logit of T, and subtracts it from that of C."""

    gate: Gate
    is_carry: bool
    logits: Logits


class _Levers:
    """A graph with its own biases, and what it computes with others."""

    def __init__(
        self, model: ir.Model, gates: Sequence[Gate], run: RecordedRun, trusted: ir.Model | None
    ) -> None:
        self._model, self._gates, self._trusted = model, gates, trusted
        self._algebra, self._inputs, self._base = run.algebra, run.inputs, run.graph
        self._logits = self._find_logits(self._algebra.tables())
        self._parts = [part for gate in gates if gate.levers for part in self._parts_of(gate)]
        # what is added to each lever
        spans = {_span(lever): lever for gate in gates for lever in gate.levers}
        self._shifts = {place: self._algebra.numbers.random((1,)) for place in spans}

    def _find_logits(self, tables: GateTables) -> dict[str, Logits | None]:
        names = {name for gate in self._gates for name in (gate.name, gate.carry_gate) if name is not None}
        for name in names:
            if name not in self._base.outputs:
                raise UndecidedError(f"the graph has no output {name}")
        return {name: tables.logits(self._algebra.term(self._base.outputs[name])) for name in names}

    def _parts_of(self, gate: Gate) -> list[_Part]:
        """T and C of a gate; nothing if the logits of one of them were not found."""
        parts = []
        for is_carry, name in ((False, gate.name), (True, gate.carry_gate)):
            if name is not None:
                logits = self._logits[name]
                if logits is None:
                    return []
                parts.append(_Part(gate, is_carry, logits))
        return parts

    def decide(self) -> LeverDecision:
        faults = self._missing_biases()
        undecided: list[str] = []
        if not faults:
            faults, undecided = self._movements()
        closed = ClosedLayers(self._model, self._gates, self._algebra, self._base, self._logits)
        faulty = dict(faults)
        for gates in _by_output(self._gates):
            fault, sentence = closed.check(gates)
            if fault is not None:
                faulty.setdefault(gates[0].name, fault)
            elif sentence is not None:
                undecided.append(f"{gates[0].name}: {sentence}")
        moved = {part.gate.name for part in self._parts} - faulty.keys()
        verdict = Verdict.DIFFERENT if faulty else Verdict.NOT_DECIDED if undecided else Verdict.IDENTICAL
        return LeverDecision(
            verdict,
            tuple(gate.name for gate in self._gates if gate.name in moved),
            tuple(closed.carried),
            tuple(faulty),
            next((f"{name}: {fault}" for name, fault in faulty.items()), None),
            tuple(undecided),
            self._algebra.bound.probability(),
        )

    # ---- levers

    def _missing_biases(self) -> dict[str, str]:
        """The gates with a lever that a caller cannot set."""
        inputs = {value.name for value in self._model.graph.inputs}
        weights = self._model.graph.initializers
        faults = {}
        for gate in self._gates:
            for lever in gate.levers:
                array = weights[lever.tensor].const_value if lever.tensor in weights else None
                if array is None or lever.tensor not in inputs or lever.stop > array.size:
                    faults[gate.name] = (
                        f"expected a bias {lever.tensor} of at least {lever.stop} numbers, as an input"
                    )
        return faults

    def _movements(self) -> tuple[dict[str, str], list[str]]:
        """The gates that do not move as their levers say, with what is wrong; and what is not decided."""
        known = {part.gate.name for part in self._parts}
        unknown = [gate for gate in self._gates if gate.levers and gate.name not in known]
        undecided = [
            f"{gate.name}: a lever of a gate that is neither a sigmoid nor a softmax" for gate in unknown
        ]
        transforms = [part for part in self._parts if not part.is_carry]
        run = self._run_moved(transforms)
        faults = self._faults()
        carries = [part for part in self._parts if part.is_carry and self._came(part).any(0).all()]
        if carries and not faults and not self._differences(run):
            run = self._run_moved([*transforms, *carries])
            faults = self._faults()
        differences = self._differences(run)
        ambiguous = False
        if faults or differences:
            # a fault changes all gates after its own: find the first, with the logits left as they are
            run = self._run_moved([])
            faults, others = self._faults(), self._differences(run)
            if others and faults:
                faults = dict(list(faults.items())[:1])
            elif others:
                faults = {others[0]: "the levers change it, and not only by their gates"}
            ambiguous = not faults
        if ambiguous:
            undecided.append(f"{differences[0]}: it depends on the logit of a gate beside the gate")
        if not faults and (unknown or ambiguous) and (others := self._unlike_trusted()):
            faults = {others[0]: "the levers do not change it as in the graph that was exported here"}
        return faults, undecided

    def _run_moved(self, poisoned: Iterable[_Part]) -> GraphRun:
        """Run with moved levers, and the gates as they were; other uses of some logits get random values."""
        numbers = self._algebra.numbers
        results: dict[str, list[tuple[Array, Array]]] = {}
        for part in self._parts:
            for lever in part.gate.levers:
                results.setdefault(part.logits.function, []).append(
                    (self._moved_arguments(part, lever), part.logits.results)
                )
        for part in poisoned:
            other = numbers.add(part.logits.results, numbers.random((1,)))
            results[part.logits.function].append((part.logits.arguments, other))
        one = numbers.from_integers(np.ones(1, np.int64))
        for pair in results.get("sigmoid", [])[:]:
            results["sigmoid"].append((self._negated(pair[0]), numbers.subtract(one, pair[1])))
        self._algebra.replace_results(
            {
                name: (
                    np.concatenate([old for old, _ in pairs], 1),
                    np.concatenate([new for _, new in pairs], 1),
                )
                for name, pairs in results.items()
            }
        )
        return run_graph(self._model, self._algebra, self._inputs, self._moved_biases(self._parts))

    def _moved_biases(self, parts: Iterable[_Part]) -> dict[str, Value]:
        return self._biases({_span(lever) for part in parts for lever in part.gate.levers})

    def _biases(self, places: Iterable[tuple[str, int, int]]) -> dict[str, Value]:
        """Biases with random elements added."""
        biases: dict[str, Value] = {}
        for tensor, start, stop in places:
            weight = self._model.graph.initializers[tensor].const_value
            if weight is None:
                continue
            term = self._algebra.term(biases.get(tensor, weight.numpy()))
            data = columns_of(term.data).copy()
            data[:, start:stop] = self._algebra.numbers.add(
                data[:, start:stop], self._shifts[tensor, start, stop]
            )
            biases[tensor] = Term(data.reshape(term.data.shape), "f", term.size.plus(ATOM))
        return biases

    def _moved_arguments(self, part: _Part, lever: Lever) -> Array:
        """The arguments of the function of a gate, with its lever moved."""
        shift = self._shifts[_span(lever)]
        sign = lever.sign * part.logits.sign * (-1 if part.is_carry else 1)
        return self._algebra.numbers.add(part.logits.arguments, shift if sign > 0 else self._negated(shift))

    def _negated(self, elements: Array) -> Array:
        return self._algebra.numbers.subtract(np.zeros_like(elements), elements)

    def _came(self, part: _Part) -> Array:
        """For each lever of a gate, and each element of T or C: whether the lever has moved its logit."""
        function = part.logits.function
        rows = []
        for lever in part.gate.levers:
            arguments = self._moved_arguments(part, lever)
            came = self._algebra.came(function, arguments)
            if function == "sigmoid":
                came |= self._algebra.came(function, self._negated(arguments))
            rows.append(came)
        return np.array(rows)

    def _faults(self) -> dict[str, str]:
        """The gates whose logits did not move in the last run, or not all of them."""
        faults = {}
        moving: dict[str, Array] = {}
        for part in self._parts:
            came, gate = self._came(part), part.gate
            # C may have no lever
            moving[gate.name] = np.logical_or(moving.get(gate.name, False), came.any(1))
            if not part.is_carry and not came.any(0).all():
                levers = ", ".join(dict.fromkeys(lever.tensor for lever in gate.levers))
                share = f"only {came.any(0).mean():.0%} of it" if came.any() else "nothing of it"
                faults[gate.name] = f"its lever {levers} moves {share}"
        for part in self._parts:
            for lever, has_moved in zip(part.gate.levers, moving[part.gate.name], strict=True):
                if not has_moved:
                    faults.setdefault(part.gate.name, f"its lever {lever.tensor} moves nothing of it")
        return {gate.name: faults[gate.name] for gate in self._gates if gate.name in faults}

    def _differences(self, run: GraphRun) -> list[str]:
        """The outputs that differ from those with the biases of the file."""
        return [
            name for name, value in run.outputs.items() if not self._is_same(value, self._base.outputs[name])
        ]

    def _is_same(self, a: Value, b: Value) -> bool:
        x, y = self._algebra.term(a), self._algebra.term(b)
        self._algebra.bound.count_comparison(max(1, x.data[0].size), x.size.plus(y.size))
        return x.shape == y.shape and bool((x.data == y.data).all())

    def _unlike_trusted(self) -> list[str]:
        """The outputs that are another function of inputs and levers than in the trusted graph."""
        if self._trusted is None or self._trusted is self._model:
            return []
        biases = self._biases(self._shifts)
        self._algebra.replace_results({})
        expected = run_graph(self._trusted, self._algebra, self._inputs, biases).outputs
        actual = run_graph(self._model, self._algebra, self._inputs, biases).outputs
        return [
            name
            for name, value in actual.items()
            if name in expected and not self._is_same(value, expected[name])
        ]


def _span(lever: Lever) -> tuple[str, int, int]:
    return lever.tensor, lever.start, lever.stop


def _by_output(gates: Iterable[Gate]) -> list[list[Gate]]:
    """The gates of each sum; those without a known sum are alone."""
    groups: dict[str, list[Gate]] = {}
    for gate in gates:
        groups.setdefault(gate.output or gate.name, []).append(gate)
    return list(groups.values())
