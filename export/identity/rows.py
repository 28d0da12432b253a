"""Decides whether the answer for a row depends on the other rows of its batch, or on their number.

The program runs on the rows a, b, c, and then on c, a, d, e. If the answers for a and for c are the same
elements, each answer is one function of its own row: the first run has the other rows b and c beside a, the
second one c, d and e, at other places and in another number.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir
from torch.export import ExportedProgram

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.terms import Term, UndecidedError, Value
from turnpike.export.identity.aten.run_program import run_program
from turnpike.export.identity.decide import random_term
from turnpike.export.identity.decision import InputShape, RowDecision, RowVerdict
from turnpike.export.identity.numbers.residues import Residues
from turnpike.export.identity.onnx.run_graph import run_graph

# the rows of the first run that the second one has, by their places in the second
REPEATED = {0: 2, 1: 0}
FIRST_ROWS, SECOND_ROWS = 3, 4


def decide_rows(
    reference: ExportedProgram | ir.Model,
    shapes: Sequence[InputShape],
    row_axes: Sequence[int | None],
    hidden: Collection[str] = (),
) -> RowDecision:
    """Decide whether each row of all outputs is a function of that row of the inputs alone.

    Args:
        reference: The traced network, or a graph.
        shapes: The shape of each input; the sizes of axes of rows may be any.
        row_axes: The axis of the rows of each input, or None for an input that all rows share.
        hidden: The names of outputs that need not have rows. All others have them on the first axis.
    """
    # hashes wrap around
    with np.errstate(over="ignore"):
        try:
            return _decide_rows(reference, shapes, row_axes, hidden)
        except UndecidedError as error:
            return RowDecision(RowVerdict.NOT_DECIDED, reason=str(error).splitlines()[0])


def _decide_rows(
    reference: ExportedProgram | ir.Model,
    shapes: Sequence[InputShape],
    row_axes: Sequence[int | None],
    hidden: Collection[str],
) -> RowDecision:
    algebra = Algebra(Residues())
    first: list[Value] = []
    second: list[Value] = []
    for shape, axis in zip(shapes, row_axes, strict=True):
        if axis is None:
            first.append(random_term(algebra, shape))
            second.append(first[-1])
            continue
        one, other = (
            random_term(algebra, InputShape(shape.dtype, _with_size(shape.sizes, axis, rows)))
            for rows in (FIRST_ROWS, SECOND_ROWS)
        )
        data = np.moveaxis(other.data, axis + 1, 1).copy()
        for place, source in REPEATED.items():
            data[:, place] = np.moveaxis(one.data, axis + 1, 1)[:, source]
        first.append(one)
        second.append(Term(np.moveaxis(data, 1, axis + 1), one.kind, one.size, one.is_binary))
    answers, others = _run(reference, algebra, first), _run(reference, algebra, second)
    for (name, a), (_, b) in zip(answers, others, strict=True):
        x, y = algebra.term(a), algebra.term(b)
        if (x.shape[:1], y.shape[:1]) != ((FIRST_ROWS,), (SECOND_ROWS,)):
            if name in hidden:
                continue
            return RowDecision(RowVerdict.COUPLED, output=name)
        algebra.bound.count_comparison(max(1, x.data[0].size), x.size.plus(y.size))
        if any(not np.array_equal(x.data[:, source], y.data[:, place]) for place, source in REPEATED.items()):
            return RowDecision(RowVerdict.COUPLED, output=name)
    return RowDecision(RowVerdict.INDEPENDENT, error_bound=algebra.bound.probability())


def _run(
    reference: ExportedProgram | ir.Model, algebra: Algebra, inputs: Sequence[Value]
) -> list[tuple[str, Value]]:
    if isinstance(reference, ir.Model):
        return list(run_graph(reference, algebra, inputs).outputs.items())
    outputs = run_program(reference, algebra, inputs).outputs
    return [(f"output {number}", value) for number, value in enumerate(outputs)]


def _with_size(sizes: tuple[int, ...], axis: int, rows: int) -> tuple[int, ...]:
    return (*sizes[:axis], rows, *sizes[axis + 1 :])
