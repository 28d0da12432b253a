"""Ordinary networks of PyTorch, in which onnxruntime joins, folds and reorders much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IMAGE, WORDS, ROW = "x:float32[batch,3,12,12]", "x:float32[batch,9,24]", "x:float32[batch,10]"


class Written(nn.Module):
    """A function of modules and an input."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


class Residual(nn.Module):
    """Two convolutions with batch norms, whose sum with the input is rectified."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (conv(channels, channels, bias=False) for _ in range(2))
        self.norm, self.other = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.other(self.second(F.relu(self.norm(self.first(x))))) + x)


class Block(nn.Module):
    """A layer of a transformer, written by hand."""

    def __init__(
        self, norm: Any = nn.LayerNorm, activation: Any = F.gelu, *, causal: bool = False, first: bool = True
    ) -> None:
        super().__init__()
        self.parts, self.joined = nn.Linear(24, 72), nn.Linear(24, 24)
        self.norm, self.other = norm(24), norm(24)
        self.up, self.down = nn.Linear(24, 48), nn.Linear(48, 24)
        self.activation, self.causal, self.first = activation, causal, first

    def attention(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x).view(-1, 9, 3, 3, 8).permute(2, 0, 3, 1, 4)
        logits = query @ key.transpose(-1, -2) / 8**0.5
        if self.causal:
            logits = logits + torch.full((9, 9), -1e4).triu(1)
        return self.joined((logits.softmax(-1) @ value).transpose(1, 2).reshape(-1, 9, 24))

    def forward(self, x: Tensor) -> Tensor:
        if self.first:
            x = x + self.attention(self.norm(x))
            return x + self.down(self.activation(self.up(self.other(x))))
        x = self.norm(x + self.attention(x))
        return self.other(x + self.down(self.activation(self.up(x))))


def conv(inputs: int, outputs: int, kernel: int = 3, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding=options.pop("padding", kernel // 2), **options)


def normed(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(conv(inputs, outputs), nn.BatchNorm2d(outputs), nn.ReLU())


def with_statistics(net: nn.Module) -> nn.Module:
    """The network with batch norms as after a training."""
    for norm in net.modules():
        if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(norm.running_mean, -1, 1)
            nn.init.uniform_(norm.running_var, 0.3, 3)
            nn.init.uniform_(norm.weight, 0.5, 2)
            nn.init.uniform_(norm.bias, -1, 1)
    return net.eval()


def resnet(channels: int) -> nn.Module:
    layers = (normed(3, channels), Residual(channels), nn.MaxPool2d(2), Residual(channels))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 5))


def mobile_net() -> nn.Module:
    return nn.Sequential(
        *(conv(3, 16), nn.BatchNorm2d(16), nn.Hardswish()),
        *(conv(16, 16, groups=16), nn.BatchNorm2d(16), nn.ReLU6(), conv(16, 24, 1), nn.BatchNorm2d(24)),
        *(conv(24, 24, 5, groups=24, stride=2), nn.Hardswish(), conv(24, 8, 1), nn.AvgPool2d(2)),
    )


def activations() -> nn.Module:
    kinds = (nn.ELU(), nn.SELU(), nn.Softsign(), nn.Softplus(), nn.CELU(), nn.Hardtanh(), nn.Hardsigmoid())
    layers = [part for kind in (*kinds, nn.LeakyReLU(0.2), nn.PReLU()) for part in (nn.Linear(10, 10), kind)]
    return nn.Sequential(*layers)


# name: what makes the network, and its input
NETWORKS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "resnet": (lambda: resnet(16), IMAGE),
    "resnet with blocks that are not full": (lambda: resnet(20), IMAGE),
    "a batch norm alone": (
        lambda: nn.Sequential(conv(3, 16), nn.MaxPool2d(2), nn.BatchNorm2d(16), nn.ReLU(), conv(16, 4)),
        IMAGE,
    ),
    "mobile net": (mobile_net, IMAGE),
    "groups": (
        lambda: nn.Sequential(
            *(conv(3, 32), nn.LeakyReLU(0.1), conv(32, 32, groups=2), nn.ReLU()),
            *(conv(32, 32, groups=4), nn.AvgPool2d(3, 1, 1), conv(32, 10)),
        ),
        IMAGE,
    ),
    "dilated": (
        lambda: nn.Sequential(
            *(conv(3, 16, padding=2, dilation=2), nn.ReLU()),
            *(conv(16, 33, padding=2, dilation=2, stride=2), nn.Tanh(), conv(33, 16, 1)),
        ),
        IMAGE,
    ),
    "joined maps": (
        lambda: Written(
            lambda net, x: net.last(torch.cat([net.a(x), net.b(x), F.max_pool2d(net.a(x), 3, 1, 1)], 1)),
            a=normed(3, 16),
            b=normed(3, 16),
            last=conv(48, 7),
        ),
        IMAGE,
    ),
    "upsampled": (
        lambda: nn.Sequential(
            *(conv(3, 16), nn.Upsample(scale_factor=2), conv(16, 16)),
            *(nn.Upsample(scale_factor=2, mode="bilinear"), conv(16, 3)),
        ),
        IMAGE,
    ),
    "a batch norm after a transposed convolution": (
        lambda: nn.Sequential(
            *(conv(3, 16), nn.ReLU(), nn.ConvTranspose2d(16, 8, 2, 2), nn.BatchNorm2d(8), nn.ReLU()),
            conv(8, 3),
        ),
        IMAGE,
    ),
    "factor and shift of maps": (
        lambda: Written(
            lambda net, x: torch.relu(net.a(x) * net.factor + net.shift),
            a=conv(3, 16),
            factor=nn.Parameter(torch.rand(16, 1, 1)),
            shift=nn.Parameter(torch.rand(16, 1, 1)),
        ),
        IMAGE,
    ),
    "padded pool": (
        lambda: Written(
            lambda net, x: F.avg_pool2d(F.pad(net.a(x), (1, 1, 1, 1)), 3, 1, count_include_pad=False),
            a=conv(3, 16),
        ),
        IMAGE,
    ),
    "padded convolution": (
        lambda: Written(lambda net, x: net.a(F.pad(x, (1, 2, 0, 1))), a=nn.Conv2d(3, 16, 3)),
        IMAGE,
    ),
    "group norms": (
        lambda: nn.Sequential(
            *(conv(3, 16), nn.GroupNorm(4, 16), nn.SiLU(), conv(16, 16)),
            *(nn.InstanceNorm2d(16, affine=True), nn.Mish()),
        ),
        IMAGE,
    ),
    "waves": (
        lambda: nn.Sequential(
            *(nn.Conv1d(9, 16, 3), nn.BatchNorm1d(16), nn.ReLU()),
            *(nn.Conv1d(16, 16, 3, padding=1), nn.BatchNorm1d(16), nn.GELU()),
        ),
        WORDS,
    ),
    "batch norms of rows": (
        lambda: nn.Sequential(
            *(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU()),
            *(nn.Linear(16, 16, bias=False), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3)),
        ),
        ROW,
    ),
    "activations": (activations, ROW),
    "norm first": (Block, WORDS),
    "norm last": (lambda: Block(first=False), WORDS),
    "causal": (lambda: Block(causal=True), WORDS),
    "root of squares and SiLU": (lambda: Block(nn.RMSNorm, F.silu), WORDS),
    "GELU by tanh": (lambda: Block(activation=lambda x: F.gelu(x, approximate="tanh")), WORDS),
    "quick GELU": (lambda: Block(activation=lambda x: x * torch.sigmoid(1.702 * x)), WORDS),
    "PyTorch's attention": (
        lambda: Written(lambda net, x: net.a(x, x, x)[0], a=nn.MultiheadAttention(24, 4, batch_first=True)),
        WORDS,
    ),
    "PyTorch's layer": (lambda: nn.TransformerEncoderLayer(24, 4, 32, batch_first=True), WORDS),
    "GRU": (lambda: Written(lambda net, x: net.a(x)[0], a=nn.GRU(24, 8, bidirectional=True)), WORDS),
    "LSTM": (lambda: Written(lambda net, x: net.a(x)[0], a=nn.LSTM(24, 8, 2, batch_first=True)), WORDS),
}
