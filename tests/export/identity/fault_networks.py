"""Networks whose exported graphs faults are planted in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.highways.recurrent import HighwayLstm
from turnpike.models.networks.families import build_network
from turnpike.models.training.presets import find_preset


class Highway(nn.Module):
    """One layer of a highway network."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.h, self.t = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.t(x))
        return t * torch.relu(self.h(x)) + (1 - t) * x


class CharCnn(nn.Module):
    """Embeds characters, and takes the maxima over time of a convolution with padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 6)
        self.conv = nn.Conv1d(6, 6, 3, padding=1)
        self.highway = Highway(6)

    def forward(self, ids: Tensor) -> Tensor:
        maps = torch.relu(self.conv(self.embed(ids).transpose(1, 2)))
        return self.highway(maps.amax(2))


class Lstm(nn.Module):
    """An LSTM over any length, of which the last step is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 4, batch_first=True)
        self.highway = Highway(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.highway(self.lstm(x)[0][:, -1])


class MeanGru(nn.Module):
    """A GRU over any length, and the mean of its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.gru(x)[0].mean(1)


class Attention(nn.Module):
    """A causal transformer block on ids, with positions by an arange of the length, and padding by id 0."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.position = nn.Embedding(20, 8), nn.Embedding(64, 8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)
        self.highway = Highway(8)

    def forward(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        x = self.embed(ids) + self.position(torch.arange(length, device=ids.device))
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / 2.0
        causal = torch.ones(length, length, dtype=torch.bool, device=ids.device).triu(1)
        scores = scores.masked_fill(causal | (ids == 0)[:, None, None, :], float("-inf"))
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.highway(F.gelu(self.out(mixed)) + x)


class Square(nn.Module):
    """All sizes but the number of rows are 4, so that wrong axes and orders keep every shape."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.randn(4))
        self.highway = Highway(4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.mix(x).transpose(1, 2) * self.scale
        x = x.reshape(x.shape[0], 2, 2, 4).permute(0, 2, 1, 3).reshape(x.shape[0], 4, 4)
        return self.highway(x.softmax(1)) @ x


class Running(nn.Module):
    """Cumulative sums, shifted steps, and the size of the input as a number."""

    def __init__(self) -> None:
        super().__init__()
        self.highway = Highway(4)

    def forward(self, x: Tensor) -> Tensor:
        before = F.pad(x, (0, 0, 1, 0))[:, :-1]
        total = torch.cumsum(self.highway(x) + before, 1)
        return total / x.shape[1] + torch.flip(x, [1])


class OneHot(nn.Module):
    """One-hot ids, after arithmetic on integers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(12, 5)
        self.highway = Highway(5)

    def forward(self, ids: Tensor) -> Tensor:
        ids = (ids * 5 + 3) % 12
        return self.highway(self.first(F.one_hot(ids, 12).float()).sum(1))


class Branches(nn.Module):
    """One of two branches by the sum of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.highway = Highway(4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.highway(x)
        return torch.cond(x.sum() > 0, lambda y: y * 2, torch.sin, (y,))


class Sizes(nn.Module):
    """Computes with both of its sizes, and with their product."""

    def __init__(self) -> None:
        super().__init__()
        self.highway = Highway(4)

    def forward(self, x: Tensor) -> Tensor:
        rows, steps = x.shape[0], x.shape[1]
        y = self.highway(x).reshape(rows * steps, 4)
        y = y - y.sum(0) / (rows * steps)
        return y.reshape(rows, steps, 4).sum(1) * steps


@dataclass(frozen=True)
class Source:
    """How to make a network, its inputs, and whether its GRUs become loops, without their gates."""

    make: Callable[[], nn.Module]
    inputs: tuple[str, ...]
    open_recurrent: bool = False


SOURCES = {
    "dense": Source(lambda: build_network(find_preset("digits-10").config), ("x:float32[batch,1,8,8]",)),
    "chars": Source(CharCnn, ("ids:int64[batch,length]",)),
    "lstm": Source(Lstm, ("x:float32[batch,length,4]",)),
    "loop": Source(MeanGru, ("x:float32[batch,length,4]",), open_recurrent=True),
    "attention": Source(Attention, ("ids:int64[batch,6]",)),
    "square": Source(Square, ("x:float32[batch,4,4]",)),
    "running": Source(Running, ("x:float32[batch,length,4]",)),
    "one hot": Source(OneHot, ("ids:int64[batch,length]",)),
    "branches": Source(Branches, ("x:float32[batch,4]",)),
    "sizes": Source(Sizes, ("x:float32[batch,length,4]",)),
    "cell": Source(
        lambda: HighwayLstm(4),
        ("x:float32[batch,4]", "below:float32[batch,4]", "h:float32[batch,4]", "c:float32[batch,4]"),
    ),
}
