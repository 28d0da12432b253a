"""The dense highway layer."""

from __future__ import annotations

from torch import Tensor, nn

from models.checks import expect
from models.layers.gate import Carry, ConvGate1d, ConvGate2d, GatedJoin
from models.layers.transform import DENSE, Init, Medium, Transform


class HighwayLayer(Transform, GatedJoin):
    """y = H(x) * T(x) + x * C(x), T(x) = sigmoid(Wt x + bt), H(x) = relu(Wh x + bh), C = 1 - T.

    Srivastava, Greff and Schmidhuber 2015, "Training Very Deep Networks". Shapes: (..., dim) -> the same,
    with any leading dimensions.

    The gate's bias starts at -2, so that T is about 0.12 and a fresh layer mostly carries its input;
    None keeps PyTorch's own draw. `carry="independent"` gives C a gate of its own. `init="scaled"` draws
    H after He and T after Glorot, with zero biases, as very deep stacks need. The parameters are called
    `normal_layer` and `gate`, so a state dict of the `HighwayLayer` of zeta loads as it stands.
    """

    def __init__(
        self,
        dim: int,
        *,
        medium: Medium = DENSE,
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
            lambda: medium.gate(dim, dim),
            gate_bias=gate_bias,
            carry=carry,
            scaled=init == "scaled",
        )
        self.equip(
            dim,
            dim,
            medium,
            activation=activation,
            dropout=dropout,
            batch_norm=batch_norm,
            init=init,
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.join(self.transform(x), x)


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
