"""The transform H of a layer; plain and residual layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from turnpike.models.checks import expect, expect_axis_size, expect_choice
from turnpike.models.layers.activation import initialize_weights, make_activation, maxout_pieces
from turnpike.models.layers.gate import DenseGate, Gate

Init = Literal["torch", "scaled"]
Linear = nn.Linear | nn.Conv1d | nn.Conv2d


class RowNorm(nn.BatchNorm1d):
    """Batch normalization of the last axis over all leading ones. Shapes: (..., units) -> the same."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.reshape(-1, self.num_features)).view_as(x)


@dataclass(frozen=True)
class MapKind:
    """The kind of maps in a layer, so that one layer class can be dense or convolutional.

    Attributes:
        make_linear: Creates the map of H from a number of inputs and a number of units.
        make_gate: Creates a gate from the same two numbers.
        make_norm: Creates the batch normalization for a number of units.
        unit_axis: The axis of the units in inputs and outputs.
        ndim: How many axes inputs have; None allows any number.
    """

    make_linear: Callable[[int, int], Linear]
    make_gate: Callable[[int, int], Gate]
    make_norm: Callable[[int], nn.Module]
    unit_axis: int
    ndim: int | None = None


DENSE = MapKind(nn.Linear, DenseGate, RowNorm, unit_axis=-1)


class Transform(nn.Module):
    """H(x) = dropout(activation(norm(W x + b))); norm and dropout are optional.

    Base class: a subclass calls `_build` in its constructor and `transform` in its forward method.
    """

    def _build(
        self,
        inputs: int,
        units: int,
        map_kind: MapKind,
        *,
        activation: str,
        dropout: float,
        batch_norm: bool,
        init: Init,
    ) -> None:
        """Create the sub-modules of H; called once by a subclass, after nn.Module.__init__."""
        expect(inputs > 0 and units > 0, f"units: expected 1 or more, got {inputs} and {units}")
        expect(0 <= dropout < 1, f"dropout: expected 0 or more and below 1, got {dropout}")
        expect_choice("init", init, get_args(Init))
        self.inputs = inputs
        self.unit_axis = map_kind.unit_axis
        self.input_ndim = map_kind.ndim
        self.normal_layer = map_kind.make_linear(inputs, units * maxout_pieces(activation))
        self.norm = map_kind.make_norm(units * maxout_pieces(activation)) if batch_norm else None
        self.activation = make_activation(activation, map_kind.unit_axis)
        self.dropout = nn.Dropout(dropout) if dropout else None
        if init == "scaled":
            initialize_weights(self.normal_layer, activation)

    def transform(self, x: Tensor) -> Tensor:
        """Return H(x)."""
        expect_axis_size(self, x, self.inputs, self.unit_axis, self.input_ndim)
        h = self.normal_layer(x)
        if self.norm is not None:
            h = self.norm(h)
        h = self.activation(h)
        return h if self.dropout is None else self.dropout(h)


class PlainLayer(Transform):
    """y = H(x): the layer of an ordinary network, which may also change the number of units.

    Shapes: (..., inputs) -> (..., units).

    Args:
        inputs: Number of units of the input.
        units: Number of units of the output; None for as many as the input has.
        map_kind: Dense maps or convolutions.
        activation: Name of an activation: relu, tanh or maxout(k).
        dropout: Probability of zeroing a value of the output.
        batch_norm: Normalize before the activation.
        init: "torch" keeps PyTorch's own weights; "scaled" draws them after He (relu, maxout) or Glorot
            (tanh) and sets the bias to zero.
    """

    def __init__(
        self,
        inputs: int,
        units: int | None = None,
        *,
        map_kind: MapKind = DENSE,
        activation: str = "relu",
        dropout: float = 0.0,
        batch_norm: bool = False,
        init: Init = "torch",
    ) -> None:
        super().__init__()
        units = inputs if units is None else units
        self._build(
            inputs,
            units,
            map_kind,
            activation=activation,
            dropout=dropout,
            batch_norm=batch_norm,
            init=init,
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.transform(x)

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, x: Tensor) -> Tensor: ...


class ResidualLayer(nn.Module):
    """y = x + W a(norm(x)) + b, the activation a first (He et al. 2016, "Identity Mappings").

    Shapes: (..., dim) -> the same.

    Args:
        dim: Number of units of input and output.
        map_kind: Dense maps or convolutions.
        activation: Name of an activation: relu or tanh.
        dropout: Probability of zeroing a value of the branch.
        batch_norm: Normalize before the activation.
        init: "torch" keeps PyTorch's own weights. "scaled" draws W smaller by 1/sqrt(depth), so that the
            sum over all branches keeps the size of the input; at full size the signal would double in
            every layer, and 100 layers would overflow.
        depth: How many residual layers the network has, for init="scaled".
    """

    def __init__(
        self,
        dim: int,
        *,
        map_kind: MapKind = DENSE,
        activation: str = "relu",
        dropout: float = 0.0,
        batch_norm: bool = False,
        init: Init = "torch",
        depth: int = 1,
    ) -> None:
        super().__init__()
        expect(dim > 0, f"dim: expected 1 or more, got {dim}")
        expect(
            maxout_pieces(activation) == 1,
            f"activation: a residual layer takes relu or tanh, which keep the size, got {activation!r}",
        )
        expect(0 <= dropout < 1, f"dropout: expected 0 or more and below 1, got {dropout}")
        expect_choice("init", init, get_args(Init))
        expect(depth > 0, f"depth: expected 1 or more, got {depth}")
        self.dim = dim
        self.unit_axis = map_kind.unit_axis
        self.input_ndim = map_kind.ndim
        self.norm = map_kind.make_norm(dim) if batch_norm else None
        self.activation = make_activation(activation, map_kind.unit_axis)
        self.normal_layer = map_kind.make_linear(dim, dim)
        self.dropout = nn.Dropout(dropout) if dropout else None
        if init == "scaled":
            initialize_weights(self.normal_layer, activation)
            with torch.no_grad():
                self.normal_layer.weight.mul_(depth**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        expect_axis_size(self, x, self.dim, self.unit_axis, self.input_ndim)
        h = x if self.norm is None else self.norm(x)
        h = self.normal_layer(self.activation(h))
        return x + (h if self.dropout is None else self.dropout(h))

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, x: Tensor) -> Tensor: ...
