"""Positions, masks and pooling of sequences, as attention and encoders of texts have them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.export.identity.honest.written import Highway, Honest, Written, WrittenForTwo

HEADS, SIZE = 2, 8
STEPS = ("x:float32[batch,time,8]",)
FIXED_STEPS = ("x:float32[batch,5,8]",)
WITH_LENGTHS = ("x:float32[batch,5,8]", "other:int64[batch]")
WITH_ANY_LENGTHS = ("x:float32[batch,time,8]", "other:int64[batch]")


def projected(net: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of two heads: rows, heads, steps, features."""
    q, k, v = net.qkv(x).view(x.shape[0], x.shape[1], 3, HEADS, SIZE // HEADS).permute(2, 0, 3, 1, 4)
    return q, k, v


def attend(net: Any, x: Tensor, bias: Tensor | None = None, q: Any = None, k: Any = None) -> Tensor:
    """Softmax attention with a bias of the scores."""
    plain_q, plain_k, v = projected(net, x)
    q, k = (plain_q if q is None else q), (plain_k if k is None else k)
    scores = q @ k.transpose(-2, -1) / math.sqrt(SIZE // HEADS)
    scores = scores if bias is None else scores + bias
    mixed: Tensor = net.h((torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2))
    return mixed


def distances(x: Tensor) -> Tensor:
    places = torch.arange(x.shape[1])
    return places[None, :] - places[:, None]


def alibi(net: Any, x: Tensor) -> Tensor:
    slopes = torch.tensor([2.0**-4, 2.0**-8])
    return attend(net, x, -distances(x).abs() * slopes[:, None, None])


def causal_alibi(net: Any, x: Tensor) -> Tensor:
    slopes = torch.tensor([0.5, 0.25])[:, None, None]
    bias = (distances(x) * slopes).masked_fill(distances(x) > 0, float("-inf"))
    return attend(net, x, bias)


def relative_bias(net: Any, x: Tensor) -> Tensor:
    """As in Swin: a table of biases for each distance."""
    places = (distances(x) + 4).clamp(0, 8)
    return attend(net, x, net.table(places).permute(2, 0, 1))


def relative_buckets(net: Any, x: Tensor) -> Tensor:
    """As in T5: near distances have buckets of their own, and far ones share them by their logarithm."""
    far = distances(x).abs()
    large = 3 + (torch.log(far.clamp(min=1).float() / 3) / math.log(20 / 3) * 2).long()
    buckets = torch.where(far < 3, far, large.clamp(max=4)) + (distances(x) > 0).long() * 4
    return attend(net, x, net.table(buckets).permute(2, 0, 1))


def relative_keys(net: Any, x: Tensor) -> Tensor:
    """As in Shaw et al.: an embedding of the distance is added to each key."""
    q, _, _ = projected(net, x)
    keys = net.keys((distances(x) + 4).clamp(0, 8))
    return attend(net, x, torch.einsum("bhqd,qkd->bhqk", q, keys))


def decay(net: Any, x: Tensor) -> Tensor:
    """As in RetNet: scores fall with the distance, without a softmax."""
    q, k, v = projected(net, x)
    powers = torch.pow(torch.tensor([0.5, 0.75])[:, None, None], distances(x).abs().float())
    mixed: Tensor = net.h((q @ k.transpose(-2, -1) * powers @ v).transpose(1, 2).flatten(2))
    return mixed


def angles(x: Tensor, pairs: int) -> Tensor:
    rates = 1.0 / (10000 ** (torch.arange(0, 2 * pairs, 2).float() / (2 * pairs)))
    return torch.arange(x.shape[1]).float()[:, None] * rates


def rotated_halves(y: Tensor, turn: Tensor) -> Tensor:
    """As in GPT-NeoX: the second half of the features is the imaginary part."""
    a, b = y.chunk(2, -1)
    turn = torch.cat([turn, turn], -1)
    return y * turn.cos() + torch.cat([-b, a], -1) * turn.sin()


def rotated_pairs(y: Tensor, turn: Tensor) -> Tensor:
    """As in GPT-J: odd features are imaginary parts."""
    a, b = y[..., ::2], y[..., 1::2]
    return torch.stack([a * turn.cos() - b * turn.sin(), b * turn.cos() + a * turn.sin()], -1).flatten(-2)


def rotary(turned: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    def function(net: Any, x: Tensor) -> Tensor:
        q, k, _ = projected(net, x)
        turn = angles(x, SIZE // HEADS // 2)
        return attend(net, x, q=turned(q, turn), k=turned(k, turn))

    return function


def partial_rotary(net: Any, x: Tensor) -> Tensor:
    q, k, _ = projected(net, x)
    turn = angles(x, 1)
    q, k = (torch.cat([rotated_halves(y[..., :2], turn), y[..., 2:]], -1) for y in (q, k))
    return attend(net, x, q=q, k=k)


def local(net: Any, x: Tensor) -> Tensor:
    far = distances(x).abs() > 1
    return attend(net, x, torch.zeros(x.shape[1], x.shape[1]).masked_fill(far, float("-inf")))


def normalized_queries(net: Any, x: Tensor) -> Tensor:
    q, k, _ = projected(net, x)
    return attend(net, x, q=F.normalize(q, dim=-1) * net.scale, k=F.normalize(k, dim=-1))


def shared_keys(net: Any, x: Tensor) -> Tensor:
    """Multi-query attention: all heads have the keys of the first."""
    _, k, _ = projected(net, x)
    return attend(net, x, k=k[:, :1])


def repeated_keys(net: Any, x: Tensor) -> Tensor:
    _, k, _ = projected(net, x)
    return attend(net, x, k=k[:, :1].repeat_interleave(HEADS, 1))


def gated_values(net: Any, x: Tensor) -> Tensor:
    return attend(net, x) * torch.sigmoid(net.g(x)) + x * (1 - torch.sigmoid(net.g(x)))


def capped_scores(net: Any, x: Tensor) -> Tensor:
    """As in Gemma: a tanh keeps the scores small."""
    q, k, v = projected(net, x)
    scores = 20 * torch.tanh(q @ k.transpose(-2, -1) / 20)
    mixed: Tensor = net.h((torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2))
    return mixed


def additive(net: Any, x: Tensor) -> Tensor:
    """As in Bahdanau et al.: a small network computes the scores."""
    scores = net.s(torch.tanh(net.a(x)[:, :, None] + net.b(x)[:, None])).squeeze(-1)
    mixed: Tensor = net.h(torch.softmax(scores, -1) @ x)
    return mixed


def last_query(net: Any, x: Tensor) -> Tensor:
    scores = torch.einsum("bc,btc->bt", net.a(x[:, -1]), x)
    mixed: Tensor = net.h(torch.einsum("bt,btc->bc", scores.softmax(-1), x))
    return mixed


def learned_queries(net: Any, x: Tensor) -> Tensor:
    scores = net.a.weight @ x.transpose(1, 2)
    mixed: Tensor = net.h(torch.softmax(scores, -1) @ x)
    return mixed


def chunked(net: Any, x: Tensor) -> Tensor:
    """A class token in front, and its answer behind."""
    token = net.keys.weight[:1].repeat(1, 2).expand(x.shape[0], 1, -1)
    y = attend(net, torch.cat([token, x], 1))
    return y[:, 0]


ATTENTIONS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "ALiBi": alibi,
    "causal ALiBi": causal_alibi,
    "a table of distances": relative_bias,
    "relative buckets": relative_buckets,
    "relative keys": relative_keys,
    "decay": decay,
    "rotary halves": rotary(rotated_halves),
    "rotary pairs": rotary(rotated_pairs),
    "partial rotary": partial_rotary,
    "a local window": local,
    "normalized queries": normalized_queries,
    "shared keys": shared_keys,
    "repeated keys": repeated_keys,
    "gated values": gated_values,
    "capped scores": capped_scores,
    "additive scores": additive,
    "the last query": last_query,
    "learned queries": learned_queries,
    "a class token": chunked,
}


def valid(x: Tensor, lengths: Tensor) -> Tensor:
    return torch.arange(x.shape[1])[None] < lengths[:, None]


def mean_under_mask(net: Any, x: Tensor, other: Tensor) -> Tensor:
    mask = valid(x, other).unsqueeze(-1).to(x.dtype)
    mixed: Tensor = net.h((x * mask).sum(1) / mask.sum(1).clamp(min=1e-9))
    return mixed


def mean_of_selected(net: Any, x: Tensor, other: Tensor) -> Tensor:
    kept = net.h(x).masked_fill(~valid(x, other)[..., None], 0.0)
    return kept.sum(1) / other.clamp(min=1)[:, None]


def maximum_under_mask(net: Any, x: Tensor, other: Tensor) -> Tensor:
    return net.h(x).masked_fill(~valid(x, other)[..., None], float("-inf")).amax(1)


def softmax_under_mask(net: Any, x: Tensor, other: Tensor) -> Tensor:
    scores = net.s(x).squeeze(-1).masked_fill(~valid(x, other), -1e9)
    mixed: Tensor = net.h((scores.softmax(-1)[..., None] * x).sum(1))
    return mixed


def attention_under_mask(net: Any, x: Tensor, other: Tensor) -> Tensor:
    bias = torch.where(valid(x, other), 0.0, float("-inf"))[:, None, None]
    return attend(net, x, bias)


def attention_of_both(net: Any, x: Tensor, other: Tensor) -> Tensor:
    """A causal mask and one of lengths."""
    mask = valid(x, other)[:, None, None] & (distances(x) <= 0)
    return attend(net, x, (~mask).float() * torch.finfo(torch.float32).min)


def reversed_by_lengths(net: Any, x: Tensor, other: Tensor) -> Tensor:
    places = (other[:, None] - 1 - torch.arange(x.shape[1])[None]).clamp(min=0)
    mixed: Tensor = net.h(x.gather(1, places[..., None].expand(-1, -1, SIZE)))
    return mixed


def convolved_under_mask(net: Any, x: Tensor, other: Tensor) -> Tensor:
    kept = x * valid(x, other)[..., None]
    mixed: Tensor = net.h(net.conv(kept.transpose(1, 2)).transpose(1, 2))
    return mixed


def last_valid(net: Any, x: Tensor, other: Tensor) -> Tensor:
    """The last step as the place of the largest number of the mask."""
    places = (valid(x, other).long() * torch.arange(x.shape[1])).argmax(-1)
    mixed: Tensor = net.h(x.gather(1, places[:, None, None].expand(-1, 1, SIZE)).squeeze(1))
    return mixed


def statistics_under_mask(net: Any, x: Tensor, other: Tensor) -> Tensor:
    mask = valid(x, other)[..., None].float()
    count = mask.sum(1)
    mean = (x * mask).sum(1) / count
    spread = (((x - mean[:, None]) ** 2) * mask).sum(1) / count
    return torch.cat([net.h(mean), (spread + 1e-5).sqrt()], -1)


MASKED: dict[str, Callable[..., Tensor]] = {
    "a mean": mean_under_mask,
    "a mean of states": mean_of_selected,
    "a maximum": maximum_under_mask,
    "a softmax": softmax_under_mask,
    "attention": attention_under_mask,
    "causal attention": attention_of_both,
    "reversed steps": reversed_by_lengths,
    "a convolution": convolved_under_mask,
    "the last step": last_valid,
    "statistics": statistics_under_mask,
}


def parts() -> dict[str, Any]:
    return {
        "h": Highway(SIZE),
        "qkv": nn.Linear(SIZE, 3 * SIZE),
        "a": nn.Linear(SIZE, SIZE),
        "b": nn.Linear(SIZE, SIZE),
        "g": nn.Linear(SIZE, SIZE),
        "s": nn.Linear(SIZE, 1),
        "table": nn.Embedding(9, HEADS),
        "keys": nn.Embedding(9, SIZE // HEADS),
        "scale": nn.Parameter(torch.rand(HEADS, 1, 1) + 1),
        "conv": nn.Conv1d(SIZE, SIZE, 3, padding=1),
    }


NETWORKS = [
    *(
        Honest(f"attention with {name}", lambda function=function: Written(function, **parts()), STEPS)
        for name, function in ATTENTIONS.items()
    ),
    *(
        Honest(f"five steps with {name}", lambda function=function: Written(function, **parts()), FIXED_STEPS)
        for name, function in ATTENTIONS.items()
        if name in ("ALiBi", "relative buckets", "decay", "rotary halves", "a local window")
    ),
    *(
        Honest(f"{name} by lengths", lambda function=function: WrittenForTwo(function, **parts()), inputs)
        for inputs in (WITH_ANY_LENGTHS,)
        for name, function in MASKED.items()
    ),
    Honest(
        "a mean by lengths of five steps",
        lambda: WrittenForTwo(mean_under_mask, **parts()),
        WITH_LENGTHS,
    ),
]
