"""Decides whether an ONNX graph and a traced program, or another graph, are the same function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import onnx_ir as ir
from torch.export import ExportedProgram

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import Array, Term, UndecidedError, Value
from turnpike.export.identity.aten.run_program import run_program
from turnpike.export.identity.decision import (
    MAX_ERROR_BOUND,
    Decision,
    HiddenOutput,
    InputShape,
    LeverDecision,
    Verdict,
)
from turnpike.export.identity.folded_constants import FoldedConstant, folded_constants
from turnpike.export.identity.gate_algebra import GateAlgebra
from turnpike.export.identity.interface import interface_difference
from turnpike.export.identity.levers import RecordedRun, decide_levers, record_run
from turnpike.export.identity.numbers.error_bound import ErrorBound
from turnpike.export.identity.numbers.residues import PRIMES, Residues
from turnpike.export.identity.onnx.literals import other_literal
from turnpike.export.identity.onnx.run_graph import run_graph
from turnpike.export.identity.rows import decide_rows
from turnpike.export.identity.samples import draw_inputs
from turnpike.service.artifact.manifest import Gate

# computes a value from those of the reference, which have its names
Expression: TypeAlias = Callable[[Algebra, Mapping[str, Value]], Value]


def decide(
    reference: ExportedProgram | ir.Model,
    model: ir.Model,
    shapes: Sequence[Sequence[InputShape]],
    hidden: Mapping[str, HiddenOutput] | None = None,
    *,
    trusted: ir.Model | None = None,
    row_axes: Sequence[int | None] | None = None,
    gates: Sequence[Gate] = (),
    constants: Mapping[str, Expression] = MappingProxyType({}),
) -> Decision:
    """Run both on the same random elements and compare all outputs.

    Args:
        reference: The traced network, or the graph that it came as.
        model: The graph. Its levers have their defaults.
        shapes: The sets of input shapes to run, each with a shape for every input.
        hidden: Outputs of the graph that the reference does not have, by name.
        trusted: A graph that was exported here from the same program. Constants that torch.onnx computes are
            taken from it, and those of `model` have to equal them bit for bit. So do the names and dtypes of
            inputs, outputs and levers.
        row_axes: The axis of the rows of each input, or None for an input that all rows share. With them, the
            sets of shapes are those of `ROW_SETS`, and it is decided whether rows depend on each other.
        gates: The gates of the graph, whose levers and layers are decided on the last set of shapes.
        constants: For initializers of a graph without gates that are rounded: what they stand for.
    """
    if trusted is not None and (found := interface_difference(trusted, model, hidden or {})) is not None:
        return found
    folded: tuple[FoldedConstant, ...] = ()
    if isinstance(reference, ExportedProgram):
        folded = tuple(folded_constants(reference, dict(_initializers(trusted or model))))
    question = _Question(reference, model, hidden or {}, folded, trusted, constants)
    # hashes wrap around
    with np.errstate(over="ignore"):
        # most graphs are written as the network is, so that no law is needed; without laws a run is faster
        bound = ErrorBound(PRIMES)
        decision = _Runs(question, shapes, row_axes, gates, bound, normalizes=False).decide()
        if decision.verdict is not Verdict.IDENTICAL:
            decision = _Runs(question, shapes, row_axes, gates, bound, normalizes=True).decide()
    if decision.verdict is not Verdict.IDENTICAL or trusted is None:
        return decision
    literal = other_literal(trusted, model)
    return decision if literal is None else question.undecided(literal)


@dataclass(frozen=True, eq=False)
class _Question:
    """What is decided; see `decide`."""

    reference: ExportedProgram | ir.Model
    model: ir.Model
    hidden: Mapping[str, HiddenOutput]
    folded: tuple[FoldedConstant, ...]
    trusted: ir.Model | None
    constants: Mapping[str, Expression]

    def undecided(self, reason: str) -> Decision:
        return Decision(Verdict.NOT_DECIDED, reason=reason, folded=self.folded)


class _Runs:
    """The runs of a decision, on several sets of shapes.

    They have the same primes and random functions, so that rows can be compared between them, and one bound,
    which counts all pairs of arguments and outputs of all runs. That is enough: each set is wrongly called
    identical with at most the probability of its own pairs, whatever the other ones share with it.
    """

    def __init__(
        self,
        question: _Question,
        shapes: Sequence[Sequence[InputShape]],
        row_axes: Sequence[int | None] | None,
        gates: Sequence[Gate],
        bound: ErrorBound,
        *,
        normalizes: bool,
    ) -> None:
        self._question, self._shapes, self._row_axes, self._gates = question, shapes, row_axes, gates
        self._normalizes = normalizes
        self._numbers, self._bound = Residues(), bound

    def decide(self) -> Decision:
        question, outputs = self._question, []
        run: RecordedRun | None = None
        decision = question.undecided("no shapes were given")
        for number, inputs in enumerate(draw_inputs(self._numbers, self._shapes, self._row_axes)):
            has_gates = bool(self._gates) and number == len(self._shapes) - 1
            try:
                pair = _Pair(question, self._algebra(has_gates=has_gates), inputs)
                decision = self._decision_of(pair, inputs)
            except UndecidedError as error:
                # fx adds lines about where it was
                return question.undecided(str(error).splitlines()[0])
            if decision.verdict is not Verdict.IDENTICAL:
                return decision
            outputs.append(pair.outputs())
            run = pair.recorded_run
            # its values are not needed any more
            del pair
        rows = None
        if self._row_axes is not None:
            rows = decide_rows(outputs, self._bound, self._shapes, self._row_axes, question.hidden.keys())
        if (excess := self._excess()) is not None:
            return question.undecided(excess)
        decision = replace(decision, runs=len(self._shapes), error_bound=self._bound.probability(), rows=rows)
        if run is None:
            return decision
        levers = decide_levers(question.model, self._gates, run, question.trusted)
        if levers.verdict is not Verdict.IDENTICAL:
            # the logits of a softmax are found without laws, those of exp(z) / (1 + exp(z)) with them
            algebra = GateAlgebra(self._numbers, bound=self._bound, normalizes=not self._normalizes)
            run = record_run(question.model, algebra, run.inputs)
            other = decide_levers(question.model, self._gates, run, question.trusted)
            levers = other if other.verdict is Verdict.IDENTICAL else levers
        if (excess := self._excess()) is not None and levers.verdict is Verdict.IDENTICAL:
            return replace(decision, levers=LeverDecision(Verdict.NOT_DECIDED, reason=excess))
        return replace(decision, levers=levers, error_bound=self._bound.probability())

    def _algebra(self, *, has_gates: bool = False, symbolic_sizes: bool = True) -> Algebra:
        kind = GateAlgebra if has_gates else Algebra
        return kind(
            self._numbers, bound=self._bound, normalizes=self._normalizes, symbolic_sizes=symbolic_sizes
        )

    def _decision_of(self, symbolic: _Pair, inputs: Sequence[Term]) -> Decision:
        """Decide for one set of shapes, and for other sizes as far as both compute the same with them."""
        question = self._question
        if symbolic.decision.verdict is Verdict.IDENTICAL:
            others = symbolic.other_sizes()
            return symbolic.decision if not others else question.undecided(others[0])
        # the sizes of this run alone
        numeric = _Pair(question, self._algebra(symbolic_sizes=False), inputs)
        if numeric.decision.verdict is Verdict.DIFFERENT:
            return numeric.decision
        return question.undecided(
            f"the graph computes with its sizes at {symbolic.decision.first_difference}"
        )

    def _excess(self) -> str | None:
        """What to say if too much was compared to be sure of it."""
        chance = self._bound.probability()
        if chance <= MAX_ERROR_BOUND:
            return None
        return (
            f"the programs are too large: the chance of an error is up to {chance:.0e}, expected at most "
            f"{MAX_ERROR_BOUND:.0e}"
        )


class _Pair:
    """A reference and a graph that have run on the same elements."""

    def __init__(self, question: _Question, algebra: Algebra, inputs: Sequence[Term]) -> None:
        self._algebra, self._model, self._hidden = algebra, question.model, question.hidden
        reference, trusted = question.reference, question.trusted
        if isinstance(reference, ir.Model):
            graph = run_graph(reference, algebra, inputs)
            self._outputs = tuple(graph.outputs.values())
            self._values = {str(value.name): result for value, result in graph.values.items()}
        else:
            constants = {constant.node: constant.array for constant in question.folded}
            program = run_program(reference, algebra, inputs, constants)
            self._outputs, self._values = program.outputs, dict(program.values)
        # values that the reference does not have: those inside loops, and those of nodes that the export adds
        self._added: Mapping[str, Value] = {}
        if trusted is not None and any(origin.value not in self._values for origin in self._hidden.values()):
            self._added = run_graph(trusted, algebra, inputs).outputs
        expressions: dict[str, Value] = {
            name: compute(algebra, self._values) for name, compute in question.constants.items()
        }
        algebra.sizes.is_open = False
        self.recorded_run: RecordedRun | None = None
        if isinstance(algebra, GateAlgebra):
            self.recorded_run = record_run(self._model, algebra, inputs)
            self._graph = self.recorded_run.graph
        else:
            self._graph = run_graph(self._model, algebra, inputs, expressions)
        expected = self._expected_outputs()
        different = tuple(
            name for name, value in expected.items() if not self._is_same(value, self._graph.outputs[name])
        )
        self.decision = Decision(
            Verdict.DIFFERENT if different else Verdict.IDENTICAL,
            tuple(expected),
            different,
            self._first_difference() if different else None,
            folded=question.folded,
        )

    def outputs(self) -> dict[str, Term]:
        """The outputs of the graph."""
        return {name: self._algebra.term(value) for name, value in self._graph.outputs.items()}

    def other_sizes(self) -> list[str]:
        """Where the graph shapes its tensors by sizes that the program does not compute."""
        return [f"{place}, which the network does not have" for place in self._algebra.sizes.others]

    def _expected_outputs(self) -> dict[str, Value]:
        hidden = self._hidden
        missing = [name for name in hidden if name not in self._graph.outputs]
        if missing:
            raise UndecidedError(f"the graph has no output {missing[0]}")
        public = [name for name in self._graph.outputs if name not in hidden]
        if len(public) != len(self._outputs):
            raise UndecidedError(f"the network has {len(self._outputs)} outputs, the graph {len(public)}")
        outputs = dict(zip(public, self._outputs, strict=True))
        # a hidden output may be a public one, too
        values = {**self._values, **outputs}
        for name, origin in hidden.items():
            if origin.value not in values:
                if name not in self._added:
                    raise UndecidedError(f"the network has no value {origin.value} for the output {name}")
                outputs[name] = self._added[name]
            else:
                moved = partial(np.moveaxis, source=origin.row_axis, destination=0)
                value: Value = self._algebra.move(values[origin.value], moved)
                if (origin.scale, origin.offset) != (1.0, 0.0):
                    scaled = self._algebra.multiply(np.float64(origin.scale), value)
                    value = self._algebra.add(scaled, np.float64(origin.offset))
                outputs[name] = value
        return outputs

    def _first_difference(self) -> str | None:
        """The first node of the graph that differs from the reference's value of the same name."""
        names = {name: origin.value for name, origin in self._hidden.items() if origin.value is not None}
        moved = {name for name, origin in self._hidden.items() if origin.is_moved}
        for node in self._model.graph:
            for output in node.outputs:
                expected = self._values.get(names.get(str(output.name), str(output.name)))
                actual = self._graph.values.get(output)
                if actual is None or not isinstance(expected, Term | np.ndarray) or output.name in moved:
                    continue
                if not self._is_same(expected, actual):
                    inputs = ", ".join(str(value.name) for value in node.inputs if value is not None)
                    return f"{output.name} = {node.op_type}({inputs})"
        return None

    def _is_same(self, a: Value, b: Value) -> bool:
        x, y = self._algebra.term(a), self._algebra.term(b)
        if x.shape != y.shape:
            return False
        self._algebra.bound.count_comparison(max(1, x.data[0].size), x.size.plus(y.size))
        return bool((x.data == y.data).all())


def _initializers(model: ir.Model) -> Iterator[tuple[str, Array]]:
    for name, value in model.graph.initializers.items():
        if value.const_value is not None and value.const_value.dtype is not ir.DataType.STRING:
            yield name, value.const_value.numpy()
