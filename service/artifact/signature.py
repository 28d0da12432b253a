"""What a model takes and returns: all that is needed to read a request and to write its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from turnpike.service.artifact.tensor import Tensor
from turnpike.service.artifact.text_encoder import TextEncoder


@dataclass(frozen=True)
class Signature:
    """The tensors that a model takes and returns, by name. Hidden outputs are returned only on request.

    `batch` is the name of the dimension that every input has first, None if there is no such dimension.
    `splittable` are the outputs, hidden ones included, that can be cut along axis 0 into equal parts, one for
    each row and in the order of the rows. `features` are the names of the columns if the only input is a
    table. `text` converts texts to the ids of an input, if one takes texts.
    """

    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]
    hidden: Mapping[str, Tensor]
    batch: str | None
    splittable: frozenset[str]
    features: tuple[str, ...] = ()
    text: TextEncoder | None = None
