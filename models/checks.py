"""Checks of settings and tensor shapes that raise an error unless they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnpike.models.errors import ConfigError, ShapeError

if TYPE_CHECKING:  # settings are checked without PyTorch, too
    from torch import Tensor, nn


def expect(condition: bool, message: str) -> None:
    """Raise a ConfigError unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def expect_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    """Raise a ConfigError unless the value is one of the choices; `name` is the setting's name."""
    expect(value in choices, f"{name}: expected one of {', '.join(map(str, choices))}, got {value!r}")


def expect_axis_size(layer: nn.Module, x: Tensor, size: int, axis: int = -1, ndim: int | None = None) -> None:
    """Raise a ShapeError unless `x` has the size that a layer needs along one axis.

    Args:
        layer: The layer that is called, named in the message.
        x: Its input.
        size: How many values the input must have along `axis`.
        axis: The axis that the layer works on.
        ndim: How many axes the input must have in all; None allows any number.
    """
    has_axis = -x.dim() <= axis < x.dim() and ndim in (None, x.dim())
    if not has_axis or x.shape[axis] != size:
        raise ShapeError(
            f"{type(layer).__name__}: expected {size} values along axis {axis}"
            f"{'' if ndim is None else f' of {ndim} axes'}, got shape [{', '.join(map(str, x.shape))}]"
        )
