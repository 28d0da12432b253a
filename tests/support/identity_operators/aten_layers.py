"""Cases of ATen layers: products, convolutions, pooling, normalizations, attention, recurrent layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.identity_operators.aten_case import AtenCases, booleans, floats, integers

CASES = AtenCases()
aten = torch.ops.aten

CASES.add("mm", torch.mm, floats(2, 3), floats(3, 4))
CASES.add("bmm", torch.bmm, floats(5, 2, 3), floats(5, 3, 4))
CASES.add("mv", torch.mv, floats(2, 3), floats(3))
CASES.add("dot", torch.dot, floats(3), floats(3))
for a, b in (
    ((3,), (3,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((5, 2, 3), (3, 4)),
    ((3,), (5, 3, 4)),
    ((5, 1, 2, 3), (4, 3, 2)),
):
    CASES.add(f"matmul {a} {b}", torch.matmul, floats(*a), floats(*b))
CASES.add(
    "addmm",
    lambda c, a, b: (torch.addmm(c, a, b), torch.addmm(c, a, b, beta=0.5, alpha=2)),
    floats(4),
    floats(2, 3),
    floats(3, 4),
)
CASES.add(
    "baddbmm",
    lambda c, a, b: (torch.baddbmm(c, a, b), torch.baddbmm(c, a, b, beta=0.5, alpha=2)),
    floats(5, 2, 4),
    floats(5, 2, 3),
    floats(5, 3, 4),
)
CASES.add("addmv", torch.addmv, floats(2), floats(2, 3), floats(3))
CASES.add("linear", nn.Linear(3, 4), floats(2, 5, 3))
CASES.add("linear without bias", nn.Linear(3, 4, bias=False), floats(3))
CASES.add("linear to a number", functional.linear, floats(2, 3), floats(3))
for equation, shapes in {
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "ij,kj->ik": ((3, 4), (5, 4)),
    "ij,kj": ((3, 4), (5, 4)),
    "bi,oij,bj->bo": ((2, 3), (5, 3, 4), (2, 4)),
    "bqhd,bkhd->bhqk": ((2, 3, 2, 4), (2, 5, 2, 4)),
    "ij->ji": ((3, 4),),
    "ij->j": ((3, 4),),
    "ba": ((3, 4),),
    "i,j->ij": ((3,), (4,)),
    "ij,ij->": ((3, 4), (3, 4)),
    "ij,jk,kl->li": ((2, 3), (3, 4), (4, 5)),
}.items():
    CASES.add(
        f"einsum {equation}",
        lambda *x, e=equation: torch.einsum(e, *x),
        *(floats(*shape) for shape in shapes),
    )
CASES.add("bilinear", nn.Bilinear(3, 4, 5), floats(2, 6, 3), floats(2, 6, 4))
CASES.add("bilinear without bias", nn.Bilinear(3, 4, 5, bias=False), floats(3), floats(4))


def _attention(**options: Any) -> Any:
    return lambda *inputs: functional.scaled_dot_product_attention(*inputs, **options)


heads = [floats(2, 3, size, 5) for size in (4, 6, 6)]
CASES.add("attention", _attention(), *heads)
CASES.add("attention, size of two powers", _attention(), *(floats(2, 1, 3, 16) for _ in range(3)))
CASES.add("attention, boolean mask", _attention(), *heads, booleans(4, 6) | torch.eye(4, 6).bool())
CASES.add("attention, float mask", _attention(), *heads, floats(3, 4, 6))
CASES.add("attention, causal", _attention(is_causal=True), *heads)
CASES.add("attention, scale", _attention(scale=0.25), *heads)
CASES.add(
    "MultiheadAttention", nn.MultiheadAttention(6, 2, batch_first=True), *(floats(2, 3, 6) for _ in range(3))
)
CASES.add("TransformerEncoderLayer", nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), floats(2, 3, 6))

for name, layer, shape in (
    ("conv1d", nn.Conv1d(2, 3, 3), (2, 2, 7)),
    ("conv1d, stride, padding, dilation", nn.Conv1d(2, 3, 3, 2, 2, 2), (2, 2, 9)),
    ("conv1d, groups", nn.Conv1d(6, 4, 3, groups=2, padding=1), (2, 6, 7)),
    ("conv1d, same and even", nn.Conv1d(2, 3, 4, padding="same"), (2, 2, 7)),
    ("conv1d, same and dilation", nn.Conv1d(2, 3, 4, padding="same", dilation=3), (2, 2, 9)),
    ("conv1d, same", nn.Conv1d(2, 3, 3, padding="same"), (2, 2, 7)),
    ("conv1d, valid", nn.Conv1d(2, 3, 3, padding="valid", bias=False), (2, 2, 7)),
    ("conv1d, reflect", nn.Conv1d(2, 3, 3, padding=1, padding_mode="reflect"), (2, 2, 7)),
    ("conv1d, circular", nn.Conv1d(2, 3, 3, padding=1, padding_mode="circular"), (2, 2, 7)),
    ("conv1d, unbatched", nn.Conv1d(2, 3, 3), (2, 7)),
    ("conv2d", nn.Conv2d(2, 3, 3), (2, 2, 5, 6)),
    ("conv2d, by axis", nn.Conv2d(2, 3, (2, 3), (1, 2), (0, 1), (2, 1)), (2, 2, 6, 7)),
    ("conv2d, depthwise", nn.Conv2d(3, 6, 3, groups=3, bias=False), (2, 3, 5, 6)),
    ("conv2d, unbatched", nn.Conv2d(2, 3, 3, padding=1), (2, 5, 6)),
    ("conv3d", nn.Conv3d(2, 3, 2, stride=(1, 2, 1), padding=(0, 1, 0)), (1, 2, 3, 4, 5)),
    ("conv_transpose1d", nn.ConvTranspose1d(2, 3, 3), (2, 2, 5)),
    ("conv_transpose1d, stride and padding", nn.ConvTranspose1d(2, 3, 4, 2, 1, output_padding=1), (2, 2, 5)),
    ("conv_transpose1d, groups and dilation", nn.ConvTranspose1d(6, 4, 3, groups=2, dilation=2), (2, 6, 5)),
    ("conv_transpose1d, unbatched", nn.ConvTranspose1d(2, 3, 3), (2, 5)),
    ("conv_transpose1d, cropped", nn.ConvTranspose1d(2, 3, 2, 2, padding=2), (2, 2, 5)),
    ("conv_transpose2d", nn.ConvTranspose2d(2, 3, (2, 3), (2, 1), (1, 0), (1, 0), bias=False), (2, 2, 3, 4)),
    ("max_pool1d", nn.MaxPool1d(2), (2, 3, 7)),
    ("max_pool1d, overlapping", nn.MaxPool1d(3, 1, padding=1), (2, 3, 7)),
    ("max_pool1d, ceil", nn.MaxPool1d(3, 2, ceil_mode=True), (2, 3, 8)),
    ("max_pool1d, padding and ceil", nn.MaxPool1d(3, 3, padding=1, ceil_mode=True), (2, 3, 5)),
    ("max_pool1d, dilation", nn.MaxPool1d(3, 1, dilation=2), (2, 3, 9)),
    ("max_pool1d, unbatched", nn.MaxPool1d(2), (3, 6)),
    ("max_pool2d", nn.MaxPool2d((2, 3), (1, 2), (1, 0)), (2, 2, 5, 6)),
    ("max_pool2d, ceil", nn.MaxPool2d(3, 2, 1, ceil_mode=True), (1, 2, 6, 7)),
    ("max_pool3d", nn.MaxPool3d(2), (1, 2, 4, 5, 4)),
    ("avg_pool1d", nn.AvgPool1d(2), (2, 3, 7)),
    ("avg_pool1d, padding", nn.AvgPool1d(3, 2, padding=1), (2, 3, 7)),
    ("avg_pool1d, without padding", nn.AvgPool1d(3, 2, padding=1, count_include_pad=False), (2, 3, 7)),
    ("avg_pool1d, ceil", nn.AvgPool1d(3, 2, ceil_mode=True, count_include_pad=False), (2, 3, 8)),
    ("avg_pool1d, ceil with padding", nn.AvgPool1d(3, 2, padding=1, ceil_mode=True), (2, 3, 8)),
    ("avg_pool1d, unbatched", nn.AvgPool1d(2), (3, 6)),
    ("avg_pool2d", nn.AvgPool2d((2, 3), (2, 1), (1, 0)), (2, 2, 5, 6)),
    ("avg_pool2d, divisor", nn.AvgPool2d(2, divisor_override=3), (1, 2, 4, 4)),
    ("avg_pool3d", nn.AvgPool3d(2, 1), (1, 2, 3, 4, 3)),
    ("adaptive_avg_pool1d", nn.AdaptiveAvgPool1d(2), (2, 3, 6)),
    ("adaptive_avg_pool1d, one", nn.AdaptiveAvgPool1d(1), (2, 3, 7)),
    ("adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((2, 1)), (2, 3, 4, 5)),
    ("adaptive_max_pool1d", nn.AdaptiveMaxPool1d(1), (2, 3, 7)),
    ("layer_norm", nn.LayerNorm(4), (2, 3, 4)),
    ("layer_norm, two axes", nn.LayerNorm((3, 4), eps=0.1), (2, 3, 4)),
    ("layer_norm, plain", nn.LayerNorm(4, elementwise_affine=False), (2, 3, 4)),
    ("layer_norm without bias", nn.LayerNorm(4, bias=False), (2, 3, 4)),
    ("rms_norm", nn.RMSNorm(4, eps=0.1), (2, 3, 4)),
    ("rms_norm, plain", nn.RMSNorm((3, 4), elementwise_affine=False), (2, 3, 4)),
    ("batch_norm1d", nn.BatchNorm1d(3, eps=0.1), (4, 3)),
    ("batch_norm1d of sequences", nn.BatchNorm1d(3), (4, 3, 5)),
    ("batch_norm2d", nn.BatchNorm2d(3), (2, 3, 4, 5)),
    ("batch_norm2d, plain", nn.BatchNorm2d(3, affine=False), (2, 3, 4, 5)),
    ("group_norm", nn.GroupNorm(2, 4, eps=0.1), (2, 4, 3)),
    ("group_norm of images", nn.GroupNorm(3, 6), (2, 6, 2, 3)),
    ("group_norm, plain", nn.GroupNorm(2, 4, affine=False), (2, 4, 3)),
    ("instance_norm", nn.InstanceNorm1d(3, eps=0.1), (2, 3, 5)),
    ("instance_norm, affine", nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 5)),
    ("im2col", nn.Unfold((2, 3), dilation=(2, 1), padding=(1, 0), stride=(1, 2)), (2, 3, 5, 6)),
    ("pixel_shuffle", nn.PixelShuffle(2), (2, 8, 2, 3)),
):
    with torch.no_grad():
        for tensor in (*layer.parameters(), *(b for b in layer.buffers() if b.is_floating_point())):
            # other numbers than the ones and zeros of new normalizations
            tensor.copy_(floats(*tensor.shape, low=0.2 if tensor.ndim == 1 else -1.0, high=1.0))
    CASES.add(name, layer, floats(*shape))

CASES.add(
    "convolution",
    lambda x, w: aten.convolution(x, w, None, [2], [1], [1], False, [0], 1),
    floats(2, 1, 6),
    floats(2, 1, 3),
)
CASES.add(
    "convolution, transposed",
    lambda x, w: aten.convolution(x, w, None, [2], [1], [1], True, [1], 2),
    floats(2, 2, 6),
    floats(2, 1, 3),
)
CASES.add(
    "max_pool2d_with_indices",
    lambda x: aten.max_pool2d_with_indices(x, [2, 2], [2, 2])[0],
    floats(1, 2, 4, 4),
)
CASES.add(
    "max_pool3d_with_indices", lambda x: aten.max_pool3d_with_indices(x, [2, 2, 2])[0], floats(1, 2, 4, 4, 4)
)
CASES.add("max_pool1d_with_indices", lambda x: aten.max_pool1d_with_indices(x, [2], [1])[0], floats(1, 2, 4))
CASES.add("_adaptive_avg_pool2d", lambda x: aten._adaptive_avg_pool2d(x, [2, 2]), floats(1, 2, 4, 4))
CASES.add(
    "native_layer_norm",
    lambda x, w, b: aten.native_layer_norm(x, [4], w, b, 0.1)[0],
    floats(3, 4),
    floats(4),
    floats(4),
)
CASES.add("_fused_rms_norm", lambda x, w: aten._fused_rms_norm(x, [4], w, 0.1)[0], floats(3, 4), floats(4))
statistics = [floats(3), floats(3), floats(3), floats(3, low=0.5)]
CASES.add(
    "native_batch_norm",
    lambda x, *s: aten.native_batch_norm(x, *s, False, 0.1, 0.01)[0],
    floats(2, 3, 4),
    *statistics,
)
CASES.add(
    "batch_norm without training",
    lambda x, *s: aten._native_batch_norm_legit_no_training(x, *s, 0.1, 0.01)[0],
    floats(2, 3, 4),
    *statistics,
)
CASES.add(
    "native_group_norm",
    lambda x, w, b: aten.native_group_norm(x, w, b, 2, 4, 3, 2, 0.1)[0],
    floats(2, 4, 3),
    floats(4),
    floats(4),
)
CASES.add("embedding", nn.Embedding(5, 3), integers(2, 4))
CASES.add("embedding, padding", nn.Embedding(5, 3, padding_idx=0), integers(4))
CASES.add("embedding, known", lambda w: functional.embedding(torch.tensor([[1, 0], [2, 2]]), w), floats(3, 4))


def _recurrent(kind: type[nn.Module], **options: Any) -> nn.Module:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(3, 4, **options)

        def forward(self, x: Tensor, *states: Tensor) -> Any:
            return self.layer(x, states[0] if len(states) == 1 else states or None)

    return Layer()


for kind, count in ((nn.GRU, 1), (nn.LSTM, 2)):
    name = kind.__name__
    CASES.add(name, _recurrent(kind), floats(5, 2, 3))
    CASES.add(f"{name}, batch_first", _recurrent(kind, batch_first=True), floats(2, 5, 3))
    CASES.add(f"{name}, unbatched", _recurrent(kind), floats(5, 3))
    CASES.add(f"{name} without bias", _recurrent(kind, bias=False), floats(5, 2, 3))
    CASES.add(f"{name}, bidirectional", _recurrent(kind, bidirectional=True), floats(5, 2, 3))
    CASES.add(
        f"{name}, layers", _recurrent(kind, num_layers=2, bidirectional=True, bias=False), floats(5, 2, 3)
    )
    CASES.add(
        f"{name}, states",
        _recurrent(kind, num_layers=2),
        floats(5, 2, 3),
        *(floats(2, 2, 4) for _ in range(count)),
    )
    cell = nn.GRUCell(3, 4) if count == 1 else nn.LSTMCell(3, 4)
    CASES.add(f"{name}Cell", cell, floats(2, 3))

# by the number of spatial axes
for rank in (1, 2, 3):
    image_shape = (2, 3, *(4, 5, 2)[:rank])
    for mode in ("nearest", "nearest-exact", ("linear", "bilinear", "trilinear")[rank - 1]):
        CASES.add(
            f"upsample {mode} {rank}",
            lambda x, mode=mode: (
                functional.interpolate(x, scale_factor=2, mode=mode),
                functional.interpolate(x, scale_factor=3, mode=mode),
            ),
            floats(*image_shape),
        )
CASES.add(
    "upsample with aligned corners",
    lambda x: functional.interpolate(x, size=(7, 9), mode="bilinear", align_corners=True),
    floats(2, 3, 4, 5),
)
CASES.add(
    "upsample bicubic",
    lambda x: functional.interpolate(x, scale_factor=2, mode="bicubic"),
    floats(1, 2, 4, 5),
)
CASES.add(
    "einsum with an ellipsis", lambda x, y: torch.einsum("...i,ij->...j", x, y), floats(2, 5, 3), floats(3, 4)
)
CASES.add(
    "addbmm",
    lambda x, a, b: (torch.addbmm(x, a, b), torch.addbmm(x, a, b, beta=2, alpha=0.5)),
    floats(3, 5),
    floats(2, 3, 4),
    floats(2, 4, 5),
)
