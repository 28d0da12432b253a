"""The transform H of a layer, whatever its maps are made of, and the plain and residual layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from models.checks import expect, expect_axis_size, expect_choice
from models.layers.activation import initialise, make_activation, pieces_of
from models.layers.gate import DenseGate, Gate

Init = Literal["torch", "scaled"]
Linear = nn.Linear | nn.Conv1d | nn.Conv2d


class RowNorm(nn.BatchNorm1d):
    """Batch normalisation of the last axis over every leading one. Shapes: (..., units) -> the same."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.reshape(-1, self.num_features)).view_as(x)


@dataclass(frozen=True)
class Medium:
    """What a layer's maps are made of: one layer is written once, and is dense or convolutional by this.

    `linear` and `gate` make a map from so many units to so many; `axis` is where the units stand, among
    `axes` axes, or any number of them.
    """

    linear: Callable[[int, int], Linear]
    gate: Callable[[int, int], Gate]
    norm: Callable[[int], nn.Module]
    axis: int
    axes: int | None = None


DENSE = Medium(nn.Linear, DenseGate, RowNorm, axis=-1)


class Transform(nn.Module):
    """H(x) = dropout(activation(norm(W x + b))); norm and dropout only where asked for."""

    def equip(
        self,
        inputs: int,
        units: int,
        medium: Medium,
        *,
        activation: str,
        dropout: float,
        batch_norm: bool,
        init: Init,
    ) -> None:
        """Make the parts; called once by a subclass, after nn.Module has been set up."""
        expect(inputs > 0 and units > 0, f"units: expected 1 or more, got {inputs} and {units}")
        expect(0 <= dropout < 1, f"dropout: expected 0 or more and below 1, got {dropout}")
        expect_choice("init", init, get_args(Init))
        self.inputs = inputs
        self.axis = medium.axis
        self.axes = medium.axes
        self.normal_layer = medium.linear(inputs, units * pieces_of(activation))
        self.norm = medium.norm(units * pieces_of(activation)) if batch_norm else None
        self.activation = make_activation(activation, medium.axis)
        self.dropout = nn.Dropout(dropout) if dropout else None
        if init == "scaled":
            initialise(self.normal_layer, activation)

    def transform(self, x: Tensor) -> Tensor:
        expect_axis_size(self, x, self.inputs, self.axis, self.axes)
        h = self.normal_layer(x)
        if self.norm is not None:
            h = self.norm(h)
        h = self.activation(h)
        return h if self.dropout is None else self.dropout(h)


class PlainLayer(Transform):
    """y = H(x): the layer of an ordinary network, and the first way to change size.

    Shapes: (..., inputs) -> (..., units).
    """

    def __init__(
        self,
        inputs: int,
        units: int | None = None,
        *,
        medium: Medium = DENSE,
        activation: str = "relu",
        dropout: float = 0.0,
        batch_norm: bool = False,
        init: Init = "torch",
    ) -> None:
        super().__init__()
        units = inputs if units is None else units
        self.equip(
            inputs,
            units,
            medium,
            activation=activation,
            dropout=dropout,
            batch_norm=batch_norm,
            init=init,
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.transform(x)


class ResidualLayer(nn.Module):
    """y = x + W a(norm(x)) + b, the activation first (He et al. 2016, "Identity Mappings").

    Shapes: (..., dim) -> the same. With init="scaled", W is drawn smaller by 1/sqrt(depth), the number
    of layers it stands among, so that what the branches add up to keeps the size of what came in; drawn
    at full size the signal would double in every layer, and 100 of them overflow.
    """

    def __init__(
        self,
        dim: int,
        *,
        medium: Medium = DENSE,
        activation: str = "relu",
        dropout: float = 0.0,
        batch_norm: bool = False,
        init: Init = "torch",
        depth: int = 1,
    ) -> None:
        super().__init__()
        expect(dim > 0, f"dim: expected 1 or more, got {dim}")
        expect(
            pieces_of(activation) == 1,
            f"activation: a residual layer takes relu or tanh, which keep the size, got {activation!r}",
        )
        expect(0 <= dropout < 1, f"dropout: expected 0 or more and below 1, got {dropout}")
        expect_choice("init", init, get_args(Init))
        expect(depth > 0, f"depth: expected 1 or more, got {depth}")
        self.dim = dim
        self.axis = medium.axis
        self.axes = medium.axes
        self.norm = medium.norm(dim) if batch_norm else None
        self.activation = make_activation(activation, medium.axis)
        self.normal_layer = medium.linear(dim, dim)
        self.dropout = nn.Dropout(dropout) if dropout else None
        if init == "scaled":
            initialise(self.normal_layer, activation)
            with torch.no_grad():
                self.normal_layer.weight.mul_(depth**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        expect_axis_size(self, x, self.dim, self.axis, self.axes)
        h = x if self.norm is None else self.norm(x)
        h = self.normal_layer(self.activation(h))
        return x + (h if self.dropout is None else self.dropout(h))
