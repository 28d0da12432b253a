"""The manifest: what an exported `.onnx` file records about itself, for the service and for people.

It is one JSON string in the `metadata_props` of the file, so that a model and its manifest are copied, cached
and rolled back together. Names, dtypes and shapes of tensors are in the graph and not repeated here.
"""

from __future__ import annotations

import base64
import binascii
from functools import cached_property
from math import prod
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from turnpike.common.columns import ISO, ColumnForm, ColumnKind
from turnpike.service.artifact.onnx_file.protobuf import (
    MalformedError,
    content_digest,
    damaged_error,
    expect_graph,
    read_metadata,
)
from turnpike.service.artifact.proof_records import Identity, InputRange, ManifestRecord, Parity
from turnpike.service.artifact.text_records import TextInput
from turnpike.service.errors import ModelFileError

# key in `metadata_props`
METADATA_KEY = "turnpike"
# Longest manifest that is parsed. That of a network with hundreds of gates of a thousand units has 20 MiB.
MAX_MANIFEST_BYTES = 64 << 20

Precision = Literal["fp32", "fp16", "int8"]
# dtypes in which the values of a sample may be stored, and the bytes of one value
StoredDtype = Literal["uint8", "int32", "float32", "int64", "float64"]
DTYPE_BYTES: dict[StoredDtype, int] = {"uint8": 1, "int32": 4, "float32": 4, "int64": 8, "float64": 8}
# characters of base64 and text over all samples of a file; keeps the manifest small beside the weights
MAX_SAMPLE_CHARACTERS = 256 * 1024
# axes of a row without the batch axis: NumPy allows 64 axes in all
MAX_AXES = 63
# what the first output answers with: one of several classes, or a number
Task = Literal["classes", "number"]


class BiasStats(ManifestRecord):
    """Statistics of a gate's bias over its units (the first column of the paper's Figure 2)."""

    mean: float
    sd: float
    min: float
    max: float


class Lever(ManifestRecord):
    """A bias of a gate that a caller may override to close, open or shift the gate.

    `tensor` is an initializer that is also an input of the graph. Its flattened values from `start` to `stop`
    belong to this gate. Adding `sign * d` to them adds d to the logit of T.
    """

    tensor: str
    start: int
    stop: int
    sign: Literal[1, -1]


class Gate(ManifestRecord):
    """One transform gate T of the graph.

    Attributes:
        name: The hidden output that holds T.
        layer: The layer's number, from 0 in the order of the data flow.
        depth: With `time`, tells the repeats of a recurrent layer apart.
        time: See `depth`.
        kind: How the carry gate C is computed: as 1 - T, by a gate of its own, or by the rest of a softmax.
        carry: `identity` if C multiplies the input of the layer, `projected` if C multiplies a tensor that
            is computed from it. Closing the gate then does not copy the input.
        carry_gate: The hidden output that holds C, if C is a gate of its own.
        output: The hidden output that holds the layer's output y. Two gates of one sum share it.
        unit_axis: The axis of T with one entry per unit, counted from the end.
        units: The number of units, if it is known.
        kept: The numbers that the units have in the original layer, if others were removed.
        bias: Statistics of the gate's bias.
        levers: The lever of T first, and that of C if it has one, with its sign turned so that the same
            shift closes both. Several levers may share one tensor.
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
    kept: tuple[int, ...] | None = None
    bias: BiasStats | None = None
    levers: tuple[Lever, ...] = ()


class LayerProfile(ManifestRecord):
    """Statistics of one gate's T over the rows of the profile.

    `quantiles` belong to `Profile.levels`. `units` and `units_sd` are the mean and standard deviation of each
    unit over rows. `closed` and `open` are the shares of values below `Profile.epsilon` and above
    1 - `Profile.epsilon`. `histogram` has the shares of T in equal bins from 0 to 1; live traffic is compared
    with it.
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
    """Gate statistics on the rows of the export: the baseline that drift is measured against."""

    rows: int
    digest: str
    epsilon: float
    levels: tuple[float, ...]
    layers: tuple[LayerProfile, ...]
    # E[T | class] - E[T], averaged over units: gates x classes
    contrast: tuple[tuple[float, ...], ...] = ()


class LayerLesion(ManifestRecord):
    """Accuracy and loss with the gates of one layer closed, and the share of predictions that changed.

    If the network predicts a number, these are R2, the mean absolute error, and the share of answers that
    moved by more than the mean absolute error of the unchanged network.
    """

    layer: int
    accuracy: float
    loss: float
    flipped: float


class LesionCurve(ManifestRecord):
    """The effect of closing each layer alone, compared with the unchanged network."""

    rows: int
    accuracy: float
    loss: float
    layers: tuple[LayerLesion, ...]


class Variant(ManifestRecord):
    """How a lower precision compares with fp32 on the same rows.

    `error` is the relative root mean square error of the outputs; files of older versions do not have it.
    `metric` is the accuracy, or R2 if the network predicts a number, and `metric_fp32` that of fp32. Run
    times depend on the machine, so they are only in the report of the export.
    """

    agreement: float
    error: float | None = None
    rows: int
    metric: float | None = None
    metric_fp32: float | None = None


class CompressionPoint(ManifestRecord):
    """What a share of the units gives, on the rows of a compression that judge it.

    Attributes:
        share: The share of units that are kept.
        macs: The share of the multiplications of the layers that is left.
        agreement: The share of answers whose highest class is as before, if the output has classes.
        metric: Accuracy, if the classes of the rows are known, or R2, if the numbers to predict are.
        faster: How many times faster a run is than that of the whole network, by its number of rows, on the
            machine of the compression.
    """

    share: float
    macs: float
    agreement: float | None = None
    metric: float | None = None
    faster: dict[int, float]


class Compression(ManifestRecord):
    """What `turnpike compress` removed, and how the result compares with the whole network.

    Attributes:
        original: The digest of the whole network's weights.
        units: The units that are left in the layers that were cut.
        units_whole: Their units before.
        macs: Multiplications of these layers' matrices for one row.
        macs_whole: The same before.
        calibration_rows: The number of rows on which the units were chosen, by the root mean square of y - x.
        calibration_digest: The digest of these rows.
        rows: The number of other rows, on which the following was measured.
        agreement: The share of answers whose highest class is as before, if the output has classes.
        metric: Accuracy, if the classes of the rows are known, or R2, if the numbers to predict are.
        metric_whole: The same of the whole network.
        bytes_whole: Size of the whole network's file.
        faster: How many times faster a run is than that of the whole network, by its number of rows, on the
            machine of the compression.
        finetune_epochs: The epochs for which the network was trained again, after the cut.
        curve: What other shares of the units gave, from the largest to the smallest, without training.
    """

    original: str
    units: int
    units_whole: int
    macs: int
    macs_whole: int
    calibration_rows: int
    calibration_digest: str
    rows: int
    agreement: float | None = None
    metric: float | None = None
    metric_whole: float | None = None
    bytes_whole: int
    faster: dict[int, float]
    finetune_epochs: int = 0
    curve: tuple[CompressionPoint, ...] = ()


class Feature(ManifestRecord):
    """A column of a table, and what its values are in real rows. `name` is all that its header says.

    `low`, `high`, `mean` and `sd` are those of the numbers that the network gets, without blanks: places of
    categories, and days since 1970.

    Attributes:
        kind: What the column holds; see `ColumnForm` for this and the next four.
        categories: The words of a category in training; none if they are not published.
        date_format: How dates are written.
        decimal_comma: Whether numbers have a comma before their decimals.
        affix: What stands before or behind each number.
        blanks: Whether cells may be blank: training had blanks.
    """

    name: Annotated[str, Field(min_length=1)]
    unit: str = ""
    low: float
    high: float
    mean: float
    sd: Annotated[float, Field(ge=0)]
    kind: ColumnKind = "number"
    categories: tuple[str, ...] = ()
    date_format: str = ISO
    decimal_comma: bool = False
    affix: str = ""
    blanks: bool = False

    @cached_property
    def form(self) -> ColumnForm:
        """How cells become numbers."""
        return ColumnForm(self.kind, self.categories, self.date_format, self.decimal_comma, self.affix)

    @property
    def is_plain(self) -> bool:
        """Whether its cells are numbers as JSON has them, and never blank."""
        return self.form == ColumnForm() and not self.blanks

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if not self.low <= self.mean <= self.high:
            raise ValueError(f"expected low <= mean <= high, got {self.low}, {self.mean} and {self.high}")
        return self


class Interval(ManifestRecord):
    """Intervals of a predicted number, which reach `half_width` below and above it.

    `half_width` is from the errors on `rows` rows that were not trained on. Of further rows like these, the
    intervals should hold the true number of the share `level`, on average over all rows. Of a single row,
    nothing is known.
    """

    level: Annotated[float, Field(gt=0, lt=1)]
    half_width: Annotated[float, Field(ge=0)]
    rows: Annotated[int, Field(ge=1)]


class SampleInput(ManifestRecord):
    """One row of one input: `shape` without the batch axis, `data` as base64 of little-endian values."""

    name: str
    shape: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(max_length=MAX_AXES)]
    dtype: StoredDtype
    data: str

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        if len(self.raw) != prod(self.shape) * DTYPE_BYTES[self.dtype]:
            shape = str(list(self.shape))[:80]
            raise ValueError(f"expected the bytes of {self.dtype} {shape}, got {len(self.raw)} bytes")
        return self

    @property
    def raw(self) -> bytes:
        """The bytes of the values."""
        try:
            return base64.b64decode(self.data, validate=True)
        except binascii.Error as error:
            raise ValueError(f"expected base64: {error}") from error


class Sample(ManifestRecord):
    """A row of data that people can try the model with.

    `label` is the name of its class, and `text` what the ids were made from, if they are known.
    """

    label: str = ""
    text: str = ""
    inputs: tuple[SampleInput, ...]


class PictureInput(ManifestRecord):
    """How a picture becomes a row of an input: its size, and the numbers of a black and of a white pixel.

    `channels` is 1 for grey and 3 for red, green and blue, which are an axis of their own before or after the
    pixels, as the shape of the input says.
    """

    input: str
    height: int = Field(ge=1)
    width: int = Field(ge=1)
    channels: Literal[1, 3]
    black: float = Field(allow_inf_nan=False)
    white: float = Field(allow_inf_nan=False)

    @model_validator(mode="after")
    def _check_range(self) -> Self:
        if self.black == self.white:
            raise ValueError(f"expected other numbers for black and white, got {self.black:g} twice")
        return self


class Manifest(ManifestRecord):
    """What the service and people need to know about a model beyond its graph.

    `batch_axes` has the axis of the batch in the network's own inputs and outputs, for those that have it on
    another axis than the first. In the file it is the first.
    `weights` is the digest of the network's parameters before any lowering of the precision. They are
    `random_weights` if the network's code drew them and none were loaded. `content` is the
    digest of the file without its metadata (`protobuf.content_digest`), empty until the file is written.
    `identity` is missing in files that were exported before it was decided.
    `plain` is set in the twin for other runtimes, which has neither gates nor levers.
    `features` describes the columns of the only input if its rows are those of a table.
    `task` says whether the first output has a number for each class, or is a number that is predicted, and
    `target` names the column of the table that is predicted. `interval` is set if a predicted number has one.
    `picture` is set if the rows of the only input are pictures whose numbers are known.
    `disabled_optimizers` has onnxruntime's names of optimizers that make another function of the graph.
    `text` is set if an input takes texts. `alphabet` has the character of each id if its scheme is `alphabet`
    and it has no vocabulary.
    """

    format: Literal[1] = 1
    name: str
    version: int = Field(ge=1)
    source: str
    precision: Precision = "fp32"
    outputs: tuple[str, ...]
    labels: tuple[str, ...] = ()
    alphabet: str = ""
    text: TextInput | None = None
    picture: PictureInput | None = None
    features: tuple[Feature, ...] = ()
    task: Task = "classes"
    target: str = ""
    interval: Interval | None = None
    gates: tuple[Gate, ...] = ()
    plain: bool = False
    batch_coupled: bool = False
    disabled_optimizers: tuple[str, ...] = ()
    batch_axes: dict[str, Annotated[int, Field(ge=1, le=MAX_AXES)]] = Field(default_factory=dict)
    identity: Identity | None = None
    parity: Parity
    profile: Profile | None = None
    lesion: LesionCurve | None = None
    variant: Variant | None = None
    compression: Compression | None = None
    ranges: tuple[InputRange, ...] = ()
    samples: tuple[Sample, ...] = ()
    weights: str
    random_weights: bool = False
    content: str = ""
    tools: dict[str, str]

    @field_validator("features")
    @classmethod
    def _check_feature_names(cls, features: tuple[Feature, ...]) -> tuple[Feature, ...]:
        names = [feature.name for feature in features]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"expected distinct names, got {repeated[0]!r} twice")
        return features

    @model_validator(mode="after")
    def _check_interval(self) -> Self:
        if self.interval is not None and self.task != "number":
            raise ValueError("expected no interval, since no number is predicted")
        return self

    @field_validator("samples")
    @classmethod
    def _check_samples_size(cls, samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
        size = sum(len(sample_input.data) for sample in samples for sample_input in sample.inputs)
        size += sum(len(sample.text) for sample in samples)
        if size > MAX_SAMPLE_CHARACTERS:
            raise ValueError(f"expected at most {MAX_SAMPLE_CHARACTERS} characters of data, got {size}")
        return samples

    def to_json(self) -> str:
        """The string that is stored in the file. Equal manifests give equal strings."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> Self:
        """Parse the string stored in a file; `where` names the file in errors.

        Raises:
            ModelFileError: A field is missing, unknown or invalid. The message names it.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"])) or "the record"
            raise ModelFileError(
                f"{where}: manifest: {field}: {first['msg']}, got {str(first['input'])[:80]!r}"
            ) from error


def read_manifest(data: bytes | memoryview, where: str) -> Manifest | None:
    """The manifest in the bytes of a model file, which no runtime needs to open; None if it has none.

    Raises:
        ModelFileError: The bytes are not an ONNX model, or the manifest is invalid. `where` names the file.
    """
    try:
        text = read_metadata(data, METADATA_KEY)
        expect_graph(data)
    except MalformedError as error:
        raise damaged_error(where, error) from error
    if text is None:
        return None
    if len(text) > MAX_MANIFEST_BYTES:
        raise ModelFileError(
            f"{where}: manifest: expected at most {MAX_MANIFEST_BYTES} bytes, got {len(text)}",
            "its manifest is too large",
        )
    return Manifest.from_json(bytes(text), where)


def expect_proved_content(manifest: Manifest, content: str, where: str) -> None:
    """Raise ModelFileError if this digest is not that of the graph and weights of the proof."""
    if manifest.content != content:
        raise ModelFileError(
            f"{where}: expected the graph and weights that were exported, "
            f"with digest {manifest.content[:12] or '(none)'}, got others",
            "its graph or weights are not those that were exported",
        )


def expect_undamaged(data: bytes, where: str) -> None:
    """Raise ModelFileError if a file has a manifest, and it is about other bytes."""
    if (manifest := read_manifest(data, where)) is not None:
        expect_proved_content(manifest, content_digest(data), where)
