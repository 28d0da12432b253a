"""What a model takes and returns: all that is needed to read a request and to write its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from turnpike.common.columns import ColumnForm
from turnpike.service.artifact.manifest import Feature, PictureInput, Task
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.artifact.text_encoder import TextEncoder

Array = np.ndarray[Any, np.dtype[Any]]
# share of a bound by which a number may be outside of it: the rounding of FP32
BOUND_MARGIN = 1e-6


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, what its cells mean, whether they may be blank, and training's range."""

    name: str
    form: ColumnForm
    blanks: bool
    low: float = -inf
    high: float = inf


def cell_columns(features: Sequence[Feature]) -> tuple[Column, ...]:
    """How the cells of a table are read; none if all of them are plain numbers."""
    if all(feature.is_plain for feature in features):
        return ()
    return tuple(
        Column(feature.name, feature.form, feature.blanks, feature.low, feature.high) for feature in features
    )


def target_column(name: str, task: Task) -> Column | None:
    """The column of a table that a model predicts; None if its name is not known."""
    form = ColumnForm("number" if task == "number" else "category")
    return Column(name, form, blanks=True) if name else None


@dataclass(frozen=True)
class Signature:
    """The tensors that a model takes and returns, by name. Hidden outputs are returned only on request.

    `batch` is the name of the dimension that every input has first, None if there is no such dimension.
    `splittable` are the outputs, hidden ones included, that can be cut along axis 0 into equal parts, one for
    each row and in the order of the rows. `features` are the names of the columns if the only input is a
    table, and `columns` what their cells mean, if any are more than plain numbers. `text` converts texts to
    the ids of an input, if one takes texts. `picture` says which numbers pixels have, if the rows of the only
    input are pictures. `target` is the column that is predicted, if its name is known.
    """

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    hidden: Mapping[str, Tensor]
    batch: str | None
    splittable: frozenset[str]
    features: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    text: TextEncoder | None = None
    picture: PictureInput | None = None
    target: Column | None = None

    @cached_property
    def cell_bounds(self) -> tuple[Array, Array]:
        """The lowest and the highest number of each column in training; all words for a category."""
        bounds = []
        for column in self.columns:
            if column.form.kind == "category":
                bounds.append((-inf, len(column.form.categories) - 1 if column.form.categories else inf))
            elif column.form.kind == "boolean":
                bounds.append((-inf, inf))
            else:
                # training has its numbers in FP32
                margin = BOUND_MARGIN * max(abs(column.low), abs(column.high))
                bounds.append((column.low - margin, column.high + margin))
        low, high = np.array(bounds, np.float64).reshape(-1, 2).T
        return low, high
