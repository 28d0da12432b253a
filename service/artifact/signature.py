"""What a model takes and returns: all that is needed to read a request and to write its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turnpike.common.columns import ColumnForm
from turnpike.service.artifact.manifest import Feature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.artifact.text_encoder import TextEncoder


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, what its cells mean, and whether they may be blank."""

    name: str
    form: ColumnForm
    blanks: bool


def cell_columns(features: Sequence[Feature]) -> tuple[Column, ...]:
    """How the cells of a table are read; none if all of them are plain numbers."""
    if all(feature.is_plain for feature in features):
        return ()
    return tuple(Column(feature.name, feature.form, feature.blanks) for feature in features)


@dataclass(frozen=True)
class Signature:
    """The tensors that a model takes and returns, by name. Hidden outputs are returned only on request.

    `batch` is the name of the dimension that every input has first, None if there is no such dimension.
    `splittable` are the outputs, hidden ones included, that can be cut along axis 0 into equal parts, one for
    each row and in the order of the rows. `features` are the names of the columns if the only input is a
    table, and `columns` what their cells mean, if any are more than plain numbers. `text` converts texts to
    the ids of an input, if one takes texts.
    """

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    hidden: Mapping[str, Tensor]
    batch: str | None
    splittable: frozenset[str]
    features: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    text: TextEncoder | None = None
