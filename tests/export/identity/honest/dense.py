"""Dense highways: activations, gates and norms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.export.identity.honest.written import ROWS, Highway, Honest, Written, with_statistics

Unary = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Unary] = {
    "gelu": F.gelu,
    "gelu by tanh": partial(F.gelu, approximate="tanh"),
    "gelu by hand": lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5)),
    "quick gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "selu": F.selu,
    "celu": partial(F.celu, alpha=0.7),
    "elu": F.elu,
    "elu of 0.3": partial(F.elu, alpha=0.3),
    "mish": F.mish,
    "mish by hand": lambda x: x * torch.tanh(F.softplus(x)),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "softplus": F.softplus,
    "softplus of 2": partial(F.softplus, beta=2.0),
    "softplus by hand": lambda x: torch.log(1 + torch.exp(x)),
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "log sigmoid": F.logsigmoid,
    "leaky relu": F.leaky_relu,
    "relu6": F.relu6,
    "silu": F.silu,
    "squared relu": lambda x: torch.relu(x) ** 2,
    "sine": torch.sin,
    "cosine": torch.cos,
    "swish with a parameter": lambda x: x * torch.sigmoid(0.7 * x),
    "softmin": lambda x: F.softmin(x, dim=-1),
    "clamp": lambda x: x.clamp(-2, 3),
    "clamp at least": lambda x: x.clamp(min=0.1),
    "arcsinh": torch.asinh,
    "log1p of relu": lambda x: torch.log1p(torch.relu(x)),
    "expm1": torch.expm1,
    "exp2": torch.exp2,
    "log2": lambda x: torch.log2(x.abs() + 1),
    "log10": lambda x: torch.log10(x.abs() + 1),
    "cube root": lambda x: x.abs().pow(1 / 3),
    "square root of the sum": lambda x: torch.sqrt(x * x + 1),
    "signed square root": lambda x: x.sign() * (x.abs() + 1e-6).sqrt(),
    "atan2": lambda x: torch.atan2(x, x.abs() + 1),
    "sinc": torch.sinc,
    "logit": lambda x: torch.logit(torch.sigmoid(x).clamp(0.1, 0.9)),
    "round": torch.round,
    "fraction": torch.frac,
    "logaddexp": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "nan to num": torch.nan_to_num,
    "floor": torch.floor,
    "whole part": torch.trunc,
    "quotient in floor": lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    "quotient in trunc": lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
    "remainder": lambda x: torch.remainder(x, 0.3),
    "heaviside": lambda x: (x > 0).float(),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
}
GATES: dict[str, Unary] = {
    "hard sigmoid": F.hardsigmoid,
    "clamped": lambda z: (0.2 * z + 0.5).clamp(0, 1),
    "by exp": lambda z: 1 / (1 + torch.exp(-z)),
    "by tanh": lambda z: 0.5 * (torch.tanh(0.5 * z) + 1),
    "in double": lambda z: torch.sigmoid(z.double()).float(),
    "softmax of two": lambda z: torch.softmax(torch.stack([z, torch.zeros_like(z)]), 0)[0],
    "with a temperature": lambda z: torch.sigmoid(z / 0.7),
    "binary": lambda z: (torch.sigmoid(z) > 0.5).to(z.dtype),
    "normalized": lambda z: torch.sigmoid(F.normalize(z, dim=-1)),
    "normalized in L1": lambda z: torch.sigmoid(F.normalize(z, p=1, dim=-1)),
    "normalized in max": lambda z: torch.sigmoid(F.normalize(z, p=float("inf"), dim=-1)),
    "normalized by hand": lambda z: torch.sigmoid(z / z.norm(dim=-1, keepdim=True).clamp_min(1e-12)),
    "standardized": lambda z: torch.sigmoid(
        (z - z.mean(-1, keepdim=True)) / (z.std(-1, keepdim=True) + 1e-5)
    ),
    "exp of log sigmoid": lambda z: torch.exp(F.logsigmoid(z)),
    "1 - exp of -softplus": lambda z: 1 - torch.exp(-F.softplus(z)),
}
NORMS: dict[str, Callable[[], nn.Module]] = {
    "RMSNorm": lambda: nn.RMSNorm(6),
    "RMSNorm with eps": lambda: nn.RMSNorm(6, eps=1e-6),
    "RMSNorm without weights": lambda: nn.RMSNorm(6, elementwise_affine=False),
    "LayerNorm": lambda: nn.LayerNorm(6),
    "LayerNorm without parameters": lambda: nn.LayerNorm(6, elementwise_affine=False),
    "LayerNorm without bias": lambda: nn.LayerNorm(6, bias=False),
    "GroupNorm": lambda: nn.GroupNorm(2, 6),
    "BatchNorm1d": lambda: nn.BatchNorm1d(6),
    "BatchNorm1d without weights": lambda: nn.BatchNorm1d(6, affine=False),
    "norm by hand": lambda: Written(
        lambda net, x: net.g * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
        g=nn.Parameter(torch.rand(6)),
    ),
    "LayerNorm by hand": lambda: Written(
        lambda net, x: (
            net.g * (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        ),
        g=nn.Parameter(torch.rand(6)),
    ),
    "LayerNorm in float": lambda: Written(
        lambda net, x: F.layer_norm(x.float(), (6,), net.g.float()).type_as(x), g=nn.Parameter(torch.rand(6))
    ),
}


class Gated(nn.Module):
    """A highway with this gate of its logits."""

    def __init__(self, squash: Unary) -> None:
        super().__init__()
        self.squash = squash
        self.gate, self.inner = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.squash(self.gate(x))
        mixed: Tensor = gate * torch.tanh(self.inner(x)) + (1 - gate) * x
        return mixed


class Batched(nn.Module):
    """Linear, BatchNorm and highway layers: the exporter may fold the norms into the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)
        self.highway = Highway(6, torch.tanh, nn.BatchNorm1d(6))
        self.gate, self.gate_norm = nn.Linear(6, 6), nn.BatchNorm1d(6, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.highway(torch.relu(self.norm(self.first(x))))
        gate = torch.sigmoid(self.gate_norm(self.gate(x)))
        mixed: Tensor = gate * torch.relu(x) + (1 - gate) * x
        return mixed


def cosine(net: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([x, F.cosine_similarity(x, torch.tanh(x), dim=-1)[:, None]], -1)


def distance(net: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([x, F.pairwise_distance(x, torch.tanh(x))[:, None]], -1)


def weight_normed() -> nn.Module:
    net = Highway(6)
    net.gate = parametrizations.weight_norm(net.gate)
    net.inner = parametrizations.weight_norm(net.inner, dim=1)
    return net


def spectral_normed() -> nn.Module:
    net = Highway(6)
    net.gate = parametrizations.spectral_norm(net.gate)
    return net


def experts(net: nn.Module, x: Tensor) -> Tensor:
    """Three experts, mixed by a softmax."""
    shares = torch.softmax(net.router(x), -1)
    outputs = torch.stack([expert(x) for expert in net.experts], 1)
    return (shares[..., None] * outputs).sum(1)


def best_two_experts(net: nn.Module, x: Tensor) -> Tensor:
    """Only the best two count."""
    logits = net.router(x)
    best = logits.topk(2, -1).values[:, 1:]
    shares = torch.softmax(logits.masked_fill(logits < best, float("-inf")), -1)
    outputs = torch.stack([expert(x) for expert in net.experts], 1)
    return (shares[..., None] * outputs).sum(1)


def _with_experts(function: Callable[..., Tensor]) -> nn.Module:
    experts = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), Highway(6)) for _ in range(3))
    return Written(function, router=nn.Linear(6, 3), experts=experts)


class Maxout(nn.Module):
    """The largest of three linear pieces, with a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces, self.gate = nn.Linear(6, 18), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return torch.lerp(x, self.pieces(x).view(-1, 6, 3).max(-1).values, gate)


def after_gelu(approximate: str) -> nn.Module:
    """A GELU on the input itself, then a highway."""
    return nn.Sequential(nn.GELU(approximate), Highway(6, F.gelu))


NETWORKS = [
    *(Honest(f"activation {name}", partial(Highway, 6, function)) for name, function in ACTIVATIONS.items()),
    *(Honest(f"gate {name}", partial(Gated, function)) for name, function in GATES.items()),
    *(
        Honest(f"norm {name}", lambda make=make: with_statistics(Highway(6, torch.relu, make())))
        for name, make in NORMS.items()
    ),
    Honest("BatchNorm folded into Linear", lambda: with_statistics(Batched())),
    Honest("gelu before the first highway", partial(after_gelu, "none")),
    Honest("gelu by tanh before the first highway", partial(after_gelu, "tanh")),
    Honest("gelu in opset 18", partial(after_gelu, "none"), opset=18),
    Honest("gelu by tanh in opset 18", partial(after_gelu, "tanh"), opset=18),
    Honest("mish in opset 18", partial(Highway, 6, F.mish), opset=18),
    Honest("RMSNorm in opset 18", lambda: Highway(6, F.silu, nn.RMSNorm(6)), opset=18),
    Honest("GroupNorm in opset 18", lambda: Highway(6, F.silu, nn.GroupNorm(2, 6)), opset=18),
    Honest("RMSNorm in opset 21", lambda: Highway(6, F.silu, nn.RMSNorm(6)), opset=21),
    Honest("RMSNorm in opset 23", lambda: Highway(6, F.silu, nn.RMSNorm(6)), opset=23),
    Honest("PReLU", lambda: Highway(6, nn.PReLU())),
    Honest("PReLU of each channel", lambda: Highway(6, nn.PReLU(6, init=0.3))),
    Honest("GLU", lambda: nn.Sequential(nn.Linear(6, 12), nn.GLU(), Highway(6))),
    Honest(
        "bilinear gate",
        lambda: Written(lambda net, x: torch.sigmoid(net.gate(x, x)) * x, gate=nn.Bilinear(6, 6, 6)),
    ),
    Honest("cosine similarity", lambda: Written(cosine)),
    Honest("pairwise distance", lambda: Written(distance)),
    Honest("weight norm", weight_normed),
    Honest("spectral norm", spectral_normed),
    Honest("softmax of experts", lambda: _with_experts(experts)),
    Honest("best two experts", lambda: _with_experts(best_two_experts)),
    Honest("maxout", Maxout),
    Honest("log softmax", lambda: nn.Sequential(Highway(6), nn.Linear(6, 3), nn.LogSoftmax(-1))),
    Honest(
        "log of softmax", lambda: Written(lambda net, x: torch.log(torch.softmax(net.h(x), -1)), h=Highway(6))
    ),
    Honest(
        "softmax over a sum",
        lambda: Written(lambda net, x: net.h(x).exp() / net.h(x).exp().sum(-1, keepdim=True), h=Highway(6)),
    ),
    Honest(
        "stable softmax by hand",
        lambda: Written(
            lambda net, x: torch.exp(net.h(x) - torch.logsumexp(net.h(x), -1, keepdim=True)), h=Highway(6)
        ),
    ),
    Honest("plain twin", lambda: nn.Sequential(Highway(6), Highway(6, F.gelu)), plain=True),
    Honest("one row", lambda: Highway(6), ("x:float32[1,6]",)),
    Honest("any leading axes", lambda: Highway(6), ("x:float32[batch,time,6]",)),
    Honest("a single vector", lambda: Highway(6), ("x:float32[6]",)),
    Honest("opset 18", lambda: nn.Sequential(Highway(6), Highway(6, F.gelu)), (ROWS,), 18),
]
