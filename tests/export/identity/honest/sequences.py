"""Sequences: ids, embeddings, positions, recurrent layers, and highways over steps."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.export.identity.honest.written import Highway, Honest, Written, WrittenForTwo

IDS = ("x:int64[batch,time]",)
FIXED_IDS = ("x:int64[batch,5]",)
STEPS = ("x:float32[batch,time,6]",)
FIXED_STEPS = ("x:float32[batch,5,6]",)
WITH_LENGTHS = ("x:float32[batch,5,6]", "other:int64[batch]")


def learned_positions(net: Any, x: Tensor) -> Tensor:
    places = torch.arange(x.shape[1], device=x.device)
    y: Tensor = net.h(net.e(x) + net.p(places))
    return y


def positions_from_a_buffer(net: Any, x: Tensor) -> Tensor:
    y: Tensor = net.h(net.e(x) + net.p.weight[: x.shape[1]])
    return y


def positions_of_tokens(net: Any, x: Tensor) -> Tensor:
    """As in fairseq: padding has no position of its own."""
    mask = x.ne(0).int()
    places = (torch.cumsum(mask, 1).type_as(mask) * mask).long()
    y: Tensor = net.h(net.e(x) + net.p(places))
    return y


def sines(net: Any, x: Tensor) -> Tensor:
    places = torch.arange(x.shape[1], dtype=torch.float32)[:, None]
    rates = torch.exp(torch.arange(0, 6, 2).float() * (-math.log(10000.0) / 6))
    waves = torch.cat([torch.sin(places * rates), torch.cos(places * rates)], -1)
    y: Tensor = net.h(net.e(x) + waves)
    return y


class SineBuffer(nn.Module):
    """The positions of "Attention Is All You Need", as PyTorch's tutorial has them."""

    def __init__(self) -> None:
        super().__init__()
        places = torch.arange(40)[:, None]
        rates = torch.exp(torch.arange(0, 6, 2) * (-math.log(10000.0) / 6))
        table = torch.zeros(40, 6)
        table[:, 0::2], table[:, 1::2] = torch.sin(places * rates), torch.cos(places * rates)
        self.table: Tensor
        self.register_buffer("table", table)
        self.embedding, self.highway = nn.Embedding(20, 6), Highway(6)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.highway(self.embedding(x) * math.sqrt(6) + self.table[: x.size(1)])
        return y


def rotary(net: Any, x: Tensor) -> Tensor:
    y = net.h(x)
    rates = 10000.0 ** (-torch.arange(0, 6, 2).float() / 6)
    angles = torch.outer(torch.arange(x.shape[1]).float(), rates)
    cos, sin = angles.cos(), angles.sin()
    a, b = y[..., 0::2], y[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def shifted_ids(net: Any, x: Tensor) -> Tensor:
    y: Tensor = net.h(net.e(x * 2 + 1))
    return y


def hashed_ids(net: Any, x: Tensor) -> Tensor:
    y: Tensor = net.h(net.e((x * 31 + 7) % 17))
    return y


def clamped_ids(net: Any, x: Tensor) -> Tensor:
    y: Tensor = net.h(net.e(x.clamp(0, 19)))
    return y


def unknown_ids(net: Any, x: Tensor) -> Tensor:
    y: Tensor = net.h(net.e(torch.where(x < 20, x, torch.ones_like(x))))
    return y


def bigrams(net: Any, x: Tensor) -> Tensor:
    before = F.pad(x[:, :-1], (1, 0))
    y: Tensor = net.h(net.e(x) + net.e(before))
    return y


def hot(net: Any, x: Tensor) -> Tensor:
    y: Tensor = net.h(F.one_hot(x, 20).float() @ net.e.weight)
    return y


def hot_by_hand(net: Any, x: Tensor) -> Tensor:
    y: Tensor = net.h((x[..., None] == torch.arange(20)).float() @ net.e.weight)
    return y


def bag(net: Any, x: Tensor) -> Tensor:
    """The mean over words that are no padding."""
    mask = (x != 0).unsqueeze(-1).float()
    y: Tensor = net.h((net.e(x) * mask).sum(1) / mask.sum(1).clamp(min=1))
    return y


def bag_of_maxima(net: Any, x: Tensor) -> Tensor:
    masked = net.h(net.e(x)).masked_fill((x == 0)[..., None], float("-inf"))
    y: Tensor = masked.max(1).values
    return y


def attended(net: Any, x: Tensor) -> Tensor:
    """Attention pooling under the mask of the ids."""
    y = net.h(net.e(x))
    scores = net.s(torch.tanh(y)).squeeze(-1).masked_fill(x == 0, float("-inf"))
    pooled: Tensor = (torch.softmax(scores, 1).unsqueeze(1) @ y).squeeze(1)
    return pooled


def attended_by_large(net: Any, x: Tensor) -> Tensor:
    """With -1e9 in place of an infinity."""
    y = net.h(net.e(x))
    scores = net.s(y).squeeze(-1) + (1.0 - (x != 0).float()) * -1e9
    pooled: Tensor = torch.einsum("bt,btc->bc", torch.softmax(scores, -1), y)
    return pooled


def tied(net: Any, x: Tensor) -> Tensor:
    """The output weights are those of the embedding."""
    return F.linear(net.h(net.e(x)), net.e.weight)


def with_words(function: Any, **parts: nn.Module) -> Any:
    return lambda: Written(
        function, e=nn.Embedding(20, 6, padding_idx=0), p=nn.Embedding(40, 6), h=Highway(6), s=nn.Linear(6, 1)
    )


def last_by_gather(net: Any, x: Tensor, other: Tensor) -> Tensor:
    states, _ = net.rnn(x)
    places = ((other - 1).clamp(min=0)).view(-1, 1, 1).expand(-1, 1, states.shape[2])
    y: Tensor = net.h(states.gather(1, places).squeeze(1))
    return y


def last_by_index(net: Any, x: Tensor, other: Tensor) -> Tensor:
    states, _ = net.rnn(x)
    y: Tensor = net.h(states[torch.arange(x.shape[0]), (other - 1).clamp(min=0)])
    return y


def last_by_hot(net: Any, x: Tensor, other: Tensor) -> Tensor:
    states, _ = net.rnn(x)
    hot = F.one_hot((other - 1).clamp(min=0), 5).float()
    y: Tensor = net.h((states * hot.unsqueeze(-1)).sum(1))
    return y


def mean_by_lengths(net: Any, x: Tensor, other: Tensor) -> Tensor:
    states, _ = net.rnn(x)
    mask = (torch.arange(x.shape[1])[None] < other[:, None]).float()
    y: Tensor = net.h((states * mask[..., None]).sum(1) / other[:, None].float())
    return y


class PackedByHand(nn.Module):
    """A GRU of cells whose state stays after the end of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.h = nn.GRUCell(6, 6), Highway(6)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 6)
        states = []
        for step in range(x.shape[1]):
            new = self.cell(x[:, step], state)
            going = (step < other)[:, None]
            state = torch.where(going, new, state)
            states.append(state * going)
        y: Tensor = self.h(torch.stack(states, 1))
        return y


class Recurrent(nn.Module):
    """A GRU, LSTM or RNN, and a highway on the states or on the last one."""

    def __init__(self, layer: nn.Module, size: int, *, last: bool = False) -> None:
        super().__init__()
        self.layer, self.highway, self.last = layer, Highway(size), last

    def forward(self, x: Tensor) -> Tensor:
        states, end = self.layer(x)
        if self.last:
            end = end[0] if isinstance(end, tuple) else end
            states = torch.cat([end[-2], end[-1]], -1)
        y: Tensor = self.highway(states)
        return y


class LearnedStart(nn.Module):
    """A recurrent layer with learned first states."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(6, 6, batch_first=True)
        self.start = nn.Parameter(torch.randn(2, 1, 1, 6))
        self.highway = Highway(6)

    def forward(self, x: Tensor) -> Tensor:
        start, cell = (part.expand(-1, x.shape[0], -1).contiguous() for part in self.start)
        y: Tensor = self.highway(self.layer(x, (start, cell))[0])
        return y


class RecurrentHighway(nn.Module):
    """A recurrent highway network: several micro-layers at each step."""

    def __init__(self, *, padded: bool = False) -> None:
        super().__init__()
        self.x = nn.Linear(6, 12)
        self.s = nn.ModuleList(nn.Linear(6, 12, bias=False) for _ in range(3))
        self.padded = padded

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(x.shape[0], 6)
        states = []
        for inputs in x.unbind(1):
            for number, layer in enumerate(self.s):
                both = layer(state) + (self.x(inputs) if number == 0 else 0)
                h, t = both.chunk(2, -1)
                t = torch.sigmoid(t - 2)
                state = t * torch.tanh(h) + (1 - t) * state
            states.append(state)
        return torch.stack(states, dim=1)


class GridLstm(nn.Module):
    """A grid LSTM of two dimensions: one cell along time, and one along depth."""

    def __init__(self) -> None:
        super().__init__()
        self.time, self.depth = nn.LSTMCell(6, 6), nn.LSTMCell(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.size(0), 6)
        outputs = []
        for step in range(x.size(1)):
            h, c = self.time(x[:, step], (h, c))
            y, memory = self.depth(h, (x[:, step], torch.tanh(x[:, step])))
            outputs.append(y + memory)
        return torch.stack(outputs, 1)


def cumulative(net: Any, x: Tensor) -> Tensor:
    counts = torch.arange(1, x.shape[1] + 1).float()[:, None]
    y: Tensor = net.h(x.cumsum(1) / counts)
    return y


def differences(net: Any, x: Tensor) -> Tensor:
    y: Tensor = net.h(torch.diff(x, dim=1))
    return y


def reversed_steps(net: Any, x: Tensor) -> Tensor:
    y: Tensor = torch.cat([net.h(x), net.h(x.flip(1)).flip(1)], -1)
    return y


def statistics(net: Any, x: Tensor) -> Tensor:
    """As in x-vectors: the mean and the standard deviation over time."""
    y = net.h(x)
    return torch.cat([y.mean(1), y.std(1), y.amax(1), y.amin(1)], -1)


RECURRENT = {
    "GRU": lambda: Recurrent(nn.GRU(6, 6, batch_first=True), 6),
    "LSTM": lambda: Recurrent(nn.LSTM(6, 6, batch_first=True), 6),
    "bidirectional GRU": lambda: Recurrent(nn.GRU(6, 5, batch_first=True, bidirectional=True), 10),
    "bidirectional LSTM of two layers": lambda: Recurrent(
        nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True), 10
    ),
    "last states of a GRU": lambda: Recurrent(
        nn.GRU(6, 5, batch_first=True, bidirectional=True), 10, last=True
    ),
    "last states of an LSTM": lambda: Recurrent(
        nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True), 10, last=True
    ),
    "GRU of three layers without biases": lambda: Recurrent(nn.GRU(6, 6, 3, bias=False, batch_first=True), 6),
}

NETWORKS = [
    Honest("learned positions", with_words(learned_positions), IDS),
    Honest("positions from a buffer", with_words(positions_from_a_buffer), IDS),
    Honest("positions of tokens", with_words(positions_of_tokens), IDS),
    Honest("sines of positions", with_words(sines), IDS),
    Honest("sines of fixed positions", with_words(sines), FIXED_IDS),
    Honest("sines in a buffer", SineBuffer, IDS),
    Honest("rotary positions", with_words(rotary), STEPS),
    Honest("rotary positions of fixed steps", with_words(rotary), FIXED_STEPS),
    Honest("shifted ids", with_words(shifted_ids), IDS),
    Honest("hashed ids", with_words(hashed_ids), IDS),
    Honest("clamped ids", with_words(clamped_ids), IDS),
    Honest("unknown ids", with_words(unknown_ids), IDS),
    Honest("ids of the word before", with_words(bigrams), IDS),
    Honest("one-hot ids", with_words(hot), IDS),
    Honest("one-hot ids by hand", with_words(hot_by_hand), IDS),
    Honest("bag of words", with_words(bag), IDS),
    Honest("maxima of words", with_words(bag_of_maxima), IDS),
    Honest("attention over words", with_words(attended), IDS),
    Honest("attention with -1e9", with_words(attended_by_large), IDS),
    Honest("tied weights", with_words(tied), IDS),
    Honest("int32 ids", with_words(shifted_ids), ("x:int32[batch,time]",)),
    Honest(
        "gather of the last step",
        lambda: WrittenForTwo(last_by_gather, rnn=nn.GRU(6, 6, batch_first=True), h=Highway(6)),
        WITH_LENGTHS,
    ),
    Honest(
        "index of the last step",
        lambda: WrittenForTwo(last_by_index, rnn=nn.GRU(6, 6, batch_first=True), h=Highway(6)),
        WITH_LENGTHS,
    ),
    Honest(
        "one-hot of the last step",
        lambda: WrittenForTwo(last_by_hot, rnn=nn.GRU(6, 6, batch_first=True), h=Highway(6)),
        WITH_LENGTHS,
    ),
    Honest(
        "mean by lengths",
        lambda: WrittenForTwo(mean_by_lengths, rnn=nn.GRU(6, 6, batch_first=True), h=Highway(6)),
        WITH_LENGTHS,
    ),
    Honest("packed by hand", PackedByHand, WITH_LENGTHS),
    *(Honest(name, make, STEPS) for name, make in RECURRENT.items()),
    *(Honest(f"{name}, opened", make, STEPS, open_recurrent=True) for name, make in RECURRENT.items()),
    Honest("RNN", lambda: Recurrent(nn.RNN(6, 6, batch_first=True), 6), FIXED_STEPS),
    Honest(
        "RNN of relu", lambda: Recurrent(nn.RNN(6, 6, nonlinearity="relu", batch_first=True), 6), FIXED_STEPS
    ),
    Honest("halved ids", with_words(lambda net, x: net.h(net.e(x // 2))), IDS),
    Honest(
        "halved ids by div",
        with_words(lambda net, x: net.h(net.e(torch.div(x, 2, rounding_mode="floor")))),
        IDS,
    ),
    Honest("time first", lambda: Recurrent(nn.GRU(6, 6), 6), ("x:float32[5,batch,6]",)),
    Honest(
        "time first, opened",
        lambda: Recurrent(nn.LSTM(6, 6), 6),
        ("x:float32[5,batch,6]",),
        open_recurrent=True,
    ),
    Honest("learned start", LearnedStart, STEPS),
    Honest("learned start, opened", LearnedStart, STEPS, open_recurrent=True),
    Honest("recurrent highway", RecurrentHighway, FIXED_STEPS),
    Honest("grid LSTM", GridLstm, FIXED_STEPS),
    Honest("running mean", with_words(cumulative), STEPS),
    Honest("differences", with_words(differences), FIXED_STEPS),
    Honest("both directions", with_words(reversed_steps), STEPS),
    Honest("statistics over time", with_words(statistics), FIXED_STEPS),
    Honest("statistics over any time", with_words(statistics), STEPS),
]
