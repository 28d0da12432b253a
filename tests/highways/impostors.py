"""Networks with sigmoids and sums that are no highways: no gates may be found in them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Impostor(nn.Module):
    """Two Linears, and a formula of them and the input."""

    def __init__(self, formula: Callable[[nn.Linear, nn.Linear, Tensor], Tensor]) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.b = nn.Linear(6, 6)
        self.formula = formula

    def forward(self, x: Tensor) -> Tensor:
        return self.formula(self.a, self.b, x)


class Average(nn.Module):
    """A learned weighting of two branches, the same for all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.alpha = nn.Parameter(torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        share = torch.sigmoid(self.alpha)
        return share * torch.relu(self.a(x)) + (1 - share) * x


class Fixed(nn.Module):
    """A weighting that a Linear computes from zeros, the same for all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.share = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        share = torch.sigmoid(self.share(torch.zeros_like(x)))
        return share * torch.relu(self.a(x)) + (1 - share) * x


class Squeezed(nn.Module):
    """A squeeze-and-excitation block in a residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.down = nn.Linear(3, 2)
        self.up = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        s = torch.sigmoid(self.up(torch.relu(self.down(y.mean((2, 3))))))
        return torch.relu(y * s[:, :, None, None] + x)


class Masked(nn.Module):
    """Keeps the old state by a mask of 0 and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        mask = (x.sum(-1, keepdim=True) > 0).to(x.dtype)
        return mask * torch.tanh(self.a(x)) + (1 - mask) * x


class GatedResidual(nn.Module):
    """The gated residual network of the temporal fusion transformer: a GLU in a normed residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.context = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        self.both = nn.Linear(6, 12)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        context = self.context(x.mean(-2, keepdim=True))
        return self.norm(x + F.glu(self.both(self.second(F.elu(self.first(x) + context)))))


class Experts(nn.Module):
    """A mixture of four experts, of which a softmax chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        self.router = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        shares = torch.softmax(self.router(x), -1)
        return torch.stack([expert(x) for expert in self.experts], -1) @ shares.unsqueeze(-1)


class Tempered(nn.Module):
    """A learned weighting by a tanh, the same for all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.alpha = nn.Parameter(torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        q = torch.tanh(self.alpha)
        return 0.5 * ((1 + q) * torch.relu(self.a(x)) + (1 - q) * x)


class Flow(nn.Module):
    """Affine coupling: one half of the units is scaled and shifted by functions of the other half."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Linear(6, 6), nn.Linear(6, 6)
        self.register_buffer("mask", torch.tensor([1.0, 0.0] * 3))

    def forward(self, x: Tensor) -> Tensor:
        kept = self.mask * x
        scaled = x * torch.sigmoid(self.scale(kept)) + self.shift(kept)
        return kept + (1 - self.mask) * scaled


class Interpolated(nn.Module):
    """Samples a sequence at computed places between its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Linear(6, 7)

    def forward(self, x: Tensor) -> Tensor:
        share, values = x - x.floor(), self.values(x)
        return (1 - share) * values[..., :-1] + share * values[..., 1:]


def entropy(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    p = torch.sigmoid(a(x))
    return p * F.logsigmoid(a(x)) + (1 - p) * F.logsigmoid(-a(x))


def exclusive_or(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    p, q = torch.sigmoid(a(x)), torch.sigmoid(b(x))
    return p * (1 - q) + q * (1 - p)


def activation(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    y = a(x)
    t = torch.sigmoid(y)
    return t * torch.tanh(y) + (1 - t) * y


def smooth_leaky_relu(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    y = a(x)
    return torch.lerp(0.25 * y, y, 0.5 + 0.5 * torch.erf(2 * y))


def attention(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    weights = torch.softmax(a(x) @ b(x).mT, dim=-1)
    return x + weights @ x


def experts(a: nn.Linear, b: nn.Linear, x: Tensor) -> Tensor:
    shares = torch.softmax(x, -1)
    return shares[..., :1] * a(x) + shares[..., 1:2] * b(x)


# shape of the input of all impostors, without the batch
SHAPE = (3, 6, 6)
IMPOSTORS: dict[str, nn.Module] = {
    "residual": Impostor(lambda a, b, x: x + torch.relu(a(x))),
    "gated residual": Impostor(lambda a, b, x: x + torch.sigmoid(a(x)) * torch.tanh(b(x))),
    "forgetting residual": Impostor(lambda a, b, x: x * torch.sigmoid(a(x)) + torch.tanh(b(x))),
    "glu": Impostor(lambda a, b, x: a(x) * torch.sigmoid(b(x))),
    "two glus": Impostor(lambda a, b, x: a(x) * torch.sigmoid(b(x)) + b(x) * torch.sigmoid(a(x))),
    "swiglu": Impostor(lambda a, b, x: x + a(x) * F.silu(b(x))),
    "gelu": Impostor(lambda a, b, x: x + F.gelu(a(x)) - F.gelu(b(x))),
    "attention": Impostor(attention),
    "soft threshold": Impostor(lambda a, b, x: x - torch.sigmoid(a(x)) * x),
    "attended": Impostor(lambda a, b, x: x + torch.sigmoid(a(x)) * x),
    "half forgotten": Impostor(
        lambda a, b, x: a(x) * torch.sigmoid(b(x)) + x - 0.5 * torch.sigmoid(b(x)) * x
    ),
    "two experts": Impostor(experts),
    "one input, two gates": Impostor(lambda a, b, x: x * torch.sigmoid(a(x)) + x * torch.sigmoid(b(x))),
    "moving average": Impostor(lambda a, b, x: 0.9 * x + (1 - 0.9) * torch.sigmoid(a(x))),
    "learned average": Average(),
    "weighting of zeros": Fixed(),
    "squeeze and excitation": Squeezed(),
    "mask": Masked(),
    "gated residual network": GatedResidual(),
    "four experts": Experts(),
    "experts in a sum": Impostor(
        lambda a, b, x: sum(
            torch.softmax(a(x), -1)[..., number, None] * torch.tanh(b(x) * number) for number in range(3)
        )
    ),
    "silu": Impostor(lambda a, b, x: F.silu(a(x)) + x),
    "silu of both": Impostor(lambda a, b, x: F.silu(a(x)) + F.silu(b(x))),
    "weighting by a tanh": Tempered(),
    "affine coupling": Flow(),
    "interpolation": Interpolated(),
    "entropy": Impostor(entropy),
    "exclusive or": Impostor(exclusive_or),
    "activation": Impostor(activation),
    "smooth leaky relu": Impostor(smooth_leaky_relu),
    "geglu": Impostor(lambda a, b, x: x + a(x) * F.gelu(b(x), approximate="tanh")),
    "film": Impostor(lambda a, b, x: (1 + torch.tanh(a(x))) * x + b(x)),
    "residual by a tanh": Impostor(lambda a, b, x: x + torch.tanh(a(x)) * (b(x) - x)),
    "rotation": Impostor(lambda a, b, x: x * torch.cos(a(x)) + x.flip(-1) * torch.sin(a(x))),
    "dropout": nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Sigmoid(), nn.Linear(6, 6)),
}


class AllImpostors(nn.Module):
    """Every impostor, in parallel on one input."""

    def __init__(self) -> None:
        super().__init__()
        self.impostors = nn.ModuleList(IMPOSTORS.values())

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(impostor(x) for impostor in self.impostors)
