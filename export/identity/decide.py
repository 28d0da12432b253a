"""Decides whether a traced program and an ONNX graph are the same function of every input of given shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import onnx_ir as ir
from torch.export import ExportedProgram

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.aten.run_program import ProgramRun, run_program
from turnpike.export.identity.folded_constants import FoldedConstant, folded_constants
from turnpike.export.identity.numbers.error_bound import ATOM
from turnpike.export.identity.numbers.residues import Residues
from turnpike.export.identity.onnx.run_graph import GraphRun, run_graph
from turnpike.export.identity.terms import Array, Term, UndecidedError, Value, kind_of


class Verdict(StrEnum):
    """The results of a decision."""

    IDENTICAL = "identical"
    DIFFERENT = "different"
    NOT_DECIDED = "not decided"


@dataclass(frozen=True)
class InputShape:
    """The dtype and the sizes of an input."""

    dtype: np.dtype[np.generic]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class HiddenOutput:
    """What an output stands for that the network itself does not return: a value of the program.

    Attributes:
        node: The name of the program's node.
        row_axis: The axis of the node's value that is axis 0 of the output.
        is_complement: The output is one minus the value.
    """

    node: str
    row_axis: int = 0
    is_complement: bool = False


@dataclass(frozen=True)
class Decision:
    """The result, with what led to it.

    Attributes:
        verdict: Whether graph and program are the same function.
        compared: The outputs that were compared.
        different: Those that differ.
        first_difference: The first node of the graph that differs from the program's node of its name.
        reason: Why nothing was decided.
        folded: Constants that the exporter computed, which were taken from the graph.
        error_bound: The probability that different functions are called identical.
    """

    verdict: Verdict
    compared: tuple[str, ...] = ()
    different: tuple[str, ...] = ()
    first_difference: str | None = None
    reason: str | None = None
    folded: tuple[FoldedConstant, ...] = ()
    error_bound: float = 1.0

    def __str__(self) -> str:
        if self.verdict is Verdict.NOT_DECIDED:
            return f"not decided: {self.reason}"
        if self.verdict is Verdict.DIFFERENT:
            where = self.first_difference or "a value without a name"
            names = ", ".join(self.different[:3])
            return f"different: {names} ({len(self.different)} outputs), first at {where}"
        folded = f", up to {len(self.folded)} folded constants" if self.folded else ""
        return f"identical in {len(self.compared)} outputs{folded}; chance of error {self.error_bound:.0e}"


def decide(
    program: ExportedProgram,
    model: ir.Model,
    inputs: Sequence[InputShape],
    hidden: Mapping[str, HiddenOutput] | None = None,
) -> Decision:
    """Run both on the same random elements and compare all outputs.

    Args:
        program: The traced network.
        model: The graph. Its levers have their defaults.
        inputs: The shapes to run.
        hidden: Outputs of the graph that the program does not have, by name.
    """
    algebra = Algebra(Residues())
    folded = tuple(folded_constants(program, dict(_initializers(model))))
    # hashes wrap around
    with np.errstate(over="ignore"):
        try:
            values = [_random_term(algebra, shape) for shape in inputs]
            constants = {constant.node: constant.array for constant in folded}
            expected_run = run_program(program, algebra, values, constants)
            actual_run = run_graph(model, algebra, values)
            expected = _expected_outputs(algebra, expected_run, actual_run, hidden or {})
            different = tuple(
                name
                for name, value in expected.items()
                if not _is_same(algebra, value, actual_run.outputs[name])
            )
        except UndecidedError as error:
            # fx adds lines about where it was
            return Decision(Verdict.NOT_DECIDED, reason=str(error).splitlines()[0], folded=folded)
        first = (
            _first_difference(algebra, model, expected_run, actual_run, hidden or {}) if different else None
        )
    verdict = Verdict.DIFFERENT if different else Verdict.IDENTICAL
    return Decision(verdict, tuple(expected), different, first, None, folded, algebra.bound.probability())


def _initializers(model: ir.Model) -> Iterator[tuple[str, Array]]:
    for name, value in model.graph.initializers.items():
        if value.const_value is not None and value.const_value.dtype is not ir.DataType.STRING:
            yield name, value.const_value.numpy()


def _random_term(algebra: Algebra, shape: InputShape) -> Term:
    """An atom for each number of an input, ids and masks too."""
    kind = kind_of(np.zeros(0, shape.dtype))
    return Term(algebra.numbers.random(shape.sizes), kind, ATOM, is_binary=kind == "b")


def _expected_outputs(
    algebra: Algebra, program: ProgramRun, graph: GraphRun, hidden: Mapping[str, HiddenOutput]
) -> dict[str, Value]:
    public = [name for name in graph.outputs if name not in hidden]
    if len(public) != len(program.outputs):
        raise UndecidedError(f"the program has {len(program.outputs)} outputs, the graph {len(public)}")
    outputs = dict(zip(public, program.outputs, strict=True))
    # a hidden output may be a public one, too
    values = {**program.values, **outputs}
    for name, origin in hidden.items():
        if origin.node in values:
            axis = origin.row_axis
            value: Value = algebra.move(values[origin.node], lambda data, at=axis: np.moveaxis(data, at, 0))
            outputs[name] = algebra.subtract(1, value) if origin.is_complement else value
    return outputs


def _first_difference(
    algebra: Algebra,
    model: ir.Model,
    program: ProgramRun,
    graph: GraphRun,
    hidden: Mapping[str, HiddenOutput],
) -> str | None:
    """The first node of the graph, in its order, that differs from the program's node of the same name."""
    names = {name: origin.node for name, origin in hidden.items()}
    moved = {name for name, origin in hidden.items() if origin.is_complement or origin.row_axis}
    for node in model.graph:
        for output in node.outputs:
            expected = program.values.get(names.get(str(output.name), str(output.name)))
            actual = graph.values.get(output)
            if actual is None or not isinstance(expected, Term | np.ndarray) or output.name in moved:
                continue
            if not _is_same(algebra, expected, actual):
                inputs = ", ".join(str(value.name) for value in node.inputs if value is not None)
                return f"{output.name} = {node.op_type}({inputs})"
    return None


def _is_same(algebra: Algebra, a: Value, b: Value) -> bool:
    x, y = algebra.term(a), algebra.term(b)
    if x.shape != y.shape:
        return False
    algebra.bound.count_comparison(max(1, x.data[0].size), x.size.plus(y.size))
    return bool((x.data == y.data).all())
