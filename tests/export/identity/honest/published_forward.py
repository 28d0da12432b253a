"""What the small copies of published networks compute, as functions of a network's parts and its inputs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


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
