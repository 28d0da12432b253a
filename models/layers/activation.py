"""Activations of the transform H (relu, tanh, maxout) and the weight initialization that suits each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from turnpike.models.errors import ConfigError


class Maxout(nn.Module):
    """h_i = max_j (x W_ij + b_ij), j = 1..k (Goodfellow et al. 2013, "Maxout Networks").

    The linear map before this module produces units * k values; this module keeps the largest of the k
    values of each unit. `axis` is the axis of the units: -1 in a dense layer, 1 in a convolutional one.
    Shapes: (..., units * k, ...) -> (..., units, ...).
    """

    def __init__(self, pieces: int, axis: int) -> None:
        super().__init__()
        self.pieces = pieces
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        axis = self.axis % x.dim()
        return torch.unflatten(x, axis, (-1, self.pieces)).amax(axis + 1)

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, x: Tensor) -> Tensor: ...

    def extra_repr(self) -> str:
        return f"pieces={self.pieces}, axis={self.axis}"


def maxout_pieces(activation: str) -> int:
    """How many values the map before the activation produces per unit: k for maxout(k), otherwise 1."""
    if activation in ("relu", "tanh"):
        return 1
    match = re.fullmatch(r"maxout\((\d+)\)", activation)
    if match is None or int(match[1]) < 2:
        raise ConfigError(
            f"activation: expected relu, tanh or maxout(k) with k of 2 or more, got {activation!r}"
        )
    return int(match[1])


def make_activation(activation: str, axis: int = -1) -> nn.Module:
    """Return the module for an activation's name; `axis` is the axis of the units."""
    pieces = maxout_pieces(activation)
    if pieces > 1:
        return Maxout(pieces, axis)
    return nn.ReLU() if activation == "relu" else nn.Tanh()


def initialize_weights(linear: nn.Linear | nn.Conv1d | nn.Conv2d, activation: str) -> None:
    """Draw weights that keep the size of the signal through many layers, and set the bias to zero.

    He et al. 2015 for relu and maxout, which halve a zero-centered signal or pick from it. Glorot and
    Bengio 2010 for tanh, gates and outputs, which start near their linear part.
    """
    if activation == "relu" or maxout_pieces(activation) > 1:
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
    else:
        nn.init.xavier_normal_(linear.weight)
    if linear.bias is not None:
        with torch.no_grad():
            linear.bias.zero_()
