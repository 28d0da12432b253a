"""Gates and ways of writing a network: units with gates, residuals, experts, heads, and indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import spectral_norm, weight_norm

from tests.export.identity.honest.written import Highway, Honest, Written

STEPS = ("x:float32[batch,time,6]",)
FIXED_STEPS = ("x:float32[batch,5,6]",)
Function = Callable[[Any, Tensor], Any]


def highway(x: Tensor, t: Tensor, h: Tensor) -> Tensor:
    return t * h + (1 - t) * x


def swiglu(net: Any, x: Tensor) -> Tensor:
    a, b = net.w(x).chunk(2, -1)
    return F.silu(a) * b


def gru_gate(net: Any, x: Tensor) -> Tensor:
    z, r = torch.sigmoid(net.a(x)), torch.sigmoid(net.b(x))
    return (1 - z) * x + z * torch.tanh(net.o(r * x))


def own_gate(net: Any, x: Tensor) -> Tensor:
    y = torch.tanh(net.a(x))
    return highway(x, torch.sigmoid(net.g(y)), y)


def joint_gate(net: Any, x: Tensor) -> Tensor:
    y = torch.relu(net.a(x))
    return highway(x, torch.sigmoid(net.o2(torch.cat([x, y], -1))), y)


def hyper_connections(net: Any, x: Tensor) -> Tensor:
    streams = torch.stack([x, net.a(x).relu(), net.b(x).tanh()])
    return torch.einsum("...k,k...c->...c", torch.softmax(net.c(x), -1), streams)


def softmax_of_gates(net: Any, x: Tensor) -> Tensor:
    shares = torch.softmax(torch.stack([net.b(x), net.g(x)], -1), -1)
    mixed: Tensor = shares[..., 0] * net.a(x) + shares[..., 1] * x
    return mixed


def coupled_by_hand(net: Any, x: Tensor) -> Tensor:
    odds = torch.exp(net.a(x))
    mixed: Tensor = odds / (1 + odds) * net.b(x) + 1 / (1 + odds) * x
    return mixed


def film(net: Any, x: Tensor) -> Tensor:
    both = net.w(x)
    mixed: Tensor = x * (1 + both[..., :6]) + both[..., 6:]
    return mixed


def entropy(net: Any, x: Tensor) -> Tensor:
    shares = torch.softmax(net.c(x), -1)
    return -(shares * (shares + 1e-9).log()).sum(-1)


def margins(net: Any, x: Tensor) -> Tensor:
    best = net.a(x).topk(2, -1).values
    difference: Tensor = best[..., 0] - best[..., 1]
    return difference


def dueling(net: Any, x: Tensor) -> Tensor:
    value, advantages = net.s(x), net.c(x)
    scores: Tensor = value + advantages - advantages.mean(-1, keepdim=True)
    return scores


def renormalized(net: Any, x: Tensor) -> Any:
    shares = torch.softmax(net.c(x), -1)
    kept = shares * (shares >= shares.topk(2, -1).values[..., -1:])
    kept = kept / kept.sum(-1, keepdim=True)
    return sum(kept[..., n : n + 1] * expert(x) for n, expert in enumerate(net.experts))


def gathered(net: Any, x: Tensor) -> Tensor:
    values, places = net.c(x).topk(2, -1)
    outputs = torch.stack([expert(x) for expert in net.experts], -2)
    chosen = outputs.gather(-2, places[..., None].expand(*places.shape, 6))
    mixed: Tensor = (values.softmax(-1)[..., None] * chosen).sum(-2)
    return mixed


def split(net: Any, x: Tensor) -> Tensor:
    a, b, c = net.h(x).split([1, 2, 3], -1)
    return torch.cat([c, a * b.sum(-1, keepdim=True)], -1)


def straight_through(net: Any, x: Tensor) -> Tensor:
    share = torch.sigmoid(net.a(x))
    return (share > 0.5).float() + share - share.detach()


def written_columns(net: Any, x: Tensor) -> Tensor:
    y = net.h(x).clone()
    y[:, 1:3] = 0.5
    y[:, 4] += y[:, 0]
    written: Tensor = y
    return written


def without_gradient(net: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        scale = torch.sigmoid(net.a(x))
    return net.h(x) * scale


def checked(net: Any, x: Tensor) -> Tensor:
    if x.dim() != 2 or x.shape[1] != 6:
        raise ValueError(f"expected rows of 6, got {list(x.shape)}")
    y: Tensor = net.h(x)
    return y


def averaged(net: Any, x: Tensor) -> Tensor:
    state = x[:, 0]
    for step in x.unbind(1)[1:]:
        state = 0.9 * state + 0.1 * net.h(step)
    return state


def recurrence(net: Any, x: Tensor) -> Tensor:
    """As in SRU: forget gates and values of all steps at once, then a loop without products."""
    forget, values = torch.sigmoid(net.a(x)), net.b(x)
    state, states = torch.zeros_like(x[:, 0]), []
    for step in range(5):
        state = forget[:, step] * state + (1 - forget[:, step]) * values[:, step]
        states.append(highway(x[:, step], torch.sigmoid(net.a(x[:, step])), state.tanh()))
    return torch.stack(states, 1)


def fast_weights(net: Any, x: Tensor) -> Tensor:
    memory = x.new_zeros(x.shape[0], 6, 6)
    for step in x.unbind(1):
        memory = 0.9 * memory + net.a(step)[:, :, None] * net.b(step)[:, None]
    y: Tensor = net.h((memory @ x[:, -1, :, None]).squeeze(-1))
    return y


UNITS: dict[str, Function] = {
    "GLU": lambda net, x: net.o(torch.sigmoid(net.a(x)) * net.b(x)),
    "ReGLU": lambda net, x: net.o(torch.relu(net.a(x)) * net.b(x)),
    "GEGLU": lambda net, x: net.o(F.gelu(net.a(x)) * net.b(x)),
    "SwiGLU": lambda net, x: net.o(F.silu(net.a(x)) * net.b(x)),
    "bilinear unit": lambda net, x: net.o(net.a(x) * net.b(x)),
    "GLU of halves": lambda net, x: F.glu(net.w(x), dim=-1),
    "SwiGLU of halves": swiglu,
    "tanh times sigmoid": lambda net, x: torch.tanh(net.a(x)) * torch.sigmoid(net.b(x)),
    "residual GLU": lambda net, x: x + torch.sigmoid(net.a(x)) * net.o(F.gelu(net.b(x))),
    "GRU gate": gru_gate,
    "input gate": lambda net, x: torch.sigmoid(net.a(x)) * x + net.b(x),
    "output gate": lambda net, x: x + torch.sigmoid(net.a(x)) * net.b(x),
    "gate of its own result": own_gate,
    "gate of both": joint_gate,
    "scalar gate": lambda net, x: highway(x, torch.sigmoid(net.s(x)), net.a(x).relu()),
    "gate without inputs": lambda net, x: highway(x, torch.sigmoid(net.p), net.a(x).relu()),
    "ReZero": lambda net, x: x + net.p * net.a(x).relu(),
    "LayerScale": lambda net, x: x + net.p.exp() * net.n(net.a(x)),
    "SkipInit": lambda net, x: x + net.p[0] * net.a(x).relu(),
    "hyper-connections": hyper_connections,
    "softmax of gates": softmax_of_gates,
    "a gate by where": lambda net, x: torch.where(torch.sigmoid(net.a(x)) > 0.5, net.b(x), x),
    "a gate by lerp": lambda net, x: torch.lerp(x, net.b(x).tanh(), torch.sigmoid(net.a(x))),
    "a gate by addcmul": lambda net, x: torch.addcmul(x, torch.sigmoid(net.a(x)), net.b(x).tanh() - x),
    "coupled by hand": coupled_by_hand,
    "stochastic depth in eval": lambda net, x: x + F.dropout(net.a(x), 0.3, net.training),
    "AlphaDropout in eval": lambda net, x: F.selu(F.alpha_dropout(net.a(x), 0.1, net.training)),
    "FiLM": film,
    "feature attention": lambda net, x: x * torch.softmax(net.a(x), -1) * 6,
    "cross layer": lambda net, x: x * net.a(x) + x,
    "factorization machine": lambda net, x: (
        0.5 * ((x @ net.m).pow(2) - x.pow(2) @ net.m.pow(2)).sum(-1, keepdim=True)
    ),
    "outer product": lambda net, x: net.h(x).unsqueeze(-1).mul(x.unsqueeze(-2)).flatten(-2),
    "radial basis": lambda net, x: torch.exp(-((x.unsqueeze(-2) - net.m.t()) ** 2).sum(-1)),
    "distances to prototypes": lambda net, x: (net.h(x)[..., None, :] - net.m.t()).pow(2).sum(-1).sqrt(),
    "cosine head": lambda net, x: (
        10 * F.linear(F.normalize(net.h(x), dim=-1), F.normalize(net.a.weight, dim=1))
    ),
    "log-softmax head": lambda net, x: F.log_softmax(net.c(net.h(x)), dim=-1),
    "ordinal head": lambda net, x: torch.exp(torch.cumsum(F.logsigmoid(net.c(net.h(x))), -1)),
    "hierarchical head": lambda net, x: torch.softmax(net.c(x), -1)[..., :1] * torch.softmax(net.a(x), -1),
    "temperature head": lambda net, x: torch.softmax(net.c(net.h(x)) / net.p[0].exp(), -1),
    "mixture density head": lambda net, x: (
        torch.softmax(net.c(x), -1),
        net.a(x),
        F.softplus(net.b(x)) + 1e-3,
    ),
    "quantile head": lambda net, x: torch.cumsum(F.softplus(net.c(net.h(x))), -1),
    "logsumexp head": lambda net, x: torch.logsumexp(net.c(net.h(x)), -1),
    "entropy": entropy,
    "margins of the best two": margins,
    "dueling heads": dueling,
    "reparametrized mean": lambda net, x: net.o(net.a(x) + torch.exp(0.5 * net.b(x)) * net.p),
    "normed matrices": lambda net, x: F.linear(x, net.a.weight / net.a.weight.norm(dim=1, keepdim=True)),
    "standardized weights": lambda net, x: F.linear(
        x, (net.a.weight - net.a.weight.mean(1, keepdim=True)) / (net.a.weight.std(1, keepdim=True) + 1e-5)
    ),
    "low-rank weights": lambda net, x: net.a(x) + x @ net.m @ net.m.t() * 0.5,
    "a symmetric matrix": lambda net, x: x @ (net.a.weight + net.a.weight.t()) / 2,
    "a triangular matrix": lambda net, x: x @ net.a.weight.tril(),
    "a masked matrix": lambda net, x: F.linear(x, net.a.weight * (torch.arange(36).view(6, 6) % 2)),
    "tied weights": lambda net, x: F.linear(torch.relu(net.a(net.h(x))), net.a.weight.t()),
    "the same layer three times": lambda net, x: net.h(net.h(net.h(x))),
}
EXPERTS: dict[str, Function] = {
    "softmax": lambda net, x: torch.einsum(
        "...e,...ec->...c",
        torch.softmax(net.c(x), -1),
        torch.stack([expert(x) for expert in net.experts], -2),
    ),
    "sigmoid": lambda net, x: sum(
        torch.sigmoid(net.c(x)[..., n : n + 1]) * expert(x) for n, expert in enumerate(net.experts)
    ),
    "the best": lambda net, x: sum(
        (net.c(x).argmax(-1, keepdim=True) == n).float() * expert(x) for n, expert in enumerate(net.experts)
    ),
    "the best by one_hot": lambda net, x: (
        F.one_hot(net.c(x).argmax(-1), 3).float()[..., None]
        * torch.stack([expert(x) for expert in net.experts], -2)
    ).sum(-2),
    "renormalized topk": renormalized,
    "gathered": gathered,
    "of matrices": lambda net, x: torch.einsum(
        "...e,eoc,...c->...o",
        torch.softmax(net.c(x), -1),
        torch.stack([e[0].weight for e in net.experts]),
        x,
    ),
}
WAYS: dict[str, Function] = {
    "slices with steps": lambda net, x: torch.cat([x[:, ::2], net.h(x)[:, 1::2]], -1),
    "slices from the end": lambda net, x: net.h(x)[:, -4:-1],
    "a list of indices": lambda net, x: net.h(x)[:, [5, 0, 3]],
    "a permutation in a buffer": lambda net, x: net.h(x)[:, torch.tensor([5, 4, 3, 2, 1, 0])],
    "index_select": lambda net, x: net.h(x).index_select(1, torch.tensor([1, 1, 4])),
    "a mask of columns": lambda net, x: net.h(x)[:, torch.tensor([True, False, True, True, False, False])],
    "an ellipsis and a new axis": lambda net, x: net.h(x)[..., None, 1:],
    "columns written in place": written_columns,
    "columns added in place": lambda net, x: net.h(x).clone().index_add_(1, torch.tensor([0, 2]), x[:, :2]),
    "columns scattered": lambda net, x: torch.zeros_like(x).scatter(
        1, net.c(x).argmax(-1, keepdim=True), 1.0
    ),
    "columns swapped": lambda net, x: net.h(torch.stack([x[:, 3:], x[:, :3]], 1).flatten(1)),
    "split of sizes": split,
    "tensor_split": lambda net, x: torch.cat(torch.tensor_split(net.h(x), 4, -1)[::-1], -1),
    "unbind and stack": lambda net, x: torch.stack(
        [part * n for n, part in enumerate(net.h(x).unbind(-1))], -1
    ),
    "view as pairs": lambda net, x: net.h(x).view(-1, 3, 2).prod(-1),
    "movedim": lambda net, x: net.h(x).view(-1, 2, 3).movedim(1, 2).reshape(-1, 6),
    "tile": lambda net, x: net.h(x).tile(1, 2),
    "meshgrid": lambda net, x: (
        net.h(x) @ torch.stack(torch.meshgrid(torch.arange(6.0), torch.arange(2.0), indexing="ij")).sum(0)
    ),
    "roll": lambda net, x: net.h(x) + x.roll(1, -1),
    "flip": lambda net, x: net.h(x) * x.flip(-1),
    "cumsum": lambda net, x: net.h(x).cumsum(-1),
    "exclusive cumsum": lambda net, x: net.h(x).cumsum(-1) - net.h(x),
    "diff": lambda net, x: torch.diff(net.h(x), dim=-1, prepend=x[:, :1]),
    "median of five": lambda net, x: net.h(x)[:, :5].sort(-1).values[:, 2],
    "second largest": lambda net, x: net.h(x).topk(2, -1).values[:, 1],
    "largest and smallest": lambda net, x: torch.cat(
        [net.h(x).max(-1, keepdim=True).values, net.h(x).min(-1, keepdim=True).values], -1
    ),
    "argmin": lambda net, x: net.h(x).argmin(-1),
    "order": lambda net, x: net.h(x).argsort(-1, descending=True),
    "topk places": lambda net, x: net.h(x).topk(3, -1).indices,
    "bucketize": lambda net, x: net.h(net.e(torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0]))).sum(-2)),
    "buckets by hand": lambda net, x: net.h(
        net.e((x[..., None] > torch.tensor([-1.0, 0.0, 1.0])).sum(-1)).mean(-2)
    ),
    "buckets by floor": lambda net, x: net.h(net.e(((x + 2).floor().clamp(0, 7)).long()).mean(-2)),
    "clamp by tensors": lambda net, x: torch.clamp(net.h(x), min=-net.p.abs(), max=net.p.abs()),
    "maximum and minimum": lambda net, x: torch.maximum(torch.minimum(net.h(x), x), net.p),
    "where of several": lambda net, x: torch.where((x > 0) & (x < 1), net.h(x), torch.where(x <= 0, x, 1.0)),
    "logical operators": lambda net, x: net.h(x) * ((x > 0) ^ (net.h(x) > 0)).logical_not(),
    "any and all": lambda net, x: torch.where(
        (x > 0).any(-1, keepdim=True) & (x < 9).all(-1, keepdim=True), net.h(x), x
    ),
    "isnan": lambda net, x: net.h(torch.where(torch.isnan(x), net.p, x)),
    "missing values": lambda net, x: net.h(torch.nan_to_num(x, nan=0.0)) + torch.isnan(x).float(),
    "clipped logs": lambda net, x: net.h(torch.sign(x) * torch.log1p(x.abs())),
    "scaled to a range": lambda net, x: net.h((x - net.p) / (net.p.abs() + 1)).clamp(-3, 3),
    "ratio features": lambda net, x: net.h(torch.cat([x[:, :3], x[:, 3:] / (x[:, :3].abs() + 1)], -1)),
    "periodic features": lambda net, x: net.o2(torch.cat([torch.sin(x * net.p), torch.cos(x * net.p)], -1)),
    "polynomial features": lambda net, x: net.o2(torch.cat([x, x**2], -1)) + x**3,
    "pairs of columns": lambda net, x: (
        net.h(x)[:, torch.triu_indices(6, 6, 1)[0]] * x[:, torch.triu_indices(6, 6, 1)[1]]
    ),
    "einsum of a trace": lambda net, x: torch.einsum("bi,ij,bj->b", x, net.a.weight, net.h(x)),
    "einsum of outer products": lambda net, x: torch.einsum("bi,bj->bij", x, net.h(x)),
    "tensordot": lambda net, x: torch.tensordot(net.h(x), net.a.weight, dims=([1], [0])),
    "kron by hand": lambda net, x: (net.h(x)[:, :, None] * x[:, None, :3]).reshape(-1, 18),
    "baddbmm": lambda net, x: torch.baddbmm(
        x[:, None], net.h(x)[:, None], net.a.weight.expand(x.shape[0], 6, 6), beta=0.5, alpha=2
    ),
    "addmm": lambda net, x: torch.addmm(net.p, x, net.a.weight, beta=0.5, alpha=2.0),
    "norms": lambda net, x: torch.stack([net.h(x).norm(dim=-1), net.h(x).norm(1, -1)], -1),
    "variance": lambda net, x: torch.cat([net.h(x).var(-1, keepdim=True), x.std(-1, keepdim=True)], -1),
    "var_mean": lambda net, x: torch.stack(torch.var_mean(net.h(x), -1), -1),
    "double softmax": lambda net, x: torch.softmax(torch.softmax(net.a(x), -1) * 6, -1),
    "gumbel by hand": lambda net, x: (net.a(x).softmax(-1) == net.a(x).softmax(-1).amax(-1, True)).float(),
    "straight-through": straight_through,
    "no_grad inside": without_gradient,
    "constant tensors": lambda net, x: net.h(x) * torch.tensor([1.0, 2, 3, 4, 5, 6]) + torch.full((6,), 0.1),
    "new_tensor": lambda net, x: net.h(x) + x.new_ones(6) * x.new_full((1,), 0.25),
    "sizes in the sum": lambda net, x: net.h(x) / x.shape[-1] ** 0.5,
    "expanded parameters": lambda net, x: torch.cat([net.p.expand(x.shape[0], -1), net.h(x)], -1),
    "squeezed": lambda net, x: net.s(net.h(x)).squeeze(-1),
    "literals": lambda net, x: net.h(0.3 * x + 0.7) - 1e-3,
    "asserts": checked,
    "to the dtype": lambda net, x: net.h(x.to(net.a.weight.dtype)).type_as(x),
    "integers of floats": lambda net, x: net.h(x) + x.int().float(),
    "powers": lambda net, x: net.h(x).abs().add(1).pow(net.p.abs()),
    "reciprocals": lambda net, x: net.h(x).abs().add(1).reciprocal() + x.square().add(1).rsqrt(),
    "clamped exponentials": lambda net, x: net.h(x.clamp(max=5).exp()).clamp_min(0.0),
    "prelu by hand": lambda net, x: torch.relu(net.h(x)) - net.p * torch.relu(-net.h(x)),
}
TIMES: dict[str, Function] = {
    "windows": lambda net, x: net.h(x).unfold(1, 2, 1).mean(-1),
    "stacked frames": lambda net, x: torch.cat([x[:, :-2], x[:, 1:-1], net.h(x)[:, 2:]], -1),
    "causal mean": lambda net, x: net.h(x).cumsum(1) / torch.arange(1, 6).view(1, -1, 1),
    "moving average by a convolution": lambda net, x: F.conv1d(
        net.h(x).transpose(1, 2), torch.full((6, 1, 3), 1 / 3), padding=1, groups=6
    ),
    "moving average by a pool": lambda net, x: F.avg_pool1d(net.h(x).transpose(1, 2), 3, 1, 1),
    "pool of the greatest": lambda net, x: net.h(x).transpose(1, 2).topk(2, -1).values.flatten(1),
    "token shift": lambda net, x: net.h(0.5 * x + 0.5 * F.pad(x, (0, 0, 1, -1))),
    "mixed tokens": lambda net, x: net.h(x) + F.gelu(net.t(x.transpose(1, 2))).transpose(1, 2),
    "first minus last": lambda net, x: net.h(x[:, 0] - x[:, -1]),
    "exponential average": averaged,
    "linear recurrence": recurrence,
    "matrix memory": fast_weights,
    "pairs of steps": lambda net, x: net.h(x[:, :, None] - x[:, None]).mean((1, 2)),
    "subsampled": lambda net, x: net.h(x[:, ::2].flatten(1)[:, :6]),
    "center of mass": lambda net, x: (net.s(x).softmax(1) * torch.arange(5.0)[:, None]).sum(1),
}


def parts() -> dict[str, Any]:
    linears = {name: nn.Linear(6, 6) for name in "abgo"}
    return {
        **linears,
        "w": nn.Linear(6, 12),
        "o2": nn.Linear(12, 6),
        "s": nn.Linear(6, 1),
        "c": nn.Linear(6, 3),
        "t": nn.Linear(5, 5),
        "n": nn.LayerNorm(6),
        "p": nn.Parameter(torch.randn(6)),
        "m": nn.Parameter(torch.randn(6, 4)),
        "e": nn.Embedding(9, 6),
        "h": Highway(6),
        "experts": nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3)),
    }


def written(function: Function) -> Callable[[], nn.Module]:
    return lambda: Written(function, **parts())


def normed(norm: Callable[[nn.Module], nn.Module]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        net = Highway(6)
        net.gate, net.inner = norm(net.gate), norm(net.inner)  # type: ignore[assignment]
        return net

    return make


NORMS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "weight_norm of the old kind": weight_norm,
    "weight_norm of everything": lambda layer: weight_norm(layer, dim=None),
    "spectral_norm of the old kind": spectral_norm,
}
NETWORKS = [
    *(Honest(f"unit {name}", written(function)) for name, function in UNITS.items()),
    *(Honest(f"experts, {name}", written(function)) for name, function in EXPERTS.items()),
    *(Honest(f"way {name}", written(function)) for name, function in WAYS.items()),
    *(Honest(f"time {name}", written(function), FIXED_STEPS) for name, function in TIMES.items()),
    *(
        Honest(f"experts over steps, {name}", written(EXPERTS[name]), STEPS)
        for name in ("softmax", "the best by one_hot")
    ),
    *(Honest(f"{name}", normed(norm)) for name, norm in NORMS.items()),
]
