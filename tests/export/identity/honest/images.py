"""Images and other maps: convolutions, pooling, and their norms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.export.identity.honest.written import ConvHighway, Highway, Honest, Written, with_statistics

IMAGE = ("x:float32[batch,4,6,6]",)
WAVE = ("x:float32[batch,4,8]",)
ANY_WAVE = ("x:float32[batch,4,time]",)

MAPS: dict[str, Callable[[Tensor], Tensor]] = {
    "nearest": lambda y: F.interpolate(y, scale_factor=2),
    "nearest to a size": lambda y: F.interpolate(y, size=(9, 9)),
    "nearest-exact": lambda y: F.interpolate(y, scale_factor=2, mode="nearest-exact"),
    "bilinear": lambda y: F.interpolate(y, scale_factor=2, mode="bilinear"),
    "bilinear to corners": lambda y: F.interpolate(y, size=(8, 8), mode="bilinear", align_corners=True),
    "bilinear down": lambda y: F.interpolate(y, scale_factor=0.5, mode="bilinear"),
    "bicubic": lambda y: F.interpolate(y, scale_factor=2, mode="bicubic"),
    "area": lambda y: F.interpolate(y, size=(3, 3), mode="area"),
    "pixel shuffle": lambda y: F.pixel_shuffle(y, 2),
    "pixel unshuffle": lambda y: F.pixel_unshuffle(y, 2),
    "channel shuffle": lambda y: F.channel_shuffle(y, 2),
    "unfold": lambda y: F.unfold(y, 3, padding=1),
    "fold": lambda y: F.fold(F.unfold(y, 2, stride=2), (6, 6), 2, stride=2),
    "unfold by axes": lambda y: y.unfold(2, 2, 2).unfold(3, 2, 2),
    "max pool": lambda y: F.max_pool2d(y, 2),
    "overlapping max pool": lambda y: F.max_pool2d(y, 3, 2, 1),
    "max pool with ceil": lambda y: F.max_pool2d(y, 4, 3, ceil_mode=True),
    "average pool": lambda y: F.avg_pool2d(y, 2),
    "padded average pool": lambda y: F.avg_pool2d(y, 3, 1, 1, count_include_pad=False),
    "global average": lambda y: F.adaptive_avg_pool2d(y, 1).flatten(1),
    "adaptive average": lambda y: F.adaptive_avg_pool2d(y, 3),
    "global max": lambda y: F.adaptive_max_pool2d(y, 1).flatten(1),
    "L2 pool": lambda y: F.lp_pool2d(y, 2, 2),
    "reflected": lambda y: F.pad(y, (1, 1, 1, 1), mode="reflect"),
    "replicated": lambda y: F.pad(y, (1, 2, 0, 1), mode="replicate"),
    "circular": lambda y: F.pad(y, (1, 1, 1, 1), mode="circular"),
    "padded by ones": lambda y: F.pad(y, (1, 1), value=1.0),
    "cropped": lambda y: F.pad(y, (-1, -1, -1, -1)),
    "rolled": lambda y: torch.roll(y, (1, -1), (2, 3)),
    "flipped": lambda y: y.flip(-1),
    "local response": lambda y: F.local_response_norm(y, 3),
    "softmax over places": lambda y: torch.softmax(y.flatten(2), -1).view_as(y),
    "mean and deviation": lambda y: torch.cat([y.mean((2, 3)), y.std((2, 3))], 1),
    "rotated": lambda y: torch.rot90(y, 1, (2, 3)),
    "repeated": lambda y: y.repeat_interleave(2, -1).repeat(1, 1, 2, 1),
}


def changed_map(function: Callable[[Tensor], Tensor]) -> nn.Module:
    return Written(lambda net, x: function(net.h(x)), h=ConvHighway(4, 2))


NORMS: dict[str, Callable[[], nn.Module]] = {
    "BatchNorm2d": lambda: nn.BatchNorm2d(4),
    "GroupNorm": lambda: nn.GroupNorm(2, 4),
    "GroupNorm without weights": lambda: nn.GroupNorm(2, 4, affine=False),
    "InstanceNorm2d": lambda: nn.InstanceNorm2d(4),
    "InstanceNorm2d with weights": lambda: nn.InstanceNorm2d(4, affine=True),
    "LayerNorm over a map": lambda: nn.LayerNorm([4, 6, 6]),
    "channels-last LayerNorm": lambda: Written(
        lambda net, x: net.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), norm=nn.LayerNorm(4)
    ),
}
WAVE_NORMS: dict[str, Callable[[], nn.Module]] = {
    "BatchNorm1d": lambda: nn.BatchNorm1d(4),
    "GroupNorm": lambda: nn.GroupNorm(2, 4),
    "InstanceNorm1d": lambda: nn.InstanceNorm1d(4, affine=True),
}

CONVS: dict[str, Callable[[], nn.Module]] = {
    "strided": lambda: nn.Conv2d(4, 6, 3, stride=2),
    "dilated": lambda: nn.Conv2d(4, 6, 3, dilation=2, padding=2),
    "depthwise": lambda: nn.Conv2d(4, 8, 3, groups=4, padding="same"),
    "even and same": lambda: nn.Conv2d(4, 4, 4, padding="same"),
    "reflected": lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
    "circular": lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
    "transposed": lambda: nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1),
    "transposed in groups": lambda: nn.ConvTranspose2d(4, 4, 2, groups=2, padding=1),
    "without bias": lambda: nn.Conv2d(4, 4, 1, bias=False),
}


class SqueezeAndExcite(nn.Module):
    """A highway in which a squeeze-and-excitation block weights the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.highway = ConvHighway(4, 2, nn.BatchNorm2d(4))
        self.down, self.up = nn.Conv2d(4, 2, 1), nn.Conv2d(2, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.highway(x)
        weights = self.up(F.relu(self.down(F.adaptive_avg_pool2d(y, 1))))
        scaled: Tensor = y * torch.sigmoid(weights)
        return scaled


class BatchNormBlock(nn.Module):
    """Conv, BatchNorm, ReLU, twice, and a gate: the exporter folds the norms."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(4, 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.BatchNorm2d(4),
        )
        self.gate = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x)
        mixed: Tensor = gate * F.relu(self.block(x)) + (1 - gate) * x
        return mixed


class Cbhg(nn.Module):
    """Tacotron's CBHG: a bank of convolutions, max pooling, projections, highways and a GRU."""

    def __init__(self, *, post: bool = False) -> None:
        super().__init__()
        self.bank = nn.ModuleList(
            nn.Sequential(
                nn.ConstantPad1d((k // 2, (k - 1) // 2), 0.0) if post else nn.Identity(),
                nn.Conv1d(4, 5, k, padding=0 if post else k // 2),
                nn.ReLU(),
                nn.BatchNorm1d(5),
            )
            for k in range(1, 5)
        )
        self.pool = (
            nn.Sequential(nn.ConstantPad1d((0, 1), 0.0), nn.MaxPool1d(2, 1))
            if post
            else nn.MaxPool1d(2, 1, 1)
        )
        self.projections = nn.Sequential(
            nn.Conv1d(20, 6, 3, padding=1),
            nn.BatchNorm1d(6),
            nn.ReLU(),
            nn.Conv1d(6, 4, 3, padding=1),
            nn.BatchNorm1d(4),
        )
        self.pre = nn.Linear(4, 6, bias=False)
        self.highways = nn.ModuleList(Highway(6) for _ in range(3))
        self.gru = nn.GRU(6, 6, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[-1]
        bank = torch.cat([conv(x)[:, :, :length] for conv in self.bank], 1)
        y = self.projections(self.pool(bank)[:, :, :length]) + x
        y = self.pre(y.transpose(1, 2))
        for highway in self.highways:
            y = highway(y)
        states: Tensor = self.gru(y)[0]
        return states


class CharacterCnn(nn.Module):
    """ELMo's word encoder: convolutions over characters, maxima over time, highways, a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 4, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(4, 3, width) for width in (1, 2, 3))
        self.highways = nn.ModuleList(Highway(9) for _ in range(2))
        self.projection = nn.Linear(9, 5)

    def forward(self, x: Tensor) -> Tensor:
        characters = self.embedding(x.view(-1, x.shape[-1])).transpose(1, 2)
        words = torch.cat([torch.max(F.relu(conv(characters)), dim=-1)[0] for conv in self.convs], -1)
        for highway in self.highways:
            words = highway(words)
        y: Tensor = self.projection(words).view(x.shape[0], x.shape[1], -1)
        return y


class CharacterBert(CharacterCnn):
    """With a mask of the padding, and a norm."""

    def forward(self, x: Tensor) -> Tensor:
        mask = (x.amax(-1) > 0).float().unsqueeze(-1)
        return F.layer_norm(super().forward(x), (5,)) * mask


class Causal(nn.Module):
    """A causal gated convolution, as in WaveNet: dilated, with tanh and sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(4, 8, 2, dilation=2**n) for n in range(3))
        self.norms = nn.ModuleList(nn.GroupNorm(1, 4) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            a, b = conv(F.pad(norm(x), (2**number, 0))).chunk(2, 1)
            gate = torch.sigmoid(b)
            x = gate * torch.tanh(a) + (1 - gate) * x
        return x


def u_net(net: Any, x: Tensor) -> Tensor:
    down = net.a(x)
    up = F.interpolate(net.b(F.max_pool2d(down, 2)), size=down.shape[-2:], mode="nearest")
    y: Tensor = torch.cat([down, up], 1)
    return y


WORDS = ("x:int64[batch,words,7]",)
NETWORKS = [
    *(Honest(f"map {name}", partial(changed_map, function), IMAGE) for name, function in MAPS.items()),
    *(
        Honest(f"map norm {name}", lambda make=make: with_statistics(ConvHighway(4, 2, make())), IMAGE)
        for name, make in NORMS.items()
    ),
    *(
        Honest(f"wave norm {name}", lambda make=make: with_statistics(ConvHighway(4, 1, make())), ANY_WAVE)
        for name, make in WAVE_NORMS.items()
    ),
    *(
        Honest(f"conv {name}", lambda make=make: nn.Sequential(ConvHighway(4, 2), make()), IMAGE)
        for name, make in CONVS.items()
    ),
    Honest("squeeze and excitation", lambda: with_statistics(SqueezeAndExcite()), IMAGE),
    Honest("BatchNorm folded into Conv", lambda: with_statistics(BatchNormBlock()), IMAGE),
    Honest("BatchNorm folded into Conv, opset 18", lambda: with_statistics(BatchNormBlock()), IMAGE, 18),
    Honest("CBHG", lambda: with_statistics(Cbhg()), WAVE),
    Honest("coqui's CBHG", lambda: with_statistics(Cbhg(post=True)), WAVE),
    Honest("CBHG, opened", lambda: with_statistics(Cbhg()), WAVE, open_recurrent=True),
    Honest("ELMo's characters", CharacterCnn, WORDS),
    Honest("CharacterBERT", CharacterBert, WORDS),
    Honest("WaveNet", Causal, ANY_WAVE),
    Honest("U-net", lambda: Written(u_net, a=ConvHighway(4, 2), b=ConvHighway(4, 2)), IMAGE),
]
