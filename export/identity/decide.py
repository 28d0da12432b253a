"""Decides whether an ONNX graph and a traced program, or another graph, are the same function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import onnx_ir as ir
from torch.export import ExportedProgram

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.terms import Array, Term, UndecidedError, Value, kind_of
from turnpike.export.identity.aten.run_program import run_program
from turnpike.export.identity.decision import (
    MAX_ERROR_BOUND,
    Decision,
    HiddenOutput,
    InputShape,
    Verdict,
)
from turnpike.export.identity.folded_constants import FoldedConstant, folded_constants
from turnpike.export.identity.interface import interface_difference
from turnpike.export.identity.numbers.error_bound import ATOM
from turnpike.export.identity.numbers.residues import Residues
from turnpike.export.identity.onnx.run_graph import run_graph


def decide(
    reference: ExportedProgram | ir.Model,
    model: ir.Model,
    shapes: Sequence[Sequence[InputShape]],
    hidden: Mapping[str, HiddenOutput] | None = None,
    *,
    trusted: ir.Model | None = None,
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
    """
    if trusted is not None and (found := interface_difference(trusted, model, hidden or {})) is not None:
        return found
    folded: tuple[FoldedConstant, ...] = ()
    if isinstance(reference, ExportedProgram):
        folded = tuple(folded_constants(reference, dict(_initializers(trusted or model))))
    decisions = []
    for inputs in shapes:
        decision = _decide_at(reference, model, inputs, hidden or {}, folded, trusted)
        if decision.verdict is not Verdict.IDENTICAL:
            return decision
        decisions.append(decision)
    bound = sum(decision.error_bound for decision in decisions)
    if bound > MAX_ERROR_BOUND:
        return undecided(
            f"the programs are too large: the chance of an error is up to {bound:.0e}, expected at most "
            f"{MAX_ERROR_BOUND:.0e}",
            folded,
        )
    return Decision(
        Verdict.IDENTICAL, decisions[0].compared, folded=folded, runs=len(shapes), error_bound=bound
    )


def _decide_at(
    reference: ExportedProgram | ir.Model,
    model: ir.Model,
    inputs: Sequence[InputShape],
    hidden: Mapping[str, HiddenOutput],
    folded: tuple[FoldedConstant, ...],
    trusted: ir.Model | None,
) -> Decision:
    """Decide for one set of shapes, and for other sizes as far as both compute the same with them."""
    pair = partial(_Pair, reference, model, inputs, hidden, folded, trusted)
    # hashes wrap around
    with np.errstate(over="ignore"):
        try:
            symbolic = pair(symbolic_sizes=True)
            if symbolic.decision.verdict is Verdict.IDENTICAL:
                others = symbolic.other_sizes()
                return symbolic.decision if not others else undecided(others[0], folded)
            # the sizes of this run alone
            numeric = pair(symbolic_sizes=False)
        except UndecidedError as error:
            # fx adds lines about where it was
            return undecided(str(error).splitlines()[0], folded)
    if numeric.decision.verdict is Verdict.DIFFERENT:
        return numeric.decision
    return undecided(f"the graph computes with its sizes at {symbolic.decision.first_difference}", folded)


def undecided(reason: str, folded: tuple[FoldedConstant, ...] = ()) -> Decision:
    return Decision(Verdict.NOT_DECIDED, reason=reason, folded=folded)


class _Pair:
    """A reference and a graph that have run on the same elements."""

    def __init__(
        self,
        reference: ExportedProgram | ir.Model,
        model: ir.Model,
        inputs: Sequence[InputShape],
        hidden: Mapping[str, HiddenOutput],
        folded: Sequence[FoldedConstant],
        trusted: ir.Model | None,
        *,
        symbolic_sizes: bool,
    ) -> None:
        algebra = self._algebra = Algebra(Residues(), symbolic_sizes=symbolic_sizes)
        self._model, self._hidden = model, hidden
        values = [random_term(algebra, shape) for shape in inputs]
        if isinstance(reference, ir.Model):
            graph = run_graph(reference, algebra, values)
            self._outputs = tuple(graph.outputs.values())
            self._values = {str(value.name): result for value, result in graph.values.items()}
        else:
            constants = {constant.node: constant.array for constant in folded}
            program = run_program(reference, algebra, values, constants)
            self._outputs, self._values = program.outputs, dict(program.values)
        # a value inside a loop, or one that the trusted graph computes from those of the reference
        self._added: Mapping[str, Value] = {}
        if trusted is not None and any(origin.value not in self._values for origin in hidden.values()):
            self._added = run_graph(trusted, algebra, values).outputs
        algebra.sizes.is_open = False
        self._graph = run_graph(model, algebra, values)
        expected = self._expected_outputs()
        different = tuple(
            name for name, value in expected.items() if not self._is_same(value, self._graph.outputs[name])
        )
        self.decision = Decision(
            Verdict.DIFFERENT if different else Verdict.IDENTICAL,
            tuple(expected),
            different,
            self._first_difference() if different else None,
            folded=tuple(folded),
            error_bound=algebra.bound.probability(),
        )

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


def random_term(algebra: Algebra, shape: InputShape) -> Term:
    """An atom for each number of an input, ids and masks too."""
    kind = kind_of(np.zeros(0, shape.dtype))
    return Term(algebra.numbers.random(shape.sizes), kind, ATOM, is_binary=kind == "b")
