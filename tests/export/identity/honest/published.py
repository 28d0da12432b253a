"""Small copies of the networks that papers and libraries have, with highways where they have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.export.identity.honest.written import (
    ROWS,
    ConvHighway,
    Highway,
    Honest,
    Written,
    WrittenForTwo,
    with_statistics,
)

IMAGE = "x:float32[batch,4,8,8]"
WAVE = "x:float32[batch,4,time]"
STEPS = "x:float32[batch,time,6]"
FIXED_STEPS = "x:float32[batch,5,6]"
IDS = "x:int64[batch,time]"
FIXED_IDS = "x:int64[batch,6]"


def conv_norm(inputs: int, outputs: int, size: int = 3, **options: Any) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False, **options)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU6())


def residual(net: Any, x: Tensor) -> Tensor:
    return torch.relu(net.b(net.a(x)) + net.skip(x))


def inverted_residual(net: Any, x: Tensor) -> Tensor:
    """As in MobileNetV2, with squeeze and excitation by hard gates."""
    y = net.depthwise(net.a(x))
    shares = F.hardsigmoid(net.up(F.relu(net.down(y.mean((2, 3), keepdim=True)))))
    return x + net.project(y * shares)


def conv_next(net: Any, x: Tensor) -> Tensor:
    y = net.norm(net.depthwise(x).permute(0, 2, 3, 1))
    y = net.gamma * net.b(F.gelu(net.a(y)))
    return x + y.permute(0, 3, 1, 2)


def dense_block(net: Any, x: Tensor) -> Tensor:
    for layer in net.layers:
        x = torch.cat([x, layer(x)], 1)
    return F.avg_pool2d(x, 2)


def inception(net: Any, x: Tensor) -> Tensor:
    pooled = net.c(F.max_pool2d(x, 3, 1, 1))
    return torch.cat([net.a(x), net.b(x), pooled], 1)


def pyramid(net: Any, x: Tensor) -> Tensor:
    """As in PSPNet: averages of several sizes, enlarged to the map's."""
    parts = [F.interpolate(F.adaptive_avg_pool2d(x, n), (8, 8), mode="bilinear") for n in (1, 2, 4)]
    return net.a(torch.cat([x, *parts], 1))


def gated_skip(net: Any, x: Tensor) -> Tensor:
    """As in attention U-nets: a gate chooses what passes from the way down."""
    below = F.interpolate(net.b(F.max_pool2d(x, 2)), scale_factor=2)
    gate = torch.sigmoid(net.s(torch.relu(net.c(x) + net.d(below))))
    return torch.cat([gate * x, below], 1)


def spatial_attention(net: Any, x: Tensor) -> Tensor:
    """As in CBAM: a gate for channels, then one for places."""
    hidden = [net.up(F.relu(net.down(pool(x, 1)))) for pool in (F.adaptive_avg_pool2d, F.adaptive_max_pool2d)]
    x = x * torch.sigmoid(hidden[0] + hidden[1])
    maps = torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True)], 1)
    return x * torch.sigmoid(net.places(maps))


def patches(net: Any, x: Tensor) -> Tensor:
    """A vision transformer: patches, a class token, positions, attention, a head."""
    tokens = net.patch(x).flatten(2).transpose(1, 2)
    tokens = torch.cat([net.token.expand(x.shape[0], -1, -1), tokens], 1) + net.positions
    normal = net.norm(tokens)
    tokens = tokens + net.attention(normal, normal, normal, need_weights=False)[0]
    return net.head(net.h(tokens)[:, 0])


def mixer(net: Any, x: Tensor) -> Tensor:
    y = x + net.b(F.gelu(net.a(net.norm(x).transpose(1, 2)))).transpose(1, 2)
    return y + net.d(F.gelu(net.c(net.norm2(y))))


def gated_mlp(net: Any, x: Tensor) -> Tensor:
    """As in gMLP: one half gates the other along time."""
    u, v = F.gelu(net.w(net.norm(x))).chunk(2, -1)
    gate = net.a(net.norm2(v).transpose(1, 2)).transpose(1, 2)
    return x + net.o(u * (gate + 1))


def conformer(net: Any, x: Tensor) -> Tensor:
    """A half feed-forward layer, attention, a gated convolution, another half."""
    x = x + 0.5 * net.d(F.silu(net.c(net.norm(x))))
    normal = net.norm2(x)
    x = x + net.attention(normal, normal, normal, need_weights=False)[0]
    y = F.glu(net.point(x.transpose(1, 2)), dim=1)
    y = F.silu(net.batch(net.depthwise(y)))
    x = x + net.point2(y).transpose(1, 2)
    return net.norm3(x + 0.5 * net.d(F.silu(net.c(x))))


def llama(net: Any, x: Tensor) -> Tensor:
    y = net.rms(x)
    q, k, v = (part.unflatten(-1, (2, 3)).transpose(1, 2) for part in net.qkv(y).chunk(3, -1))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    x = x + net.o(y)
    y = net.rms2(x)
    return x + net.down(F.silu(net.gate(y)) * net.up(y))


def gated_transformer(net: Any, x: Tensor) -> Tensor:
    """As in GTrXL: GRU gates in place of sums."""
    y = net.norm(x)
    y = torch.relu(net.attention(y, y, y, need_weights=False)[0])
    z, r = torch.sigmoid(net.z(torch.cat([x, y], -1)) - 2), torch.sigmoid(net.r(torch.cat([x, y], -1)))
    return (1 - z) * x + z * torch.tanh(net.n(torch.cat([r * x, y], -1)))


def universal(net: Any, x: Tensor) -> Tensor:
    """One layer several times, with an embedding of the turn."""
    for turn in range(3):
        x = net.layer(x + net.turns.weight[turn])
    return net.h(x)


def highway_transformer(net: Any, x: Tensor) -> Tensor:
    y = net.layer(x)
    t = torch.sigmoid(net.z2(x))
    return net.norm(t * y + (1 - t) * x)


def text_cnn(net: Any, x: Tensor) -> Tensor:
    y = net.e(x).transpose(1, 2)
    features = torch.cat([F.relu(conv(y)).amax(-1) for conv in net.convs], 1)
    return net.head(net.h(features))


def fast_text(net: Any, x: Tensor) -> Tensor:
    """Words and hashed pairs of words."""
    pairs = (x[:, 1:] * 31 + x[:, :-1]) % 17
    return net.head(net.h(torch.cat([net.e(x).mean(1), net.e2(pairs).mean(1)], -1)))


def deep_averaging(net: Any, x: Tensor) -> Tensor:
    return F.log_softmax(net.head(net.h(net.e(x).mean(1))), -1)


def bidaf(net: Any, x: Tensor, other: Tensor) -> Tensor:
    """Attention of a context to a question and back, on highway embeddings."""
    c, q = net.h(net.e(x)), net.h(net.e(other))
    scores = net.s(c) + net.t(q).transpose(1, 2) + (c * net.w) @ q.transpose(1, 2)
    to_question = torch.softmax(scores, -1) @ q
    to_context = torch.softmax(scores.amax(-1), -1).unsqueeze(1) @ c
    return torch.cat([c, to_question, c * to_question, c * to_context], -1)


def esim(net: Any, x: Tensor, other: Tensor) -> Tensor:
    a, b = net.h(net.e(x)), net.h(net.e(other))
    scores = a @ b.transpose(1, 2)
    seen = torch.softmax(scores, -1) @ b
    merged = torch.cat([a, seen, a - seen, a * seen], -1)
    return torch.cat([merged.mean(1), merged.amax(1)], -1)


def two_towers(net: Any, x: Tensor, other: Tensor) -> Tensor:
    a = F.normalize(net.h(net.e(x).mean(1)), dim=-1)
    b = F.normalize(net.h2(net.e(other).mean(1)), dim=-1)
    return (a * b).sum(-1) / net.temperature


def siamese(net: Any, x: Tensor, other: Tensor) -> Tensor:
    return torch.exp(-(net.h(x) - net.h(other)).abs().sum(-1))


def wide_and_deep(net: Any, x: Tensor, other: Tensor) -> Tensor:
    """Columns of numbers and of categories."""
    embedded = torch.cat([net.e.weight[other[:, 0]], net.e2(other[:, 1])], -1)
    deep = net.h(torch.cat([x, embedded], -1))
    return torch.sigmoid(net.head(deep) + net.wide(x))


def tab_transformer(net: Any, x: Tensor, other: Tensor) -> Tensor:
    """Categories as tokens, with offsets into one table."""
    tokens = net.e(other + torch.tensor([0, 5, 9])) + net.columns
    mixed = net.layer(tokens).flatten(1)
    return net.head(torch.cat([mixed, net.norm(x)], -1))


def neural_trees(net: Any, x: Tensor) -> Tensor:
    """Soft oblivious trees: the product of both sides of each split."""
    sides = torch.sigmoid(net.c(x))
    leaves = torch.ones_like(x[:, :1])
    for split in range(3):
        side = sides[:, split : split + 1]
        leaves = torch.cat([leaves * side, leaves * (1 - side)], -1)
    return leaves @ net.leaves


def attentive_columns(net: Any, x: Tensor) -> Tensor:
    """As in TabNet, with a softmax: each step chooses columns that the ones before used less."""
    prior, total = torch.ones_like(x), torch.zeros_like(x)
    for _ in range(2):
        mask = torch.softmax(net.norm(net.a(x)) * prior, -1)
        prior = prior * (1.3 - mask)
        total = total + F.relu(F.glu(net.w(mask * x), -1))
    return net.h(total)


def auto_encoder(net: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    mean, _ = net.w(x).chunk(2, -1)
    return net.h(torch.tanh(mean)), mean


def normalizing_flow(net: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """An affine coupling layer, and the logarithm of its determinant."""
    a, b = x.chunk(2, -1)
    scale, shift = net.w3(a).chunk(2, -1)
    scale = torch.tanh(scale)
    return torch.cat([a, b * scale.exp() + shift], -1), scale.sum(-1)


def graph_attention(net: Any, x: Tensor, other: Tensor) -> Tensor:
    """Nodes with an adjacency matrix."""
    y = net.a(x)
    scores = F.leaky_relu(net.s(y) + net.t(y).transpose(1, 2), 0.2)
    shares = torch.softmax(scores.masked_fill(other == 0, -1e9), -1)
    return net.h(F.elu(shares @ y))


def graph_convolution(net: Any, x: Tensor, other: Tensor) -> Tensor:
    adjacency = other + torch.eye(5)
    degree = adjacency.sum(-1).clamp(min=1).rsqrt()
    return net.h(net.a(degree[:, :, None] * adjacency * degree[:, None] @ x))


def deep_sets(net: Any, x: Tensor) -> Tensor:
    return net.h(torch.cat([net.s(x).sum(1), F.relu(net.a(x)).amax(1)[:, :5]], -1))


def point_net(net: Any, x: Tensor) -> Tensor:
    turned = x @ net.a(x).amax(1).view(-1, 6, 1).expand(-1, -1, 6)
    return net.h(turned).amax(1)


def speech_front(net: Any, x: Tensor) -> Tensor:
    """Logarithms of energies, normalized over time, convolved, and a GRU."""
    energies = torch.log(x.square() + 1e-6)
    energies = (energies - energies.mean(-1, keepdim=True)) / (energies.std(-1, keepdim=True) + 1e-5)
    return net.rnn(net.conv(energies).relu().transpose(1, 2))[0]


def time_delay(net: Any, x: Tensor) -> Tensor:
    """As in ECAPA: a dilated convolution, channel weights, attentive statistics."""
    y = F.relu(net.conv(x))
    y = y * torch.sigmoid(net.up(F.relu(net.down(y.mean(2, keepdim=True)))))
    shares = torch.softmax(net.att(torch.tanh(y)), 2)
    mean = (shares * y).sum(2)
    spread = ((shares * y * y).sum(2) - mean**2).clamp(min=1e-4).sqrt()
    return torch.cat([mean, spread], 1)


def temporal(net: Any, x: Tensor) -> Tensor:
    """A causal network of dilated convolutions with weight norm."""
    for number, conv in enumerate(net.convs):
        x = x + F.relu(conv(F.pad(x, (2**number, 0))))
    return x


def highway_conv(net: Any, x: Tensor) -> Tensor:
    """As in DC-TTS: a dilated convolution makes gate and values, both normed."""
    gate, values = net.both(x).chunk(2, 1)
    gate = torch.sigmoid(net.norm(gate.transpose(1, 2)).transpose(1, 2))
    return gate * net.norm2(values.transpose(1, 2)).transpose(1, 2) + (1 - gate) * x


def pointer(net: Any, x: Tensor) -> Tensor:
    """As in pointer-generators: a gate between a vocabulary and the source's words."""
    states, _ = net.rnn(net.e(x))
    gate = torch.sigmoid(net.gate(states))
    copies = F.one_hot(x, 20).float()
    shares = torch.softmax(states @ states.transpose(1, 2), -1)
    return gate * torch.softmax(states @ net.e.weight.t(), -1) + (1 - gate) * shares @ copies


def character_model(net: Any, x: Tensor) -> Tensor:
    """As in Kim et al.: characters of words, highways, an LSTM over words."""
    y = net.e(x.flatten(0, 1)).transpose(1, 2)
    words = torch.cat([torch.tanh(conv(y)).max(2)[0] for conv in net.convs], 1)
    return net.head(net.rnn(net.h(words).view(x.shape[0], x.shape[1], -1))[0])


def seq2seq(net: Any, x: Tensor, other: Tensor) -> Tensor:
    """An encoder, and a decoder with dot attention that starts from its last state."""
    states, last = net.rnn(x)
    decoded, _ = net.rnn2(other, last)
    seen = torch.softmax(decoded @ states.transpose(1, 2), -1) @ states
    return torch.tanh(net.o2(torch.cat([decoded, seen], -1)))


def tagger(net: Any, x: Tensor) -> Tensor:
    """A bidirectional LSTM, a gate between its directions, and scores of tags with transitions."""
    states = net.rnn(net.e(x))[0]
    forward, backward = states.chunk(2, -1)
    gate = torch.sigmoid(net.gate(states))
    emissions = net.head(gate * forward + (1 - gate) * backward)
    return emissions[:, 1:, None] + net.transitions[None, None] + emissions[:, :-1, :, None]


def viterbi(net: Any, x: Tensor) -> Tensor:
    """The best score of a chain of tags: maxima over the tag before, step by step."""
    emissions = net.c(x)
    best = emissions[:, 0]
    for step in range(1, 5):
        best = (best[:, :, None] + net.transitions).amax(1) + emissions[:, step]
    return best.amax(-1)


def memory_network(net: Any, x: Tensor, other: Tensor) -> Tensor:
    question = net.e(other).sum(1)
    for _ in range(2):
        shares = torch.softmax((net.e(x) @ question[..., None]).squeeze(-1), -1)
        question = net.h(question) + (shares[..., None] * net.e2(x)).sum(1)
    return question @ net.e.weight.t()


def linears(**sizes: tuple[int, int]) -> dict[str, nn.Module]:
    return {name: nn.Linear(*size) for name, size in sizes.items()}


def attention(size: int = 6) -> nn.Module:
    return nn.MultiheadAttention(size, 2, batch_first=True)


def norms(size: int, *names: str) -> dict[str, nn.Module]:
    return {name: nn.LayerNorm(size) for name in names}


def encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(6, 2, 12, batch_first=True)


Function = Callable[..., Any]
Parts = Callable[[], dict[str, Any]]
WORDS: Parts = lambda: {  # noqa: E731
    "e": nn.Embedding(20, 6),
    "e2": nn.Embedding(20, 6),
    "h": Highway(6),
    "h2": Highway(6, F.gelu),
    "temperature": nn.Parameter(torch.tensor(0.07)),
    "w": nn.Parameter(torch.randn(6)),
    **linears(s=(6, 1), t=(6, 1), head=(6, 3)),
}
CHANNELS: Parts = lambda: {  # noqa: E731
    "down": nn.Conv2d(4, 2, 1),
    "up": nn.Conv2d(2, 4, 1),
    "a": conv_norm(4, 4),
    "b": ConvHighway(4, 2),
    "c": conv_norm(4, 4, 1),
    "d": nn.Conv2d(4, 4, 1),
    "s": nn.Conv2d(4, 1, 1),
    "places": nn.Conv2d(2, 1, 7, padding=3),
}
FEATURES: Parts = lambda: {  # noqa: E731
    "h": Highway(6),
    **linears(a=(6, 6), c=(6, 3), w=(6, 12), w3=(3, 6), s=(6, 1), t=(6, 1)),
    "leaves": nn.Parameter(torch.randn(8, 2)),
    "norm": nn.BatchNorm1d(6),
    "transitions": nn.Parameter(torch.randn(3, 3)),
}
IMAGES: dict[str, tuple[Function, Parts]] = {
    "ResNet": (
        residual,
        lambda: {
            "a": conv_norm(4, 6, stride=2),
            "b": nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6)),
            "skip": nn.Conv2d(4, 6, 1, stride=2),
        },
    ),
    "MobileNet": (
        inverted_residual,
        lambda: {
            "a": conv_norm(4, 8, 1),
            "depthwise": conv_norm(8, 8, groups=8),
            "down": nn.Conv2d(8, 2, 1),
            "up": nn.Conv2d(2, 8, 1),
            "project": nn.Sequential(nn.Conv2d(8, 4, 1, bias=False), nn.BatchNorm2d(4)),
        },
    ),
    "ConvNeXt": (
        conv_next,
        lambda: {
            "depthwise": nn.Conv2d(4, 4, 7, padding=3, groups=4),
            "norm": nn.LayerNorm(4, eps=1e-6),
            **linears(a=(4, 16), b=(16, 4)),
            "gamma": nn.Parameter(torch.full((4,), 0.1)),
        },
    ),
    "DenseNet": (
        dense_block,
        lambda: {
            "layers": nn.ModuleList(
                nn.Sequential(nn.BatchNorm2d(n), nn.ReLU(), nn.Conv2d(n, 2, 3, padding=1)) for n in (4, 6)
            )
        },
    ),
    "Inception": (
        inception,
        lambda: {"a": conv_norm(4, 2, 1), "b": conv_norm(4, 3, 5), "c": conv_norm(4, 2, 1)},
    ),
    "PSPNet": (pyramid, lambda: {"a": conv_norm(16, 4)}),
    "attention U-net": (gated_skip, CHANNELS),
    "CBAM": (spatial_attention, CHANNELS),
    "vision transformer": (
        patches,
        lambda: {
            "patch": nn.Conv2d(4, 6, 4, stride=4),
            "token": nn.Parameter(torch.randn(1, 1, 6)),
            "positions": nn.Parameter(torch.randn(1, 5, 6)),
            "attention": attention(),
            "h": Highway(6, F.gelu),
            "head": nn.Linear(6, 3),
            **norms(6, "norm"),
        },
    ),
}
SEQUENCES: dict[str, tuple[Function, Parts, str]] = {
    "MLP-Mixer": (
        mixer,
        lambda: {**linears(a=(5, 8), b=(8, 5), c=(6, 8), d=(8, 6)), **norms(6, "norm", "norm2")},
        FIXED_STEPS,
    ),
    "gMLP": (
        gated_mlp,
        lambda: {**linears(w=(6, 12), a=(5, 5), o=(6, 6)), **norms(6, "norm", "norm2")},
        FIXED_STEPS,
    ),
    "Conformer": (
        conformer,
        lambda: {
            **linears(c=(6, 12), d=(12, 6)),
            **norms(6, "norm", "norm2", "norm3"),
            "attention": attention(),
            "point": nn.Conv1d(6, 12, 1),
            "depthwise": nn.Conv1d(6, 6, 3, padding=1, groups=6),
            "batch": nn.BatchNorm1d(6),
            "point2": nn.Conv1d(6, 6, 1),
        },
        STEPS,
    ),
    "LLaMA": (
        llama,
        lambda: {
            "rms": nn.RMSNorm(6, eps=1e-6),
            "rms2": nn.RMSNorm(6, eps=1e-6),
            **linears(qkv=(6, 18), o=(6, 6), gate=(6, 10), up=(6, 10), down=(10, 6)),
        },
        STEPS,
    ),
    "GTrXL": (
        gated_transformer,
        lambda: {**linears(z=(12, 6), r=(12, 6), n=(12, 6)), **norms(6, "norm"), "attention": attention()},
        STEPS,
    ),
    "Universal Transformer": (
        universal,
        lambda: {"layer": encoder_layer(), "turns": nn.Embedding(3, 6), "h": Highway(6)},
        STEPS,
    ),
    "Highway Transformer": (
        highway_transformer,
        lambda: {"layer": encoder_layer(), **norms(6, "norm"), **linears(z2=(6, 6))},
        STEPS,
    ),
    "text CNN": (
        text_cnn,
        lambda: {
            "e": nn.Embedding(20, 4),
            "convs": nn.ModuleList(nn.Conv1d(4, 3, n) for n in (2, 3)),
            "h": Highway(6),
            "head": nn.Linear(6, 3),
        },
        FIXED_IDS,
    ),
    "fastText": (
        fast_text,
        lambda: {
            "e": nn.Embedding(20, 3),
            "e2": nn.Embedding(17, 3),
            "h": Highway(6),
            "head": nn.Linear(6, 3),
        },
        IDS,
    ),
    "deep averaging": (deep_averaging, WORDS, FIXED_IDS),
    "soft trees": (neural_trees, FEATURES, ROWS),
    "TabNet": (attentive_columns, FEATURES, ROWS),
    "autoencoder": (auto_encoder, FEATURES, ROWS),
    "normalizing flow": (normalizing_flow, FEATURES, ROWS),
    "deep sets": (deep_sets, FEATURES, STEPS),
    "PointNet": (point_net, FEATURES, STEPS),
    "Viterbi": (viterbi, FEATURES, FIXED_STEPS),
    "speech": (
        speech_front,
        lambda: {"conv": nn.Conv1d(4, 6, 3, padding=1), "rnn": nn.GRU(6, 6, batch_first=True)},
        "x:float32[batch,4,9]",
    ),
    "ECAPA": (
        time_delay,
        lambda: {
            "conv": nn.Conv1d(4, 6, 3, dilation=2, padding=2),
            "down": nn.Conv1d(6, 2, 1),
            "up": nn.Conv1d(2, 6, 1),
            "att": nn.Conv1d(6, 6, 1),
        },
        WAVE,
    ),
    "temporal convolutions": (
        temporal,
        lambda: {
            "convs": nn.ModuleList(
                nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 2, dilation=2**n)) for n in range(3)
            )
        },
        WAVE,
    ),
    "DC-TTS": (
        highway_conv,
        lambda: {"both": nn.Conv1d(4, 8, 3, padding=3, dilation=3), **norms(4, "norm", "norm2")},
        WAVE,
    ),
    "pointer-generator": (
        pointer,
        lambda: {
            "e": nn.Embedding(20, 6),
            "rnn": nn.LSTM(6, 6, batch_first=True),
            "gate": nn.Linear(6, 1),
        },
        IDS,
    ),
    "Kim's characters": (
        character_model,
        lambda: {
            "e": nn.Embedding(30, 4),
            "convs": nn.ModuleList(nn.Conv1d(4, 3, n) for n in (1, 2)),
            "h": Highway(6),
            "rnn": nn.LSTM(6, 6, 2, batch_first=True),
            "head": nn.Linear(6, 9),
        },
        "x:int64[batch,words,7]",
    ),
    "tagger": (
        tagger,
        lambda: {
            "e": nn.Embedding(20, 6),
            "rnn": nn.LSTM(6, 6, batch_first=True, bidirectional=True),
            "gate": nn.Linear(12, 6),
            "head": nn.Linear(6, 3),
            "transitions": nn.Parameter(torch.randn(3, 3)),
        },
        IDS,
    ),
}
PAIRS: dict[str, tuple[Function, Parts, tuple[str, str]]] = {
    "BiDAF": (bidaf, WORDS, (IDS, "other:int64[batch,words]")),
    "ESIM": (esim, WORDS, (IDS, "other:int64[batch,words]")),
    "two towers": (two_towers, WORDS, (IDS, "other:int64[batch,words]")),
    "memory network": (memory_network, WORDS, (IDS, "other:int64[batch,words]")),
    "siamese": (siamese, FEATURES, (ROWS, "other:float32[batch,6]")),
    "wide and deep": (
        wide_and_deep,
        lambda: {
            "e": nn.Embedding(7, 2),
            "e2": nn.Embedding(5, 3),
            "h": Highway(11),
            **linears(head=(11, 1), wide=(6, 1)),
        },
        (ROWS, "other:int64[batch,2]"),
    ),
    "TabTransformer": (
        tab_transformer,
        lambda: {
            "e": nn.Embedding(20, 6),
            "columns": nn.Parameter(torch.randn(3, 6)),
            "layer": encoder_layer(),
            **norms(6, "norm"),
            **linears(head=(24, 2)),
        },
        (ROWS, "other:int64[batch,3]"),
    ),
    "graph attention": (graph_attention, FEATURES, (FIXED_STEPS, "other:int64[batch,5,5]")),
    "graph convolution": (graph_convolution, FEATURES, (FIXED_STEPS, "other:float32[batch,5,5]")),
    "sequence to sequence": (
        seq2seq,
        lambda: {
            "rnn": nn.GRU(6, 6, batch_first=True),
            "rnn2": nn.GRU(6, 6, batch_first=True),
            **linears(o2=(12, 6)),
        },
        (STEPS, "other:float32[batch,words,6]"),
    ),
}
NETWORKS = [
    *(
        Honest(
            f"published {name}",
            lambda function=function, parts=parts: with_statistics(Written(function, **parts())),
            (IMAGE,),
        )
        for name, (function, parts) in IMAGES.items()
    ),
    *(
        Honest(
            f"published {name}",
            lambda function=function, parts=parts: with_statistics(Written(function, **parts())),
            (inputs,),
        )
        for name, (function, parts, inputs) in SEQUENCES.items()
    ),
    *(
        Honest(
            f"published {name}",
            lambda function=function, parts=parts: WrittenForTwo(function, **parts()),
            inputs,
        )
        for name, (function, parts, inputs) in PAIRS.items()
    ),
]
