"""The dense highway layer."""

from __future__ import annotations

from torch import Tensor

from models.layers.gate import Carry, GatedJoin
from models.layers.transform import DENSE, Init, Medium, Transform
from models.networks.base import expect


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
