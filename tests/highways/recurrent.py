"""Layers that are applied repeatedly: cells unrolled in time, and one highway used several times."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.highways.example import Example, gates_of_carry_logits, gates_of_logits, modules_named


class Gru(nn.Module):
    """A GRU cell in a loop: h' = (1 - z) n + z h."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.z = nn.Linear(inputs + size, size)
        self.r = nn.Linear(inputs + size, size)
        self.n = nn.Linear(inputs + size, size)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(x.shape[0], self.size)
        for t in range(x.shape[1]):
            both = torch.cat([x[:, t], h], dim=1)
            z, r = torch.sigmoid(self.z(both)), torch.sigmoid(self.r(both))
            n = torch.tanh(self.n(torch.cat([x[:, t], r * h], dim=1)))
            h = (1 - z) * n + z * h
        return h


class GruCells(nn.Module):
    """PyTorch's nn.GRUCell in a loop, in both directions."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.ahead = nn.GRUCell(inputs, size)
        self.back = nn.GRUCell(inputs, size)

    def forward(self, x: Tensor) -> Tensor:
        ahead = back = x.new_zeros(x.shape[0], self.size)
        for t in range(x.shape[1]):
            ahead = self.ahead(x[:, t], ahead)
        for t in reversed(range(x.shape[1])):
            back = self.back(x[:, t], back)
        return torch.cat([ahead, back], dim=-1)


class LstmCells(nn.Module):
    """Two layers of nn.LSTMCell; each time step goes through both."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.lower = nn.LSTMCell(inputs, size)
        self.upper = nn.LSTMCell(size, size)

    def forward(self, x: Tensor) -> Tensor:
        zero = x.new_zeros(x.shape[0], self.size)
        lower, upper = (zero, zero), (zero, zero)
        for x_t in x.unbind(1):
            lower = self.lower(x_t, lower)
            upper = self.upper(lower[0], upper)
        return upper[0]


class Rhn(nn.Module):
    """A recurrent highway network: micro-layers with a fused Linear [h | g]; the first reads the input."""

    def __init__(self, inputs: int, size: int, depth: int) -> None:
        super().__init__()
        self.size = size
        self.hidden_lin = nn.ModuleList(nn.Linear(size, 2 * size) for _ in range(depth))
        self.input_lin = nn.Linear(inputs, 2 * size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        s = x.new_zeros(x.shape[0], self.size)
        for t in range(x.shape[1]):
            for depth, lin in enumerate(self.hidden_lin):
                hg = lin(s) + self.input_lin(x[:, t]) if depth == 0 else lin(s)
                h = torch.tanh(hg[:, : self.size])
                g = torch.sigmoid(hg[:, self.size :])
                s = h * g + s * (1 - g)
        return s


class Janet(nn.Module):
    """An LSTM with a forget gate only; the new content has a gate of its own with a smaller logit."""

    def __init__(self, inputs: int, size: int, beta: float = 1.0) -> None:
        super().__init__()
        self.size, self.beta = size, beta
        self.forget, self.content = nn.Linear(inputs + size, size), nn.Linear(inputs + size, size)

    def forward(self, x: Tensor) -> Tensor:
        c = x.new_zeros(x.shape[0], self.size)
        for step in x.unbind(1):
            both = torch.cat([step, c], -1)
            s = self.forget(both)
            c = torch.sigmoid(s) * c + (1 - torch.sigmoid(s - self.beta)) * torch.tanh(self.content(both))
        return c


class LearnedStart(nn.Module):
    """A recurrent highway whose first state is a parameter."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.ones(size))
        self.reads, self.recurs, self.h = (nn.Linear(size, size) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        s = self.start.expand(x.shape[0], -1)
        for step in x.unbind(1):
            t = torch.sigmoid(self.reads(step) + self.recurs(s))
            s = t * torch.tanh(self.h(s)) + (1 - t) * s
        return s


class OneLogit(nn.Module):
    """A recurrent highway whose H is computed from the logit of its gate."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.reads, self.recurs = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        s = torch.zeros_like(x[:, 0])
        for step in x.unbind(1):
            z = self.reads(step) + self.recurs(s)
            t = torch.sigmoid(z)
            s = t * torch.tanh(z) + (1 - t) * s
        return s


class Shared(nn.Module):
    """One layer applied five times."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.h = nn.Linear(size, size)
        self.gate = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(5):
            t = torch.sigmoid(self.gate(x))
            x = t * torch.tanh(self.h(x)) + (1 - t) * x
        return x


class Leaky(nn.Module):
    """A leaky integrator of its input; the initial state is zero."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.gate = nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        s = x.new_zeros(x.shape[0], self.size)
        for x_t in x.unbind(1):
            t = torch.sigmoid(self.gate(x_t))
            s = (1 - t) * s + t * x_t
        return s


class Sru(nn.Module):
    """A simple recurrent unit: one Linear for all times, c in a loop, and a highway from x to h."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.all = nn.Linear(size, 3 * size)

    def forward(self, x: Tensor) -> Tensor:
        z, f, r = self.all(x).chunk(3, dim=-1)
        f, r = torch.sigmoid(f), torch.sigmoid(r)
        c = x.new_zeros(x.shape[0], self.size)
        for t in range(x.shape[1]):
            c = f[:, t] * c + (1 - f[:, t]) * z[:, t]
        return r[:, -1] * torch.tanh(c) + (1 - r[:, -1]) * x[:, -1]


EXAMPLES = [
    Example(
        "gru",
        lambda: Gru(3, 4),
        (3, 3),
        modules_named("z"),
        gates_of_carry_logits,
    ),
    Example(
        "janet",
        lambda: Janet(3, 4),
        (4, 3),
        modules_named("forget"),
        lambda logits: [1 - torch.sigmoid(logit - 1) for logit in logits],
        (("independent", "identity"),),
    ),
    Example(
        "one step",
        lambda: Leaky(4),
        (1, 4),
        modules_named("gate"),
        gates_of_logits,
        (("coupled", "projected"),),
    ),
    Example("shared", lambda: Shared(6), (6,), modules_named("gate"), gates_of_logits),
]


class HighwayLstm(nn.Module):
    """One step of a highway LSTM, which carries the cell of the layer below and its own previous cell."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.i, self.f, self.o, self.g = (nn.Linear(2 * size, size) for _ in range(4))
        self.d = nn.Linear(3 * size, size)

    def forward(self, x: Tensor, below: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([x, h], 1)
        d = torch.sigmoid(self.d(torch.cat([below, c, x], 1)))
        carried = d * below + torch.sigmoid(self.f(both)) * c
        c = carried + torch.sigmoid(self.i(both)) * torch.tanh(self.g(both))
        return torch.sigmoid(self.o(both)) * torch.tanh(c), c
