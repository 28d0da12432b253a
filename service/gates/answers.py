"""What requests for gates and lesions are answered with: values, which each transport encodes once.

They are tuples because creating a frozen object takes longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np

from turnpike.service.artifact.manifest import Gate
from turnpike.service.errors import NotFiniteError
from turnpike.service.inference_types import Array, InferAnswer

# what the encoder of a transport makes of the statistics of one request
SummaryT = TypeVar("SummaryT")
# fields of a gate that an answer repeats
GATE_FIELDS = {"name", "layer", "depth", "time", "kind", "carry", "units"}


class RunStatistics(NamedTuple):
    """Statistics of all gates, for the requests of a run. These have equally many rows, perhaps none."""

    # "request" if the rows of a gate cannot be separated: all rows of a request count as one then
    per: Literal["row", "request"]
    # requests x gates x statistics: mean, deviation, quantiles, and the shares closed, open and carried
    table: Array
    # the route of each row, requests x rows: the share of it that is carried past all layers, the sum of the
    # layers' means of T, and the most consecutive layers that are closed
    carried: Array
    effective_depth: Array
    longest_closed: Array

    @property
    def has_rows(self) -> bool:
        return self.carried.shape[1] > 0

    def not_finite_error(self, index: int, gates: Sequence[Gate]) -> NotFiniteError:
        """The error that takes the place of a request's summary, which names the first gate with NaN."""
        name = gates[int(np.isfinite(self.table[index]).all(1).argmin())].name
        return NotFiniteError(f"gates: expected rows on which every gate is a number, got NaN in {name!r}")


class GatesAnswer(NamedTuple, Generic[SummaryT]):
    """The outputs of a run, the summary of its gates, and the tensors that the request asked for.

    The encoder of the transport has written the summary together with those of the other requests of the run.
    """

    infer: InferAnswer
    summary: SummaryT | NotFiniteError
    tensors: Sequence[tuple[str, Array]] = ()


class LesionAnswer(NamedTuple):
    """The outputs without a lesion, and its effect, by the names of the fields.

    `lesioned` are the outputs with the lesion; None if the effect is a curve, of each layer closed alone.
    """

    infer: InferAnswer
    effect: dict[str, Any]
    lesioned: InferAnswer | None = None
