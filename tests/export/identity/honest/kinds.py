"""Half and double precision, integers, autocast, masks; several inputs and outputs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.export.identity.honest.written import Highway, Honest, Written, WrittenForTwo


class HalfWeights(nn.Module):
    """A highway whose parameters are stored in half precision."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate, self.inner = nn.Linear(6, 6).to(dtype), nn.Linear(6, 6).to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(F.linear(x, self.gate.weight.float(), self.gate.bias.float()))
        inner = F.linear(x, self.inner.weight.float(), self.inner.bias.float())
        mixed: Tensor = gate * torch.relu(inner) + (1 - gate) * x
        return mixed


class Autocast(nn.Module):
    """A highway with a part in bfloat16."""

    def __init__(self, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.dtype = dtype
        self.first, self.highway = nn.Linear(6, 6), Highway(6)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            inner = self.first(x)
        return self.highway(inner.float())


class Disabled(nn.Module):
    """A block that autocast leaves alone."""

    def __init__(self) -> None:
        super().__init__()
        self.highway = Highway(6)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            y: Tensor = self.highway(x.float())
        return y


def dictionary(net: Any, x: Tensor) -> dict[str, Tensor]:
    y = net.h(x)
    return {"logits": net.out(y), "features": y, "shares": torch.softmax(net.out(y), -1)}


def nested(net: Any, x: Tensor) -> Any:
    y = net.h(x)
    return y, (net.out(y), [y.mean(-1), y.sum(-1)])


def two_inputs(net: Any, x: Tensor, other: Tensor) -> Tensor:
    gate = torch.sigmoid(net.gate(torch.cat([x, other], -1)))
    mixed: Tensor = gate * x + (1 - gate) * other
    return mixed


def masked(net: Any, x: Tensor, other: Tensor) -> Tensor:
    return torch.where(other, net.h(x), torch.zeros_like(x))


def masked_by_product(net: Any, x: Tensor, other: Tensor) -> Tensor:
    y: Tensor = net.h(x) * other.float()
    return y.masked_fill(~other, -1e4).amax(-1)


def branches(net: Any, x: Tensor) -> Tensor:
    result: Any = torch.cond(x.sum() > 0, lambda x: torch.relu(x) + 1, torch.tanh, (net.h(x),))
    return result


class Cond(nn.Module):
    """A highway or a tanh, as the data decide."""

    def __init__(self) -> None:
        super().__init__()
        self.highway = Highway(6)

    def forward(self, x: Tensor) -> Tensor:
        def gated(x: Tensor) -> Tensor:
            y: Tensor = self.highway(x)
            return y

        def plain(x: Tensor) -> Tensor:
            return torch.tanh(x)

        result: Any = torch.cond(x.mean() > 0.1, gated, plain, (x,))
        y: Tensor = result
        return y


def double_inside(net: Any, x: Tensor) -> Tensor:
    y: Tensor = net.h(x.double()).float()
    return y


def integers(net: Any, x: Tensor) -> Tensor:
    y: Tensor = net.h(x.float() / 255)
    return y


def standardized(net: Any, x: Tensor) -> Tensor:
    y: Tensor = net.h((x - net.mean) / net.std)
    return y


PAIR = ("x:float32[batch,6]", "other:float32[batch,6]")
MASKED = ("x:float32[batch,6]", "other:bool[batch,6]")

NETWORKS = [
    Honest("bfloat16 weights", lambda: HalfWeights(torch.bfloat16)),
    Honest("float16 weights", lambda: HalfWeights(torch.float16)),
    Honest("a float16 network", lambda: Highway(6).half(), ("x:float16[batch,6]",)),
    Honest("a float64 network", lambda: Highway(6).double(), ("x:float64[batch,6]",)),
    Honest(
        "a float64 network with LayerNorm and GELU",
        lambda: Highway(6, F.gelu, nn.LayerNorm(6)).double(),
        ("x:float64[batch,6]",),
    ),
    Honest(
        "a float64 network with RMSNorm",
        lambda: Highway(6, F.silu, nn.RMSNorm(6)).double(),
        ("x:float64[batch,6]",),
    ),
    Honest(
        "a float16 network with RMSNorm",
        lambda: Highway(6, F.silu, nn.RMSNorm(6)).half(),
        ("x:float16[batch,6]",),
    ),
    Honest("double inside", lambda: Written(double_inside, h=Highway(6).double())),
    Honest("autocast in bfloat16", Autocast),
    Honest("autocast in float16", lambda: Autocast(torch.float16)),
    Honest("autocast is off", Disabled),
    Honest("bytes of an image", lambda: Written(integers, h=Highway(6)), ("x:uint8[batch,6]",)),
    Honest(
        "standardized rows",
        lambda: Written(
            standardized, h=Highway(6), mean=nn.Parameter(torch.rand(6)), std=nn.Parameter(torch.rand(6) + 1)
        ),
    ),
    Honest("dictionary of outputs", lambda: Written(dictionary, h=Highway(6), out=nn.Linear(6, 3))),
    Honest("nested outputs", lambda: Written(nested, h=Highway(6), out=nn.Linear(6, 3))),
    Honest("two inputs", lambda: WrittenForTwo(two_inputs, gate=nn.Linear(12, 6)), PAIR),
    Honest("where by a mask", lambda: WrittenForTwo(masked, h=Highway(6)), MASKED),
    Honest("maximum under a mask", lambda: WrittenForTwo(masked_by_product, h=Highway(6)), MASKED),
    Honest("cond of functions", lambda: Written(branches, h=Highway(6))),
    Honest("cond of modules", Cond),
    Honest("sorted rows", lambda: Written(lambda net, x: net.h(x.sort(-1).values), h=Highway(6))),
    Honest("topk", lambda: Written(lambda net, x: net.h(x).topk(3, -1).values, h=Highway(6))),
    Honest("argmax", lambda: Written(lambda net, x: net.h(x).argmax(-1), h=Highway(6))),
]
