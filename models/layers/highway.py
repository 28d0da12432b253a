"""Highway layers, dense and convolutional."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from turnpike.models.checks import expect
from turnpike.models.layers.gate import Carry, ConvGate1d, ConvGate2d, GatedJoin
from turnpike.models.layers.transform import DENSE, Init, MapKind, Transform


class HighwayLayer(Transform, GatedJoin):
    """y = H(x) * T(x) + x * C(x), T(x) = sigmoid(Wt x + bt), H(x) = relu(Wh x + bh), C = 1 - T.

    Srivastava, Greff and Schmidhuber 2015, "Training Very Deep Networks".
    Shapes: (..., dim) -> the same, with any leading dimensions.
    The parameters are called `normal_layer` and `gate`, so a state dict of the `HighwayLayer` of zeta
    loads unchanged.

    Args:
        dim: Number of units of input and output.
        map_kind: Dense maps or convolutions, for H and T.
        gate_bias: Initial bias of T. At -2, T is about 0.12, so a new layer mostly carries its input.
            None keeps PyTorch's own initialization.
        activation: Name of an activation: relu, tanh or maxout(k).
        carry: "coupled" (C = 1 - T) or "independent" (C is a gate of its own).
        dropout: Probability of zeroing a value of H.
        batch_norm: Normalize H before its activation.
        init: "torch" keeps PyTorch's own weights; "scaled" draws H after He and T after Glorot and sets
            biases other than the gates' to zero, as very deep stacks need.
    """

    def __init__(
        self,
        dim: int,
        *,
        map_kind: MapKind = DENSE,
        gate_bias: float | None = -2.0,
        activation: str = "relu",
        carry: Carry = "coupled",
        dropout: float = 0.0,
        batch_norm: bool = False,
        init: Init = "torch",
    ) -> None:
        expect(dim > 0, f"dim: expected 1 or more, got {dim}")
        GatedJoin.__init__(
            self,
            lambda: map_kind.make_gate(dim, dim),
            gate_bias=gate_bias,
            carry=carry,
            scaled_init=init == "scaled",
        )
        self._build(
            dim,
            dim,
            map_kind,
            activation=activation,
            dropout=dropout,
            batch_norm=batch_norm,
            init=init,
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.join(self.transform(x), x)

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, x: Tensor) -> Tensor: ...


def convolution_maps(dims: int, kernel: int = 3) -> MapKind:
    """Convolutions over a line (dims=1) or a plane (dims=2), zero-padded so that the size stays.

    H and T have the same kernel size, hence the same receptive field: a gate sees what it decides about.
    """
    expect(dims in (1, 2), f"dims: expected 1 or 2, got {dims}")
    expect(
        kernel > 0 and kernel % 2 == 1, f"kernel: expected an odd size, which can be centred, got {kernel}"
    )
    padding = kernel // 2
    if dims == 1:
        return MapKind(
            make_linear=lambda inputs, units: nn.Conv1d(inputs, units, kernel, padding=padding),
            make_gate=lambda inputs, units: ConvGate1d(inputs, units, kernel, padding=padding),
            make_norm=nn.BatchNorm1d,
            unit_axis=1,
            ndim=3,
        )
    return MapKind(
        make_linear=lambda inputs, units: nn.Conv2d(inputs, units, kernel, padding=padding),
        make_gate=lambda inputs, units: ConvGate2d(inputs, units, kernel, padding=padding),
        make_norm=nn.BatchNorm2d,
        unit_axis=1,
        ndim=4,
    )


class ConvHighwayLayer(HighwayLayer):
    """y = H(x) * T(x) + x * C(x), H(x) = relu(Wh * x + bh), T(x) = sigmoid(Wt * x + bt).

    W * x is a convolution. Initialization and the arguments not listed here are those of `HighwayLayer`.
    Shapes: (batch, channels, length) for dims=1, (batch, channels, height, width) for dims=2 -> the same.

    Args:
        channels: Number of channels of input and output.
        kernel: Size of the kernels of H and T, an odd number.
        dims: 1 for convolutions over a line, 2 over a plane.
    """

    def __init__(
        self,
        channels: int,
        *,
        kernel: int = 3,
        dims: int = 2,
        gate_bias: float | None = -2.0,
        activation: str = "relu",
        carry: Carry = "coupled",
        dropout: float = 0.0,
        batch_norm: bool = False,
        init: Init = "torch",
    ) -> None:
        super().__init__(
            channels,
            map_kind=convolution_maps(dims, kernel),
            gate_bias=gate_bias,
            activation=activation,
            carry=carry,
            dropout=dropout,
            batch_norm=batch_norm,
            init=init,
        )
