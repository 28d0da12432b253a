"""Convolutional layers: the same plain, residual and highway layers over maps made of convolutions."""

from __future__ import annotations

from torch import nn

from models.layers.gate import Carry, ConvGate1d, ConvGate2d
from models.layers.highway import HighwayLayer
from models.layers.transform import Init, Medium
from models.networks.base import expect


def convolution(dims: int, kernel: int = 3) -> Medium:
    """Convolutions over a line (dims 1) or a plane (dims 2), zero padded so that the size stays.

    H and T share the kernel size and so the receptive field: a gate sees what it decides about.
    """
    expect(dims in (1, 2), f"dims: expected 1 or 2, got {dims}")
    expect(
        kernel > 0 and kernel % 2 == 1, f"kernel: expected an odd size, which can be centred, got {kernel}"
    )
    pad = kernel // 2
    if dims == 1:
        return Medium(
            linear=lambda inputs, units: nn.Conv1d(inputs, units, kernel, padding=pad),
            gate=lambda inputs, units: ConvGate1d(inputs, units, kernel, padding=pad),
            norm=nn.BatchNorm1d,
            axis=1,
            axes=3,
        )
    return Medium(
        linear=lambda inputs, units: nn.Conv2d(inputs, units, kernel, padding=pad),
        gate=lambda inputs, units: ConvGate2d(inputs, units, kernel, padding=pad),
        norm=nn.BatchNorm2d,
        axis=1,
        axes=4,
    )


class ConvHighwayLayer(HighwayLayer):
    """y = H(x) * T(x) + x * C(x) with H = relu(Wh * x + bh) and T = sigmoid(Wt * x + bt), * a convolution.

    Shapes: (batch, channels, length) for dims 1, (batch, channels, height, width) for dims 2 -> the same.
    Initialised as `HighwayLayer` is.
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
            medium=convolution(dims, kernel),
            gate_bias=gate_bias,
            activation=activation,
            carry=carry,
            dropout=dropout,
            batch_norm=batch_norm,
            init=init,
        )
