"""Small copies of the networks that papers and libraries have, with highways where they have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.export.identity.honest.published_forward import (
    attentive_columns,
    auto_encoder,
    bidaf,
    character_model,
    conformer,
    conv_next,
    deep_averaging,
    deep_sets,
    dense_block,
    esim,
    fast_text,
    gated_mlp,
    gated_skip,
    gated_transformer,
    graph_attention,
    graph_convolution,
    highway_conv,
    highway_transformer,
    inception,
    inverted_residual,
    llama,
    memory_network,
    mixer,
    neural_trees,
    normalizing_flow,
    patches,
    point_net,
    pointer,
    pyramid,
    residual,
    seq2seq,
    siamese,
    spatial_attention,
    speech_front,
    tab_transformer,
    tagger,
    temporal,
    text_cnn,
    time_delay,
    two_towers,
    universal,
    viterbi,
    wide_and_deep,
)
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
