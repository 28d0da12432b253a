"""Bugs in layers of images: resizing, pooling, normalization, and the order of the axes."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from tests.export.identity.planting import Plant
from tests.export.museum.exhibit import Exhibit, attribute, instead, operand, output_of


class Resize(nn.Module):
    def __init__(self, size: tuple[int, int], mode: str, *, antialias: bool = False) -> None:
        super().__init__()
        self.size, self.mode, self.antialias = size, mode, antialias

    def forward(self, x: Tensor) -> Tensor:
        return interpolate(x, self.size, mode=self.mode, align_corners=False, antialias=self.antialias)


class ChannelsLast(nn.Module):
    """Doubles an image that arrives with its channels last."""

    def forward(self, x: Tensor) -> Tensor:
        return interpolate(x.permute(0, 3, 1, 2), scale_factor=2.0, mode="nearest")


class Pool(nn.Module):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(**settings)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(x)


class Crop(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, 1:-1]


class RunningInstanceNorm(nn.Module):
    """Normalizes by the statistics of the training, as batch norm does."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm2d(2, track_running_stats=True)
        self.norm.running_mean = torch.randn(2)
        self.norm.running_var = 1 + torch.rand(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


def padded_pool(plant: Plant, node: ir.Node) -> ir.Value:
    """Windows beyond the border count the zeros there: each sum is divided by 9."""
    padded = plant.Pad(operand(node), [0, 0, 1, 1, 0, 0, 2, 2])
    return plant.AveragePool(padded, kernel_shape=[3, 3], strides=[2, 2])


def own_statistics(plant: Plant, node: ir.Node) -> ir.Value:
    """The statistics of each image instead of those of the training."""
    ones, zeros = torch.ones(2).numpy(), torch.zeros(2).numpy()
    return plant.InstanceNormalization(plant["x"], ones, zeros, epsilon=1e-5)


def channels_in_place(plant: Plant, node: ir.Node) -> ir.Value:
    """The numbers as they lie in memory, read as if the channels came first."""
    return plant.Reshape(operand(node), [-1, 2, 3, 4])


EXHIBITS = (
    Exhibit(
        "antialias-border",
        "pytorch/pytorch#183546",
        "torch.onnx.export",
        "`exclude_outside=0`: antialiased resizing lets pixels beyond the border count",
        lambda: Resize((3, 5), "bilinear", antialias=True),
        ("x:float32[batch,3,8,10]",),
        lambda: (torch.randn(2, 3, 8, 10),),
        attribute("Resize", exclude_outside=0),
        noticed="measured",
    ),
    Exhibit(
        "bicubic-coefficient",
        "pytorch/pytorch#177138",
        "torch.onnx.export",
        "`cubic_coeff_a=-0.75` instead of -0.5 for antialiased bicubic resizing",
        lambda: Resize((3, 5), "bicubic", antialias=True),
        ("x:float32[batch,3,8,10]",),
        lambda: (torch.randn(2, 3, 8, 10),),
        attribute("Resize", cubic_coeff_a=-0.75),
        noticed="measured",
    ),
    Exhibit(
        "resize-to-one-pixel",
        "pytorch/pytorch#183523",
        "torch.onnx.export",
        "`pytorch_half_pixel`: resizing to one pixel takes the first pixel instead of the middle",
        lambda: Resize((1, 1), "bilinear"),
        ("x:float32[batch,3,10,10]",),
        lambda: (torch.randn(2, 3, 10, 10),),
        attribute("Resize", coordinate_transformation_mode="pytorch_half_pixel"),
    ),
    Exhibit(
        "resize-layout",
        "microsoft/onnxruntime#31986",
        "onnxruntime (MIGraphX)",
        "an image with channels last is resized as if they came first: right values in wrong places",
        ChannelsLast,
        ("x:float32[batch,3,4,2]",),
        lambda: (torch.randn(2, 3, 4, 2),),
        instead("Transpose", channels_in_place),
    ),
    Exhibit(
        "pool-beyond-border",
        "pytorch/pytorch#183528",
        "torch.onnx.export",
        "average pooling with `ceil_mode` divides windows beyond the border by the whole kernel",
        lambda: Pool(kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=True),
        ("x:float32[batch,1,4,4]",),
        lambda: (torch.arange(1.0, 33).reshape(2, 1, 4, 4),),
        instead("AveragePool", padded_pool),
    ),
    Exhibit(
        "pool-ceil-mode",
        "pytorch/pytorch#99424",
        "torch.onnx.export",
        "`ceil_mode` is lost: the last row and column are missing",
        lambda: Pool(kernel_size=4, stride=2, ceil_mode=True),
        ("x:float32[batch,2,9,9]",),
        lambda: (torch.randn(2, 2, 9, 9),),
        attribute("AveragePool", ceil_mode=0),
    ),
    Exhibit(
        "pool-padding-count",
        "pytorch/pytorch#13934",
        "torch.onnx.export",
        "`count_include_pad` is lost: averages at the border are too large",
        lambda: Pool(kernel_size=3, stride=1, padding=1),
        ("x:float32[batch,2,6,6]",),
        lambda: (torch.randn(2, 2, 6, 6),),
        attribute("AveragePool", count_include_pad=0),
    ),
    Exhibit(
        "frozen-crop",
        "pytorch/pytorch#9822",
        "torch.onnx.export",
        "`x[:, :, 1:-1]` ends at the example's width: pictures of another width are cut elsewhere",
        Crop,
        ("x:float32[batch,2,width]",),
        lambda: (torch.randn(2, 2, 12),),
        lambda plant: plant.feed(output_of(plant, "Slice", 1), 2, [11]),
    ),
    Exhibit(
        "instance-norm-statistics",
        "pytorch/pytorch#53887",
        "torch.onnx.export",
        "instance norm ignores the running statistics and takes those of each image",
        RunningInstanceNorm,
        ("x:float32[batch,2,3,4]",),
        lambda: (torch.randn(2, 2, 3, 4),),
        instead("Reshape", own_statistics, number=1),
        noticed="measured",
    ),
)
