"""Activations of a transform H: relu, tanh, or maxout over k linear pieces."""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn

from models.errors import ConfigError


class Maxout(nn.Module):
    """h_i = max_j (x W_ij + b_ij), j = 1..k (Goodfellow et al. 2013, "Maxout Networks").

    The map before it makes all units * k values; this module takes the largest of each unit's k.
    `axis` is where the units stand: -1 in a dense layer, 1 in a convolutional one.
    Shapes: (..., units * k, ...) -> (..., units, ...).
    """

    def __init__(self, pieces: int, axis: int) -> None:
        super().__init__()
        self.pieces = pieces
        self.axis = axis

    def forward(self, x: Tensor) -> Tensor:
        axis = self.axis % x.dim()
        return torch.unflatten(x, axis, (-1, self.pieces)).amax(axis + 1)

    def extra_repr(self) -> str:
        return f"pieces={self.pieces}, axis={self.axis}"


def pieces_of(activation: str) -> int:
    """How many values the map before the activation makes for each unit: k for maxout(k), else 1."""
    if activation in ("relu", "tanh"):
        return 1
    match = re.fullmatch(r"maxout\((\d+)\)", activation)
    if match is None or int(match[1]) < 2:
        raise ConfigError(
            f"activation: expected relu, tanh or maxout(k) with k of 2 or more, got {activation!r}"
        )
    return int(match[1])


def make_activation(activation: str, axis: int = -1) -> nn.Module:
    """The module for an activation's name; `axis` is where the units stand."""
    pieces = pieces_of(activation)
    if pieces > 1:
        return Maxout(pieces, axis)
    return nn.ReLU() if activation == "relu" else nn.Tanh()


def initialise(linear: nn.Linear | nn.Conv1d | nn.Conv2d, activation: str) -> None:
    """Weights that keep the signal's size through depth, and a zero bias.

    He et al. 2015 for relu and maxout (each halves or picks from a zero-centred signal), Glorot and
    Bengio 2010 for tanh, gates and outputs, which are near their linear part at the start.
    """
    if activation == "relu" or pieces_of(activation) > 1:
        nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")
    else:
        nn.init.xavier_normal_(linear.weight)
    if linear.bias is not None:
        with torch.no_grad():
            linear.bias.zero_()
