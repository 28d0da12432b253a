"""The options that `turnpike export`, `verify` and `compress` share, as values that are built once.

The commands and the public functions build them, and everything below takes them as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from turnpike.export.defaults import MAX_ERROR, MIN_AGREEMENT
from turnpike.export.errors import UsageError
from turnpike.export.input_spec import InputSpec
from turnpike.service.artifact.devices import Device, DevicePrecision
from turnpike.service.artifact.manifest import Precision

# a scheme, `NAME=` and a scheme or file, a file, or a vocabulary as a list or an object
TextAlphabet = str | Path | Sequence[str] | Mapping[str, Any]


@dataclass(frozen=True)
class SourceOptions:
    """How to read the network that a user gives, and what the user gives with it.

    Attributes:
        name: Name of the model. Default: that of the source.
        inputs: Arguments of `forward` in order. For sources that know their inputs: other names for them.
        weights: Weights for the module of path/to/file.py:factory.
        data: Rows to measure on: an .npz file, a table, a folder of images, or the name of a data set. The
            default for a checkpoint is the test rows of its own data, if they are on this machine.
        data_dir: Folder with the original files of the data set; nothing is downloaded then.
        labels: Names of the classes, or a file of them.
        features: Names of the columns of a table, or a file of them.
        text_alphabet: How texts become the ids of an input: see `parse_text_alphabet`.
        input_range: Ranges of values such as `-5:5` or `x=-5:5`: see `parse_ranges`.
        pixels: The numbers of a black and of a white pixel, such as `0:255`, of a network of pictures.
        scale: An .npz file with `mean` and `std`: rows are standardized by them before a module.
        preprocess: A fitted transformer of scikit-learn, as a part of the file before a module.
    """

    name: str | None = None
    inputs: Sequence[str | InputSpec] = ()
    weights: str | Path | None = None
    data: str | Path | None = None
    data_dir: str | Path | None = None
    labels: Path | Sequence[str] | None = None
    features: Path | Sequence[str] | None = None
    text_alphabet: TextAlphabet | None = None
    input_range: Sequence[str] = ()
    pixels: str | None = None
    scale: str | Path | None = None
    preprocess: Any = None

    def without_rows(self) -> SourceOptions:
        """For a command that reads the rows itself."""
        return replace(self, data=None, data_dir=None)


@dataclass(frozen=True, kw_only=True)
class AgreementLimits:
    """How close to fp32 a lower precision has to be.

    Attributes:
        min_agreement: Share of answers that must agree with fp32.
        max_error: Relative root mean square error that the outputs may have.
    """

    min_agreement: float = MIN_AGREEMENT
    max_error: float = MAX_ERROR

    def __post_init__(self) -> None:
        if not 0 <= self.min_agreement <= 1:
            raise UsageError(f"--min-agreement: expected a share from 0 to 1, got {self.min_agreement}")
        if not 0 <= self.max_error < math.inf:
            raise UsageError(f"--max-error: expected a relative error, 0 or more, got {self.max_error}")


@dataclass(frozen=True, kw_only=True)
class PrecisionOptions(AgreementLimits):
    """The precision of a file to write: "fp32", "fp16" or "int8"; and how close to fp32 it has to be."""

    precision: Precision = "fp32"

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_one_of("--precision", self.precision, get_args(Precision))


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(AgreementLimits):
    """The device that runs a file, the precision of its arithmetic, and how close to fp32 that has to be.

    The limits hold for a file of lower precision too.
    """

    device: Device = "cpu"
    precision: DevicePrecision = "fp32"

    def __post_init__(self) -> None:
        super().__post_init__()
        _expect_one_of("--device", self.device, get_args(Device))
        _expect_one_of("--precision", self.precision, get_args(DevicePrecision))
        if self.precision != "fp32" and self.device != "openvino":
            raise UsageError(f"--precision: expected fp32 with --device {self.device}, got {self.precision}")


def _expect_one_of(option: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise UsageError(f"{option}: expected {', '.join(valid)}, got {value!r}")
