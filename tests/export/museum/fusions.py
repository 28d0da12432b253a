"""Bugs of optimizers that replace several operators by one: the optimized graph is another function."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from tests.export.identity.planting import Array, Plant
from tests.export.museum.exhibit import Exhibit, attribute, instead, operand


class ScaledPositions(nn.Module):
    """A layer norm written out, whose scale belongs to the position and not to the channel."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(6, 1)), nn.Parameter(torch.randn(1))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-5) * self.scale + self.shift


class SmallEpsilon(nn.Module):
    """A layer norm written out, with the epsilon of BERT."""

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = (centred * centred).mean(-1, keepdim=True)
        return centred / torch.sqrt(variance + 1e-12)


class Product(nn.Module):
    def __init__(self, **factors: Any) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(4))
        self.factors = factors

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight, **self.factors)


class NormedProduct(Product):
    def __init__(self) -> None:
        super().__init__(beta=2.0)
        self.norm = nn.BatchNorm1d(4)
        self.norm.running_mean, self.norm.running_var = torch.randn(4), 1 + torch.rand(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(super().forward(x))


class BiasedSoftmax(nn.Module):
    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        return (x + bias).softmax(1)


class ZeroCentredNorm(nn.Module):
    """A layer norm that learns how far its scale is from 1."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(6) / 10), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, (6,), 1 + self.scale, self.shift)


def fused_layer_norm(plant: Plant, node: ir.Node) -> ir.Value:
    """The operator takes the six scales for those of the last axis."""
    scale, shift = numbers(plant["scale"]).reshape(6), np.full(6, numbers(plant["shift"])[0])
    return plant.LayerNormalization(plant["x"], scale, shift, axis=-1, epsilon=1e-5)


def default_epsilon(plant: Plant, node: ir.Node) -> ir.Value:
    return plant.LayerNormalization(plant["x"], np.ones(6, np.float32), axis=-1)


def fused_batch_norm(plant: Plant, node: ir.Node) -> ir.Value:
    """The norm is folded into weights and bias as if beta were 1, and beta stays."""
    scale, shift, mean, variance = (numbers(operand(node, number)) for number in range(1, 5))
    factor = (scale / np.sqrt(variance + np.float32(1e-5))).astype(np.float32)
    weight = numbers(plant["weight"]) * factor
    bias = ((numbers(plant["bias"]) - mean) * factor + shift).astype(np.float32)
    return plant.Gemm(plant["x"], weight, bias, beta=2.0)


def coerced_softmax(plant: Plant, node: ir.Node) -> ir.Value:
    """The fused kernel takes all axes from the given one for one, as softmax did before opset 13."""
    flat = plant.Softmax(plant.Flatten(operand(node), axis=1), axis=-1)
    return plant.Reshape(flat, [-1, 3, 4])


def numbers(value: ir.Value) -> Array:
    assert value.const_value is not None
    return value.const_value.numpy()


EXHIBITS = (
    Exhibit(
        "layer-norm-fusion",
        "microsoft/onnxruntime#25855",
        "onnxruntime (LayerNormFusion)",
        "a scale per position is taken for one per channel",
        ScaledPositions,
        ("x:float32[batch,6,6]",),
        lambda: (torch.randn(2, 6, 6),),
        instead("Add", fused_layer_norm, number=1),
    ),
    Exhibit(
        "layer-norm-epsilon",
        "microsoft/onnxruntime#2639",
        "onnxruntime (LayerNormFusion)",
        "a layer norm gets the default epsilon, 1e-5, instead of its own 1e-12",
        SmallEpsilon,
        ("x:float32[batch,6]",),
        lambda: (torch.randn(2, 6),),
        instead("Div", default_epsilon),
        is_pull=True,
    ),
    Exhibit(
        "gemm-alpha",
        "microsoft/onnxruntime#28130",
        "onnxruntime (QDQ fusion)",
        "`alpha` of a Gemm multiplies the bias, too",
        lambda: Product(alpha=2.0),
        ("x:float32[batch,6]",),
        lambda: (torch.randn(2, 6),),
        attribute("Gemm", beta=2.0),
    ),
    Exhibit(
        "gemm-beta",
        "microsoft/onnxscript#3027",
        "onnxscript (rewriter)",
        "`beta` of a Gemm before a batch norm is applied after the norm was folded",
        NormedProduct,
        ("x:float32[batch,6]",),
        lambda: (torch.randn(2, 6),),
        instead("BatchNormalization", fused_batch_norm),
        is_pull=True,
    ),
    Exhibit(
        "bias-softmax",
        "microsoft/onnxruntime#12517",
        "onnxruntime (BiasSoftmax fusion)",
        "a softmax of an inner axis becomes one of all later axes",
        BiasedSoftmax,
        ("x:float32[batch,3,4]", "bias:float32[batch,3,1]"),
        lambda: (torch.randn(2, 3, 4), torch.randn(2, 3, 1)),
        instead("Softmax", coerced_softmax),
        is_pull=True,
    ),
    Exhibit(
        "layer-norm-scale",
        "NVIDIA/TransformerEngine#214",
        "torch.onnx.export",
        "a layer norm with the scale 1 + g gets the scale g",
        ZeroCentredNorm,
        ("x:float32[batch,6]",),
        lambda: (torch.randn(2, 6),),
        instead(
            "LayerNormalization",
            lambda plant, node: plant.LayerNormalization(
                plant["x"], plant["scale"], plant["shift"], axis=-1, epsilon=1e-5
            ),
        ),
        is_pull=True,
    ),
)
