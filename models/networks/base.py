"""Base classes of networks: a config that rebuilds a network, and a module that checks and scales rows."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import torch
from torch import Tensor, nn

from turnpike.common.columns import ColumnKind
from turnpike.models.checks import expect, expect_choice
from turnpike.models.errors import ShapeError
from turnpike.models.layers.columns import ColumnEncoder, ColumnSpec

Scaling = Literal["none", "unit", "standard", "columns"]

# values converted to float64 at a time; bytes take eight times as much memory in float64
SCALE_CHUNK_VALUES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class NetConfig:
    """The settings that every network has. Each family adds its own in a subclass.

    Attributes:
        family: Name of the family, as it is saved in checkpoints.
        inputs: Shape of one row, without the batch axis.
        classes: Number of classes to tell apart, 2 or more; 1 to predict a number.
        scaling: What the network itself does to the values, so that callers send raw rows: "none",
            "unit" (divide by the largest magnitude in the training rows), "standard" (subtract their
            mean and divide by their standard deviation), or "columns" (the same for each column of a
            table by itself).
        columns: For a table, what each column holds: (kind, number of categories, whether blanks mean
            something); () if all are numbers without blanks.
    """

    family: ClassVar[str]

    inputs: tuple[int, ...]
    classes: int
    scaling: Scaling = "standard"
    columns: tuple[tuple[ColumnKind, int, bool], ...] = ()

    def __post_init__(self) -> None:
        expect(
            len(self.inputs) > 0 and all(size > 0 for size in self.inputs),
            f"inputs: expected positive sizes, got {self.inputs}",
        )
        expect(self.classes > 0, f"classes: expected 1 or more, got {self.classes}")
        expect_choice("scaling", self.scaling, get_args(Scaling))
        expect(
            self.scaling != "columns" or len(self.inputs) == 1,
            f"scaling: columns needs rows of one axis, got rows of {self.inputs}",
        )
        expect(
            not self.columns or ColumnEncoder.size(self.column_specs) > 0,
            "columns: expected values in the training rows, got only blanks",
        )
        expect(
            not self.columns or (self.scaling == "columns" and self.inputs == (len(self.columns),)),
            f"columns: expected one for each of the {self.inputs} values of a row, and scaling columns",
        )

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of a row as the layers get it."""
        return (ColumnEncoder.size(self.column_specs),) if self.columns else self.inputs

    @property
    def column_specs(self) -> tuple[ColumnSpec, ...]:
        return tuple(ColumnSpec(*column) for column in self.columns)

    def for_data(
        self, inputs: tuple[int, ...], classes: int, alphabet_size: int = 0, **settings: Any
    ) -> Self:
        """Return the config for other data.

        Args:
            inputs: Shape of one row.
            classes: Number of classes.
            alphabet_size: Number of character ids of text; 0 for data that is no text.
            settings: Further settings to change, by name.
        """
        return replace(self, inputs=inputs, classes=classes, **settings)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain values, the family first, as they are saved in a checkpoint."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if not self.columns:
            del values["columns"]  # as in checkpoints of older versions
        return {"family": self.family, **values}


class Net(nn.Module):
    """A network that checks its rows, scales them, and passes them to `logits`, which each family defines.

    Shapes: (batch, *config.inputs) -> (batch, config.classes): logits, or a number to predict.

    Attributes:
        free_axes: Axes of a row whose size may differ from the config's (time).
        reads_ids: Whether the network reads integer ids, which are never scaled.
    """

    free_axes: tuple[int, ...] = ()
    reads_ids: ClassVar[bool] = False

    shift: Tensor
    scale: Tensor
    target_shift: Tensor
    target_scale: Tensor

    def __init__(self, config: NetConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = ColumnEncoder(config.column_specs) if config.columns else None
        if config.classes == 1:
            self.register_buffer("target_shift", torch.zeros(()))
            self.register_buffer("target_scale", torch.ones(()))
        shape = config.inputs if config.scaling == "columns" else ()
        self.register_buffer("shift", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(shape))

    def fit_scale(self, rows: Tensor) -> None:
        """Compute the scaling from training rows. It is saved with the weights."""
        if self.reads_ids or self.config.scaling == "none":
            return
        if self.encoder is not None:
            self.encoder.fit(rows)
            return
        if self.config.scaling == "columns":
            columns = rows.double()
            spreads = columns.std(0, correction=0)
            # a constant column says nothing about the class: no value of it may change an answer
            constant = (columns.amin(0) == columns.amax(0)) | (spreads < torch.finfo(torch.float32).tiny)
            self.shift.copy_(columns.mean(0))
            self.scale.copy_(torch.where(constant, 0.0, 1 / spreads))
            return
        chunks = torch.split(rows.flatten(), SCALE_CHUNK_VALUES)
        if self.config.scaling == "unit":
            spread = torch.stack([chunk.double().abs().max() for chunk in chunks]).max()
        else:
            mean = torch.stack([chunk.double().sum() for chunk in chunks]).sum() / rows.numel()
            squares = torch.stack([(chunk.double() - mean).square().sum() for chunk in chunks]).sum()
            self.shift.copy_(mean)
            spread = (squares / rows.numel()).sqrt()
        # the spread is 0 if all values are equal (or all are 0): then do not scale
        self.scale.copy_(1 / spread if spread > 0 else torch.ones(()))

    def fit_target(self, numbers: Tensor) -> None:
        """Compute what the network's answer is multiplied by and added to, from numbers to predict."""
        values = numbers.double()
        self.target_shift.copy_(values.mean())
        spread = values.std(correction=0)
        self.target_scale.copy_(spread if spread > 0 else torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        self._expect_rows(x)
        if self.encoder is not None:
            values = self.logits(self.encoder(x))
        else:
            values = self.logits(x if self.reads_ids else (x - self.shift) * self.scale)
        return values * self.target_scale + self.target_shift if self.config.classes == 1 else values

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, x: Tensor) -> Tensor: ...

    def logits(self, x: Tensor) -> Tensor:
        """Map scaled rows to logits."""
        raise NotImplementedError

    def _expect_rows(self, x: Tensor) -> None:
        expected = self.config.inputs
        shape = tuple(x.shape[1:])
        # the size of a free axis is only compared to 0: any other comparison would fix it when tracing
        fits = len(shape) == len(expected) and all(
            size > 0 if axis in self.free_axes else size == expected_size
            for axis, (size, expected_size) in enumerate(zip(shape, expected, strict=True))
        )
        if not fits:
            sizes = ["*" if axis in self.free_axes else str(size) for axis, size in enumerate(expected)]
            raise ShapeError(
                f"input: expected shape [batch, {', '.join(sizes)}], got [{', '.join(map(str, x.shape))}]"
            )
        if x.is_floating_point() == self.reads_ids:
            expected_type = "integer ids" if self.reads_ids else "floating point numbers"
            raise ShapeError(f"input: expected {expected_type}, got {_dtype_name(x.dtype)}")
        if not self.reads_ids and x.dtype != self.shift.dtype:
            raise ShapeError(f"input: expected {_dtype_name(self.shift.dtype)}, got {_dtype_name(x.dtype)}")


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def parameter_count(net: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(parameter.numel() for parameter in net.parameters() if parameter.requires_grad)
