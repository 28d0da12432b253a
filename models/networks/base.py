"""What every whole network of this package is: rows in, logits out, and a config that rebuilds it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from torch import Tensor, nn

from models.checks import expect, expect_choice
from models.errors import ShapeError

Scaling = Literal["none", "unit", "standard"]

SCALE_CHUNK_VALUES = 1 << 22


@dataclass(frozen=True, kw_only=True)
class NetConfig:
    """What any network needs to know: the shape of one row, and how many classes to tell apart.

    `scaling` says what the network does to the numbers it is given, so that callers send them raw:
    nothing, divide by the largest one seen in training, or standardise by their mean and deviation.
    """

    family: ClassVar[str]

    inputs: tuple[int, ...]
    classes: int
    scaling: Scaling = "standard"

    def __post_init__(self) -> None:
        expect(
            len(self.inputs) > 0 and all(size > 0 for size in self.inputs),
            f"inputs: expected positive sizes, got {self.inputs}",
        )
        expect(self.classes > 1, f"classes: expected 2 or more, got {self.classes}")
        expect_choice("scaling", self.scaling, get_args(Scaling))

    def fitted(self, inputs: tuple[int, ...], classes: int, alphabet: int = 0, **settings: Any) -> Self:
        """The same network for other data, and with other settings; `alphabet` counts the ids of text."""
        return replace(self, inputs=inputs, classes=classes, **settings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the family's name first, as they are kept in a checkpoint."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"family": self.family, **values}


class Net(nn.Module):
    """Checks the rows, scales them, and hands them to `logits`, which each family writes.

    Shapes: (batch, *config.inputs) -> (batch, config.classes). `free_axes` are the axes of a row
    whose size may differ from the config's (time); `reads_ids` marks nets that take integer ids.
    """

    free_axes: tuple[int, ...] = ()
    reads_ids: ClassVar[bool] = False

    shift: Tensor
    scale: Tensor

    def __init__(self, config: NetConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def fit_scale(self, rows: Tensor) -> None:
        """Set the scaling from training rows; what it learnt is saved with the weights."""
        if self.reads_ids or self.config.scaling == "none":
            return
        # in parts: bytes take eight times their room as float64
        parts = torch.split(rows.flatten(), SCALE_CHUNK_VALUES)
        if self.config.scaling == "unit":
            spread = torch.stack([part.double().abs().max() for part in parts]).max()
        else:
            mean = torch.stack([part.double().sum() for part in parts]).sum() / rows.numel()
            squares = torch.stack([(part.double() - mean).square().sum() for part in parts]).sum()
            self.shift.copy_(mean)
            spread = (squares / rows.numel()).sqrt()
        # rows that are all alike leave nothing to scale by
        self.scale.copy_(1 / spread if spread > 0 else torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        self._expect_rows(x)
        return self.logits(x if self.reads_ids else (x - self.shift) * self.scale)

    def logits(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _expect_rows(self, x: Tensor) -> None:
        expected = self.config.inputs
        came = tuple(x.shape[1:])
        fits = len(came) == len(expected) and all(
            have > 0 if axis in self.free_axes else have == want  # a tracer must see no other question
            for axis, (have, want) in enumerate(zip(came, expected, strict=True))
        )
        if not fits:
            sizes = ["*" if axis in self.free_axes else str(size) for axis, size in enumerate(expected)]
            raise ShapeError(
                f"input: expected shape [batch, {', '.join(sizes)}], got [{', '.join(map(str, x.shape))}]"
            )
        if x.is_floating_point() == self.reads_ids:
            kind = "integer ids" if self.reads_ids else "floating point numbers"
            raise ShapeError(f"input: expected {kind}, got {_dtype_name(x.dtype)}")
        if not self.reads_ids and x.dtype != self.shift.dtype:
            raise ShapeError(f"input: expected {_dtype_name(self.shift.dtype)}, got {_dtype_name(x.dtype)}")


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def parameter_count(net: nn.Module) -> int:
    """How many numbers training may change."""
    return sum(parameter.numel() for parameter in net.parameters() if parameter.requires_grad)
