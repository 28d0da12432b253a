"""What a manifest says about its proof: the decision on identity, and rounding as it was measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

# fields of `Parity` in files of earlier versions, which nothing reads any more
FORMER_PARITY_FIELDS = frozenset(("unjudged", "explained", "identical", "derived", "ulp"))


class ManifestRecord(BaseModel):
    """A frozen part of the manifest. Unknown fields are an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class TensorParity(ManifestRecord):
    """Errors of onnxruntime and PyTorch for one tensor, over all ordinary batches."""

    name: str
    rms: float
    rms_torch: float
    max: float
    max_torch: float


class RoundedConstant(ManifestRecord):
    """A constant of the exporter, and its distance from PyTorch's own, in units in the last place."""

    name: str
    ulp: float


class Identity(ManifestRecord):
    """Whether the graph in fp32 and the network are the same function of every input, in exact arithmetic.

    A file with another function is not written, so the verdict is never `different`. `reason` says why it is
    not decided. `compared` counts outputs, gates and layer outputs, and `runs` the sets of sizes that were
    run. `error_bound` is at least the probability that the verdict `identical` is wrong. `rounded` has the
    constants that the exporter computed up to rounding; the verdict holds for a network with these. `levers`
    counts the gates that their levers move alone, and `carried` those whose layers return their input when
    closed. `rows` says whether each row of a batch is answered alone.
    """

    verdict: Literal["identical", "not decided"]
    reason: str = ""
    compared: int = 0
    runs: int = 0
    error_bound: float = 1.0
    rounded: tuple[RoundedConstant, ...] = ()
    levers: int = 0
    carried: int = 0
    rows: Literal["independent", "coupled", "not decided"] = "not decided"

    @property
    def proved(self) -> bool:
        return self.verdict == "identical"


class ParityBatch(ManifestRecord):
    """A batch of rows that rounding was measured on."""

    name: str
    rows: int
    digest: str


class InputRange(ManifestRecord):
    """The smallest and largest value of an input."""

    input: str
    low: float
    high: float

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"expected low at most high, got {self.low:g} and {self.high:g}")
        return self


class Parity(ManifestRecord):
    """Rounding, as it was measured: what was compared, against which reference, and the errors.

    Files that fail are not written, so the verdict is always `pass`. `reference` names the computation that
    counts as exact. If `input_ranges` is not empty, all of it is about these values of the inputs.
    """

    verdict: Literal["pass"] = "pass"
    reference: str
    providers: tuple[str, ...]
    seed: int
    batches: tuple[ParityBatch, ...]
    tensors: tuple[TensorParity, ...]
    input_ranges: tuple[InputRange, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _leave_out_former_fields(cls, record: Any) -> Any:
        if not isinstance(record, dict):
            return record
        return {name: value for name, value in record.items() if name not in FORMER_PARITY_FIELDS}

    @property
    def range_text(self) -> str:
        """The values that were compared, as in `for values of x from -5 to 5`."""
        ranges = (f"{bounds.input} from {bounds.low:g} to {bounds.high:g}" for bounds in self.input_ranges)
        return f"for values of {' and of '.join(ranges)}" if self.input_ranges else "for all values"

    @property
    def limits(self) -> Iterator[str]:
        """What was not compared, as lines of text."""
        if self.input_ranges:
            yield f"rounding was measured {self.range_text} only"

    @property
    def worst(self) -> TensorParity | None:
        """The tensor closest to failing: the one with the largest error relative to PyTorch's."""
        return max(self.tensors, key=lambda tensor: tensor.rms / (tensor.rms_torch or 1), default=None)
