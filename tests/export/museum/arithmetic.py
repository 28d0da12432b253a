"""Bugs in arithmetic: rounding of whole numbers, thresholds, approximations, and axes of a softmax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from tests.export.identity.planting import Plant
from tests.export.museum.exhibit import Exhibit, attribute, instead


class Function(nn.Module):
    """A module without weights."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Tree(nn.Module):
    """A decision tree with the thresholds that training found, in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("thresholds", torch.tensor([0.1, -0.7], dtype=torch.float64))
        self.register_buffer("leaves", torch.tensor([1.0, 2.0, 3.0]))
        self.thresholds: Tensor
        self.leaves: Tensor

    def forward(self, x: Tensor) -> Tensor:
        first, second = x[:, 0].double() <= self.thresholds[0], x[:, 1].double() <= self.thresholds[1]
        inner = torch.where(second, self.leaves[0], self.leaves[1])
        return torch.where(first, inner, self.leaves[2])


class UpperBound(nn.Module):
    def forward(self, x: Tensor, bound: Tensor) -> Tensor:
        return x.clamp(max=bound)


def whole_numbers(*numbers: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.tensor([numbers, numbers[::-1]]),)


def truncated(divisor: int) -> Callable[[Plant, ir.Node], ir.Value]:
    """ONNX's division of whole numbers, which rounds towards 0."""
    return lambda plant, node: plant.Div(plant["x"], np.array(divisor, np.int64))


def float32_quotient(plant: Plant, node: ir.Node) -> ir.Value:
    return plant.Cast(plant.Floor(plant.Div(plant.Cast(plant["x"], to=1), 3.0)), to=7)


def truncated_remainder(plant: Plant, node: ir.Node) -> ir.Value:
    """x - (x / 4) * 4, with a quotient that is rounded towards 0."""
    four = plant.constant(np.array(4, np.int64))
    return plant.Sub(plant["x"], plant.Mul(plant.Div(plant["x"], four), four))


def new_softmax(plant: Plant, node: ir.Node) -> ir.Value:
    """Softmax of the last axis, as opset 13 has it, instead of all axes from the first on."""
    return plant.Reshape(plant.Softmax(plant["x"], axis=-1), [-1, 12])


def float32_thresholds(plant: Plant) -> None:
    plant.weight("thresholds", lambda array: array.astype(np.float32).astype(np.float64))


def constant_bound(plant: Plant) -> None:
    """The bound of the example, which tracing took for a number."""
    plant.wrap("bound", lambda _: plant.constant(np.ones(1, np.float32)))


EXHIBITS = (
    Exhibit(
        "right-shift",
        "pytorch/pytorch#139455",
        "torch.onnx.export",
        "`x >> 8` is a division, which rounds negative numbers up",
        lambda: Function(lambda x: x >> 8),
        ("x:int64[batch,3]",),
        whole_numbers(3527, 256, 12),
        instead("Sub", truncated(256)),
    ),
    Exhibit(
        "remainder-sign",
        "pytorch/pytorch#60179",
        "torch.onnx.export",
        "`x % 4` of a negative whole number is negative",
        lambda: Function(lambda x: torch.remainder(x, 4)),
        ("x:int64[batch,3]",),
        whole_numbers(7, 4, 9),
        instead("Mod", truncated_remainder),
    ),
    Exhibit(
        "floor-division-sign",
        "pytorch/pytorch#78442",
        "torch.onnx.export",
        "`x // 3` of a negative whole number is rounded up",
        lambda: Function(lambda x: torch.div(x, 3, rounding_mode="floor")),
        ("x:int64[batch,3]",),
        whole_numbers(7, 4, 9),
        instead("Sub", truncated(3)),
    ),
    Exhibit(
        "floor-division-float",
        "microsoft/onnxscript#2589",
        "torch.onnx.export",
        "`x // 3` is computed in float32: wrong for whole numbers beyond 2^24",
        lambda: Function(lambda x: torch.div(x, 3, rounding_mode="floor")),
        ("x:int64[batch,3]",),
        whole_numbers(7, 4, 9),
        instead("Sub", float32_quotient),
    ),
    Exhibit(
        "tree-thresholds",
        "onnx/sklearn-onnx#1192",
        "skl2onnx",
        "thresholds are rounded to float32: a value that equals one takes the other branch",
        Tree,
        ("x:float32[batch,2]",),
        lambda: (torch.randn(4, 2),),
        float32_thresholds,
    ),
    Exhibit(
        "constant-clamp",
        "pytorch/vision#1741",
        "torch.onnx.export (tracing)",
        "the bound of a clamp is a constant: that of the example",
        UpperBound,
        ("x:float32[batch,4]", "bound:float32[batch,1]"),
        lambda: (torch.randn(2, 4), torch.ones(2, 1)),
        constant_bound,
    ),
    Exhibit(
        "gelu-approximation",
        "apache/tvm#18750",
        "TVM",
        "`approximate=tanh` is ignored: the exact GELU, up to 5e-4 away",
        lambda: Function(lambda x: gelu(x, approximate="tanh")),
        ("x:float32[batch,6]",),
        lambda: (torch.randn(2, 6),),
        attribute("Gelu", approximate="none"),
    ),
    Exhibit(
        "softmax-axes",
        "apache/tvm#19420",
        "TVM",
        "a softmax of opset 11 over several axes is read as that of opset 13, over the last one",
        lambda: Function(lambda x: x.flatten(1).softmax(-1)),
        ("x:float32[batch,3,4]",),
        lambda: (torch.randn(2, 3, 4),),
        instead("Softmax", new_softmax),
    ),
)
