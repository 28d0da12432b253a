"""Transformer encoder with residual joins (add and normalize) or highway joins (gate and normalize)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from turnpike.models.checks import expect, expect_axis_size, expect_choice
from turnpike.models.errors import ShapeError
from turnpike.models.layers.activation import initialize_weights
from turnpike.models.layers.gate import Carry, DenseGate, GatedJoin
from turnpike.models.networks.base import Net, NetConfig
from turnpike.models.networks.sequence import as_sequence, sequence_shape

Join = Literal["residual", "highway"]


def _expect_sequence(layer: nn.Module, x: Tensor, width: int) -> None:
    if x.dim() < 2:
        raise ShapeError(f"{type(layer).__name__}: expected shape [..., time, {width}], got {list(x.shape)}")
    expect_axis_size(layer, x, width)


class SinusoidalPositions(nn.Module):
    """y = x + P, P[t, 2i] = sin(t / 10000^(2i/width)), P[t, 2i+1] = cos of the same angle.

    Vaswani et al. 2017, "Attention Is All You Need". An odd width ends with a sine. There are no
    parameters and no stored table, so sequences may have any length.
    Shapes: (..., time, width) -> the same.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        _expect_sequence(self, x, self.width)
        # half precision cannot represent all integers above 2048, so compute in float32 or wider
        dtype = torch.promote_types(x.dtype, torch.float32)
        t = torch.arange(x.shape[-2], dtype=dtype, device=x.device)
        even = torch.arange(0, self.width, 2, dtype=dtype, device=x.device)
        angle = t.unsqueeze(1) * torch.exp(even * (-math.log(10000.0) / self.width))
        positions = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)[:, : self.width]
        return x + positions.to(x.dtype)

    def extra_repr(self) -> str:
        return f"width={self.width}"


class MultiHeadAttention(nn.Module):
    """y = concat_h(softmax(Q_h K_h' / sqrt(d)) V_h) W_o, with Q, K, V linear in x and d = width / heads.

    Vaswani et al. 2017. Q, K and V are computed by one matrix product. Weights are drawn after Glorot, as
    in the paper's own code, since all maps here are linear. Dropout applies to the attention weights.
    Shapes: (..., time, width) -> the same.
    """

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        expect(width > 0, f"width: expected 1 or more, got {width}")
        expect(heads > 0 and width % heads == 0, f"heads: expected a divisor of {width}, got {heads}")
        expect(0 <= dropout < 1, f"dropout: expected 0 or more and below 1, got {dropout}")
        self.width = width
        self.heads = heads
        self.dropout = dropout
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        initialize_weights(self.queries_keys_values, "tanh")
        initialize_weights(self.output, "tanh")

    def forward(self, x: Tensor) -> Tensor:
        _expect_sequence(self, x, self.width)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(-2, -3)  # (..., heads, time, width / heads)
            for part in self.queries_keys_values(x).chunk(3, dim=-1)
        )
        dropout = self.dropout if self.training else 0.0
        attended = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        return self.output(attended.transpose(-2, -3).flatten(-2))

    def extra_repr(self) -> str:
        return f"heads={self.heads}, dropout={self.dropout}"


class ResidualJoin(nn.Module):
    """y = norm(h + x): adds a sublayer's result h to its input x (He et al. 2015).

    Shapes: (..., width) twice -> (..., width).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        return self.norm(h + x)


class HighwayJoin(GatedJoin):
    """y = norm(h * T(x) + x * C(x)): joins a sublayer's result h with its input x by gates on x.

    This is the highway layer of Srivastava et al. 2015 with attention or a feed-forward pair as H. The
    gates' weights are drawn after Glorot; their bias is set to `gate_bias`.
    Shapes: (..., width) twice -> (..., width).
    """

    def __init__(self, width: int, *, gate_bias: float | None = -2.0, carry: Carry = "coupled") -> None:
        super().__init__(lambda: DenseGate(width, width), gate_bias=gate_bias, carry=carry, scaled_init=True)
        self.norm = nn.LayerNorm(width)

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        return self.norm(self.join(h, x))

    if TYPE_CHECKING:  # torch says that a call returns Any

        def __call__(self, h: Tensor, x: Tensor) -> Tensor: ...


class EncoderLayer(nn.Module):
    """a = join(attention(x), x); y = join(W2 relu(W1 a + b1) + b2, a).

    Vaswani et al. 2017, with either kind of join. W1 is drawn after He, W2 after Glorot. Dropout applies to
    the result of each sublayer, to the attention weights, and between the two feed-forward maps.
    Shapes: (..., time, width) -> the same.

    Args:
        width: Units of input and output.
        heads: Attention heads, a divisor of `width`.
        feedforward: Units between W1 and W2.
        join: "residual" or "highway".
        dropout: Dropout rate.
        gate_bias: Initial bias of the transform gates; None keeps PyTorch's own initialization.
        carry: "coupled" or "independent".
    """

    def __init__(
        self,
        width: int,
        heads: int,
        feedforward: int,
        *,
        join: Join = "highway",
        dropout: float = 0.0,
        gate_bias: float | None = -2.0,
        carry: Carry = "coupled",
    ) -> None:
        super().__init__()
        expect_choice("join", join, get_args(Join))
        expect(feedforward > 0, f"feedforward: expected 1 or more, got {feedforward}")

        def make_join() -> nn.Module:
            if join == "residual":
                return ResidualJoin(width)
            return HighwayJoin(width, gate_bias=gate_bias, carry=carry)

        widen, narrow = nn.Linear(width, feedforward), nn.Linear(feedforward, width)
        initialize_weights(widen, "relu")
        initialize_weights(narrow, "tanh")
        self.attention = MultiHeadAttention(width, heads, dropout=dropout)
        self.attention_join = make_join()
        self.feedforward = nn.Sequential(widen, nn.ReLU(), nn.Dropout(dropout), narrow)
        self.feedforward_join = make_join()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        a = self.attention_join(self.dropout(self.attention(x)), x)
        return self.feedforward_join(self.dropout(self.feedforward(a)), a)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(NetConfig):
    """A Transformer over a sequence, or over the lines of an image.

    A highway join has width * (width + 1) more parameters than a residual one, and each layer has two
    joins. So a residual network of equal size has a `feedforward` that is larger by about `width`.

    Attributes:
        width: Units of each layer.
        heads: Attention heads, a divisor of `width`.
        layers: Number of encoder layers.
        feedforward: Units between the two feed-forward maps of a layer.
        join: "residual" or "highway".
        dropout: Dropout rate.
        gate_bias: Initial bias of the transform gates; None keeps PyTorch's own initialization.
        carry: "coupled" or "independent".
    """

    family: ClassVar[str] = "transformer"

    width: int = 64
    heads: int = 4
    layers: int = 2
    feedforward: int = 128
    join: Join = "highway"
    dropout: float = 0.1
    gate_bias: float | None = -2.0
    carry: Carry = "coupled"

    def __post_init__(self) -> None:
        super().__post_init__()
        sequence_shape(self.inputs)
        for name in ("width", "heads", "layers", "feedforward"):
            size = getattr(self, name)
            expect(size > 0, f"{name}: expected 1 or more, got {size}")
        expect(self.width % self.heads == 0, f"heads: expected a divisor of {self.width}, got {self.heads}")
        expect(0 <= self.dropout < 1, f"dropout: expected 0 or more and below 1, got {self.dropout}")
        expect_choice("join", self.join, get_args(Join))
        expect_choice("carry", self.carry, get_args(Carry))


class Transformer(Net):
    """project -> scale -> add positions -> encoder layers -> mean over time -> Linear.

    Vaswani et al. 2017 draw their embeddings smaller by sqrt(width) and multiply them by sqrt(width), so
    that they start as large as the positions added to them. The projection takes the place of the
    embedding here and is drawn in the same way: standardized rows leave it with a deviation near 1.
    Shapes: (batch, time, features) or (batch, channels, height, width) -> (batch, classes).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        # a sequence may have any length, but the number of an image's lines is fixed
        self.free_axes = (0,) if len(config.inputs) == 2 else ()
        _, features = sequence_shape(config.inputs)
        self.project = nn.Linear(features, config.width)
        nn.init.normal_(self.project.weight, std=(features * config.width) ** -0.5)
        nn.init.zeros_(self.project.bias)
        self.gain = math.sqrt(config.width)
        self.positions = SinusoidalPositions(config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.Sequential(
            *(
                EncoderLayer(
                    config.width,
                    config.heads,
                    config.feedforward,
                    join=config.join,
                    dropout=config.dropout,
                    gate_bias=config.gate_bias,
                    carry=config.carry,
                )
                for _ in range(config.layers)
            )
        )
        self.output = nn.Linear(config.width, config.classes)
        initialize_weights(self.output, "tanh")

    def logits(self, x: Tensor) -> Tensor:
        x = self.positions(self.project(as_sequence(x)) * self.gain)
        return self.output(self.layers(self.dropout(x)).mean(dim=1))
