"""Draws the inputs of the runs of a decision: random elements, in several sets of sizes.

Sets of rows have some rows in common, at other places and beside other rows. So the runs that compare two
programs also show whether rows depend on each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnpike.export.identity.algebra.arithmetic.terms import Array, Term, kind_of
from turnpike.export.identity.decision import InputShape
from turnpike.export.identity.numbers.error_bound import ATOM
from turnpike.export.identity.numbers.residues import Residues

# The names of the rows of each set: rows of one name have the same elements. There is one row alone, and an
# even and an odd number of rows.
ROW_SETS = ((1,), (2, 0, 3, 4), (0, 1, 2))

# the sizes of a set's inputs, without their rows
Form = list[tuple[int, ...]]


def draw_inputs(
    numbers: Residues, sets: Sequence[Sequence[InputShape]], row_axes: Sequence[int | None] | None = None
) -> list[list[Term]]:
    """The inputs of each set of shapes.

    Args:
        numbers: The elements.
        sets: The sets, each with a shape for every input.
        row_axes: The axis of the rows of each input, or None for an input that all rows share. With them, the
            sets are those of `ROW_SETS`. Without, all elements are drawn apart.
    """
    if row_axes is None:
        return [[_term(shape, numbers.random(shape.sizes)) for shape in shapes] for shapes in sets]
    drawn: dict[tuple[object, ...], Array] = {}

    def elements(*key: object, sizes: tuple[int, ...]) -> Array:
        if key not in drawn:
            drawn[key] = numbers.random(sizes)
        return drawn[key]

    inputs = []
    for names, shapes in zip(ROW_SETS, sets, strict=True):
        terms = []
        for number, (shape, axis, sizes) in enumerate(
            zip(shapes, row_axes, form_of(shapes, row_axes), strict=True)
        ):
            # rows of other sizes are other rows
            if axis is None:
                data = elements(number, sizes, sizes=sizes)
            else:
                rows = [elements(number, sizes, name, sizes=sizes) for name in names]
                data = np.stack(rows, axis + 1)
            terms.append(_term(shape, data))
        inputs.append(terms)
    return inputs


def form_of(shapes: Sequence[InputShape], row_axes: Sequence[int | None]) -> Form:
    """The sizes of inputs without their rows: the rows of two sets are comparable if these are equal."""
    return [
        shape.sizes if axis is None else (*shape.sizes[:axis], *shape.sizes[axis + 1 :])
        for shape, axis in zip(shapes, row_axes, strict=True)
    ]


def _term(shape: InputShape, data: Array) -> Term:
    """An atom for each number of an input, ids and masks too."""
    kind = kind_of(np.zeros(0, shape.dtype))
    return Term(data, kind, ATOM, is_binary=kind == "b")
