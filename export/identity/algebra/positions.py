"""Positions along an axis whose length is a size."""

from __future__ import annotations

from typing import Any

import numpy as np

from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import Sizes, UndecidedError, Value, known


def count_up(algebra: Algebra, start: Value, limit: Value, step: Value) -> Value:
    """Numbers from a start, below a limit.

    If their count depends on sizes, each position is an atom: a program that compares positions with a number
    differs from one that does not, although no position of this run may be that far.
    """
    values = [algebra.as_sizes(value) for value in (start, limit, step)]
    # a Python number takes the precision of the others
    bounds: list[Any] = [
        value if isinstance(value, int | float) else known(value, "a range").reshape(())[()]
        for value in values
    ]
    numbers = np.arange(*bounds)
    if not any(isinstance(value, Sizes) for value in values):
        return numbers
    if any(bound != int(bound) for bound in bounds):
        raise UndecidedError("a range of fractions that depends on sizes")
    places = algebra.of_this_run("position", np.arange(len(numbers)))
    first, _, distance = (
        value if isinstance(value, Sizes) else np.array(int(bound))
        for value, bound in zip(values, bounds, strict=True)
    )
    return algebra.add(first, algebra.multiply(distance, places))
