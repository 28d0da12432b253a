"""The contract between the rooms: what an exported `.onnx` says of itself.

One JSON string under one key of the file's `metadata_props`, so that file and manifest move, cache and
roll back as one. Names, dtypes and shapes of tensors are read from the graph, never repeated here.
"""

from __future__ import annotations

import base64
import binascii
from math import prod
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from service.errors import ModelFileError

METADATA_KEY = "turnpike"

Precision = Literal["fp32", "fp16", "int8"]
# what the values of a sample may be stored as, and the bytes of each
StoredDtype = Literal["uint8", "int32", "float32", "int64", "float64"]
DTYPE_BYTES: dict[StoredDtype, int] = {"uint8": 1, "int32": 4, "float32": 4, "int64": 8, "float64": 8}
# characters of base64, of all samples of a file together
MAX_SAMPLE_CHARACTERS = 256 * 1024
# axes that a row has beside that of the batch, as numpy has 64 at most
MAX_AXES = 63


class ManifestRecord(BaseModel):
    """A frozen part of the manifest, which takes no field it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class BiasStats(ManifestRecord):
    """The gate's bias over its units: the first column of the paper's Figure 2, in four numbers."""

    mean: float
    sd: float
    min: float
    max: float


class Lever(ManifestRecord):
    """A bias of a gate that a caller may override, and so close, open or shift the gate.

    `tensor` is an initializer that is also an input of the graph. Of its values, flattened, those from
    `start` to `stop` belong to this gate; adding `sign * d` to them adds d to what T is the sigmoid of.
    """

    tensor: str
    start: int
    stop: int
    sign: Literal[1, -1]


class Gate(ManifestRecord):
    """One transform gate T of the graph: a hidden output called `name`.

    `layer` counts from 0 in the order data flows; `depth` and `time` tell the repeats of a recurrent
    layer apart. `kind` says what C is: 1 - T, a gate of its own, or the rest of a softmax. `carry` is
    `projected` where what C multiplies is not the layer's input itself but made of it, so that closing
    the gate is then no copy. `carry_gate` and `output` are hidden outputs too: C, where it is a gate of
    its own, and the layer's output y; two gates of one sum share them. `unit_axis` is the axis of T along
    which its units lie, counted from the end. `levers` holds T's own, and C's where there is one: C's sign
    is turned, so that the same d closes both. Several may lie in one tensor.
    """

    name: str
    layer: int
    depth: int | None = None
    time: int | None = None
    kind: Literal["coupled", "independent", "softmax"]
    carry: Literal["identity", "projected"]
    carry_gate: str | None = None
    output: str | None = None
    unit_axis: int
    units: int | None
    bias: BiasStats | None = None
    levers: tuple[Lever, ...] = ()


class TensorParity(ManifestRecord):
    """How far one tensor was from the truth, over all ordinary batches: onnxruntime's error and PyTorch's."""

    name: str
    rms: float
    rms_torch: float
    max: float
    max_torch: float


class ParityBatch(ManifestRecord):
    """Rows that parity was proved on."""

    name: str
    rows: int
    digest: str


class Parity(ManifestRecord):
    """What was compared, with what, and what came of it. A file without a pass does not exist.

    `reference` says what stood for the truth. `identical` initializers are bit for bit the parameters
    they came from; `derived` were folded by the exporter and agree to `ulp` units in the last place.
    """

    verdict: Literal["pass"] = "pass"
    reference: str
    providers: tuple[str, ...]
    seed: int
    batches: tuple[ParityBatch, ...]
    tensors: tuple[TensorParity, ...]
    identical: int
    derived: int
    ulp: float

    @property
    def worst(self) -> TensorParity | None:
        """The tensor that came nearest to failing: the one furthest from the truth, beside PyTorch's."""
        return max(self.tensors, key=lambda one: one.rms / (one.rms_torch or 1), default=None)


class LayerProfile(ManifestRecord):
    """The statistics of one gate's T over the rows of the profile.

    `quantiles` are those of `Profile.levels`; `units` holds the mean of each unit over rows, `units_sd` its
    deviation; `closed` and `open` are the shares of T below and above `Profile.epsilon` from the ends;
    `histogram` counts T in equal bins from 0 to 1, as shares: what live traffic is compared with.
    """

    gate: str
    mean: float
    sd: float
    quantiles: tuple[float, ...]
    closed: float
    open: float
    histogram: tuple[float, ...]
    units: tuple[float, ...]
    units_sd: tuple[float, ...]


class Profile(ManifestRecord):
    """How the gates behaved on given rows, the baseline of drift."""

    rows: int
    digest: str
    epsilon: float
    levels: tuple[float, ...]
    layers: tuple[LayerProfile, ...]
    # E[T given class] - E[T]: gates x classes, the mean over units
    contrast: tuple[tuple[float, ...], ...] = ()


class LayerLesion(ManifestRecord):
    """What closing one layer did: accuracy and loss with it closed, and the share of answers flipped."""

    layer: int
    accuracy: float
    loss: float
    flipped: float


class LesionCurve(ManifestRecord):
    """Each layer closed in its turn, against the network as it is."""

    rows: int
    accuracy: float
    loss: float
    layers: tuple[LayerLesion, ...]


class Variant(ManifestRecord):
    """A lower precision beside fp32 on the same rows; times are of a machine and stay in the report."""

    agreement: float
    rows: int
    metric: float | None = None
    metric_fp32: float | None = None


class InputRange(ManifestRecord):
    """The least and the greatest value of an input over the rows that the export had."""

    input: str
    low: float
    high: float

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"expected low at most high, got {self.low:g} and {self.high:g}")
        return self


class SampleInput(ManifestRecord):
    """One row of one input: `shape` is without the batch axis, `data` base64 of little-endian values."""

    name: str
    shape: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(max_length=MAX_AXES)]
    dtype: StoredDtype
    data: str

    @model_validator(mode="after")
    def _of_its_size(self) -> Self:
        if len(self.raw) != prod(self.shape) * DTYPE_BYTES[self.dtype]:
            shape = str(list(self.shape))[:80]
            raise ValueError(f"expected the bytes of {self.dtype} {shape}, got {len(self.raw)} bytes")
        return self

    @property
    def raw(self) -> bytes:
        """The values as they lie in memory."""
        try:
            return base64.b64decode(self.data, validate=True)
        except binascii.Error as error:
            raise ValueError(f"expected base64: {error}") from error


class Sample(ManifestRecord):
    """A row of data for people to try the network with; `label` is what its class is called, where known."""

    label: str = ""
    inputs: tuple[SampleInput, ...]


class Manifest(ManifestRecord):
    """Everything the service needs to know beyond the graph.

    `weights` is the digest of the network's parameters as they were before any lowering, `content` that of
    the very file that was proved, all but its metadata (`protobuf.content_digest`): empty until it is sealed.
    """

    format: Literal[1] = 1
    name: str
    version: int = Field(ge=1)
    source: str
    precision: Precision = "fp32"
    outputs: tuple[str, ...]
    labels: tuple[str, ...] = ()
    alphabet: str = ""
    gates: tuple[Gate, ...] = ()
    batch_coupled: bool = False
    parity: Parity
    profile: Profile | None = None
    lesion: LesionCurve | None = None
    variant: Variant | None = None
    ranges: tuple[InputRange, ...] = ()
    samples: tuple[Sample, ...] = ()
    weights: str
    content: str = ""
    tools: dict[str, str]

    @field_validator("samples")
    @classmethod
    def _few(cls, samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
        size = sum(len(one.data) for sample in samples for one in sample.inputs)
        if size > MAX_SAMPLE_CHARACTERS:
            raise ValueError(f"expected at most {MAX_SAMPLE_CHARACTERS} characters of data, got {size}")
        return samples

    def to_json(self) -> str:
        """The one string that is kept in the file; the same record always gives the same bytes."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str, where: str) -> Self:
        """The record of a string; a ModelFileError names the field that makes no sense."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"])) or "the record"
            raise ModelFileError(
                f"{where}: manifest: {field}: {first['msg']}, got {str(first['input'])[:80]!r}"
            ) from error
