"""Decides whether the answer for a row depends on the other rows of its batch, or on their number.

The sets of rows that are run have rows in common: b alone; c, a, d, e; and a, b, c. If a row has the same
elements in the answers of two sets, its answer is a function of the rows that both have. So b's answer among
others is that of b alone. The answers for a and c are the same beside b and beside d and e, at other places
and in another number. If inputs have other sizes than rows, b alone has other ones than the last two sets,
and only those two are compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import numpy as np

from turnpike.export.identity.algebra.arithmetic.terms import Term
from turnpike.export.identity.decision import InputShape, RowDecision, RowVerdict
from turnpike.export.identity.numbers.error_bound import ErrorBound
from turnpike.export.identity.samples import ROW_SETS, form_of


def decide_rows(
    outputs: Sequence[Mapping[str, Term]],
    bound: ErrorBound,
    sets: Sequence[Sequence[InputShape]],
    row_axes: Sequence[int | None],
    hidden: Collection[str] = (),
) -> RowDecision:
    """Decide whether each row of all outputs is a function of that row of the inputs alone.

    Args:
        outputs: The outputs of the runs on the sets, which `draw_inputs` has drawn with these axes.
        bound: The bound of these runs.
        sets: The shapes of the inputs of each set.
        row_axes: The axis of the rows of each input, or None for an input that all rows share.
        hidden: The names of outputs that need not have rows. All others have them on the first axis.
    """
    forms = [form_of(shapes, row_axes) for shapes in sets]
    for name in outputs[0]:
        terms = [run[name] for run in outputs]
        if any(term.shape[:1] != (len(rows),) for term, rows in zip(terms, ROW_SETS, strict=True)):
            if name in hidden:
                continue
            return RowDecision(RowVerdict.COUPLED, output=name)
        for one, other in combinations(range(len(sets)), 2):
            if forms[one] == forms[other]:
                x, y = terms[one], terms[other]
                bound.count_comparison(max(1, x.data[0].size), x.size.plus(y.size))
                if not _has_same_rows(x, y, ROW_SETS[one], ROW_SETS[other]):
                    return RowDecision(RowVerdict.COUPLED, output=name)
    return RowDecision(RowVerdict.INDEPENDENT, error_bound=bound.probability())


def _has_same_rows(x: Term, y: Term, names: Sequence[int], other_names: Sequence[int]) -> bool:
    return all(
        np.array_equal(x.data[:, place], y.data[:, other_names.index(name)])
        for place, name in enumerate(names)
        if name in other_names
    )
