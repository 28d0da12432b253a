"""Attention: PyTorch's own layers, its fused function, and attention by hand."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.export.identity.honest.written import Highway, Honest, Written, WrittenForTwo

STEPS = ("x:float32[batch,time,8]",)
FIXED_STEPS = ("x:float32[batch,5,8]",)
IDS = ("x:int64[batch,5]",)
WITH_MASK = ("x:float32[batch,5,8]", "other:bool[batch,5]")


def self_attention(net: Any, x: Tensor) -> Tensor:
    y, _ = net.a(x, x, x, need_weights=False)
    mixed: Tensor = net.h(y)
    return mixed


def with_weights(net: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    y, weights = net.a(x, x, x)
    return net.h(y), weights


def with_key_padding(net: Any, x: Tensor, other: Tensor) -> Tensor:
    y, _ = net.a(x, x, x, key_padding_mask=other, need_weights=False)
    mixed: Tensor = net.h(y)
    return mixed


def causal(net: Any, x: Tensor) -> Tensor:
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
    y, _ = net.a(x, x, x, attn_mask=mask, need_weights=False)
    mixed: Tensor = net.h(y)
    return mixed


def fused(net: Any, x: Tensor, **options: Any) -> Tensor:
    q, k, v = net.qkv(x).view(x.shape[0], x.shape[1], 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
    y = F.scaled_dot_product_attention(q, k, v, **options)
    mixed: Tensor = net.h(y.transpose(1, 2).flatten(2))
    return mixed


def fused_causal(net: Any, x: Tensor) -> Tensor:
    return fused(net, x, is_causal=True)


def fused_scaled(net: Any, x: Tensor) -> Tensor:
    return fused(net, x, scale=0.3)


def fused_bool_mask(net: Any, x: Tensor, other: Tensor) -> Tensor:
    return fused(net, x, attn_mask=~other[:, None, None, :])


def fused_float_mask(net: Any, x: Tensor, other: Tensor) -> Tensor:
    mask = torch.zeros_like(other, dtype=x.dtype).masked_fill(other, float("-inf"))
    return fused(net, x, attn_mask=mask[:, None, None, :])


def fused_learned_bias(net: Any, x: Tensor) -> Tensor:
    return fused(net, x, attn_mask=net.bias)


def by_hand(net: Any, x: Tensor, mask: Tensor | None = None) -> Tensor:
    q, k, v = net.qkv(x).chunk(3, -1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(8)
    if mask is not None:
        scores = scores.masked_fill(mask, float("-inf"))
    mixed: Tensor = net.h(torch.softmax(scores, -1) @ v)
    return mixed


def by_hand_causal(net: Any, x: Tensor) -> Tensor:
    return by_hand(net, x, torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1))


def by_hand_smallest(net: Any, x: Tensor, other: Tensor) -> Tensor:
    """As in transformers: an inverted mask of the smallest number."""
    q, k, v = net.qkv(x).chunk(3, -1)
    mask = (1.0 - (~other)[:, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
    mixed: Tensor = net.h(torch.softmax(q @ k.transpose(-2, -1) * 8**-0.5 + mask, -1) @ v)
    return mixed


def by_einsum(net: Any, x: Tensor) -> Tensor:
    q, k, v = (part.unflatten(-1, (2, 4)) for part in net.qkv(x).split(8, -1))
    weights = torch.einsum("bqhd,bkhd->bhqk", q, k).mul(0.5).softmax(-1)
    mixed: Tensor = net.h(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))
    return mixed


def linear_attention(net: Any, x: Tensor) -> Tensor:
    q, k, v = net.qkv(x).chunk(3, -1)
    q, k = F.elu(q) + 1, F.elu(k) + 1
    mixed: Tensor = net.h(q @ (k.transpose(-2, -1) @ v) / (q @ k.sum(-2).unsqueeze(-1) + 1e-6))
    return mixed


class Encoder(nn.Module):
    """TransformerEncoder layers and a highway; the mask is of the ids, or causal."""

    def __init__(self, *, mask: str = "none", **options: Any) -> None:
        super().__init__()
        self.mask = mask
        self.embedding = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.highway = Highway(8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.embedding(x)
        if self.mask == "padding":
            y = self.encoder(y, src_key_padding_mask=x == 0)
        elif self.mask == "causal":
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
            y = self.encoder(y, mask=mask, is_causal=True)
        else:
            y = self.encoder(y)
        mixed: Tensor = self.highway(y)
        return mixed


class Decoder(nn.Module):
    """A TransformerDecoderLayer: causal attention, and attention to another sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True, norm_first=True)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        y: Tensor = self.layer(x, other, tgt_mask=mask, tgt_is_causal=True)
        return y


class GatedEncoder(nn.Module):
    """An encoder whose residual connections are highways."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.gate, self.highway = nn.Linear(8, 8), Highway(8, F.gelu, nn.LayerNorm(8))

    def forward(self, x: Tensor) -> Tensor:
        normal = self.norm(x)
        gate = torch.sigmoid(self.gate(normal))
        x = gate * self.attention(normal, normal, normal, need_weights=False)[0] + (1 - gate) * x
        y: Tensor = self.highway(x)
        return y


def _attention(function: Any, **options: Any) -> Any:
    return lambda: Written(
        function,
        a=nn.MultiheadAttention(8, 2, batch_first=True, **options),
        h=Highway(8),
        qkv=nn.Linear(8, 24),
        bias=nn.Parameter(torch.randn(2, 5, 5)),
    )


def _attention_for_two(function: Any) -> Any:
    return lambda: WrittenForTwo(
        function, a=nn.MultiheadAttention(8, 2, batch_first=True), h=Highway(8), qkv=nn.Linear(8, 24)
    )


NETWORKS = [
    Honest("attention", _attention(self_attention), STEPS),
    Honest("attention of fixed steps", _attention(self_attention), FIXED_STEPS),
    Honest("attention in opset 18", _attention(self_attention), STEPS, opset=18),
    Honest("attention in opset 23", _attention(self_attention), STEPS, opset=23),
    Honest("attention without biases", _attention(self_attention, bias=False), FIXED_STEPS),
    Honest("attention with bias_kv", _attention(self_attention, add_bias_kv=True), FIXED_STEPS),
    Honest("attention with zero_attn", _attention(self_attention, add_zero_attn=True), FIXED_STEPS),
    Honest("attention with its weights", _attention(with_weights), STEPS),
    Honest("attention with key padding", _attention_for_two(with_key_padding), WITH_MASK),
    Honest("causal attention", _attention(causal), STEPS),
    Honest("causal attention of fixed steps", _attention(causal), FIXED_STEPS),
    Honest("fused attention", _attention(fused), STEPS),
    Honest("fused causal attention", _attention(fused_causal), STEPS),
    Honest("fused causal attention of fixed steps", _attention(fused_causal), FIXED_STEPS),
    Honest("fused attention, scaled", _attention(fused_scaled), STEPS),
    Honest("fused attention with a bool mask", _attention_for_two(fused_bool_mask), WITH_MASK),
    Honest("fused attention with a float mask", _attention_for_two(fused_float_mask), WITH_MASK),
    Honest("fused attention with a learned bias", _attention(fused_learned_bias), FIXED_STEPS),
    Honest("attention by hand", _attention(by_hand), STEPS),
    Honest("causal attention by hand", _attention(by_hand_causal), STEPS),
    Honest("attention with the smallest number", _attention_for_two(by_hand_smallest), WITH_MASK),
    Honest("attention by einsum", _attention(by_einsum), STEPS),
    Honest("linear attention", _attention(linear_attention), STEPS),
    Honest("encoder", Encoder, IDS),
    Honest("encoder with padding", lambda: Encoder(mask="padding"), IDS),
    Honest("encoder with a causal mask", lambda: Encoder(mask="causal"), IDS),
    Honest(
        "encoder with norms first", lambda: Encoder(mask="padding", norm_first=True, activation="gelu"), IDS
    ),
    Honest("encoder of any length", lambda: Encoder(mask="padding"), ("x:int64[batch,time]",)),
    Honest("decoder", Decoder, ("x:float32[batch,5,8]", "other:float32[batch,4,8]")),
    Honest("gated encoder", GatedEncoder, STEPS),
]
