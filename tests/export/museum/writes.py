"""Bugs in writes to tensors: sums at equal places that keep one summand, and writes that are lost."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.export.museum.exhibit import Exhibit, attribute, instead, operand


class IndexPut(nn.Module):
    def forward(self, x: Tensor, places: Tensor, values: Tensor) -> Tensor:
        return x.index_put((places,), values, accumulate=True)


class ScatterAdd(nn.Module):
    def forward(self, x: Tensor, places: Tensor, values: Tensor) -> Tensor:
        return torch.scatter_add(x, 1, places, values)


class IndexAdd(nn.Module):
    def forward(self, x: Tensor, places: Tensor, values: Tensor) -> Tensor:
        return torch.index_add(x, 1, places, values)


class SliceAssignment(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        repeated = x.repeat([1, 3])
        repeated[:, :2] = x * 2
        return repeated


class MaskedView(nn.Module):
    """Fills a view of its input, which changes the input, too."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([True, False]))
        self.mask: Tensor

    def forward(self, x: Tensor) -> Tensor:
        filled = x.clone()
        filled.view(-1, 3, 2).masked_fill_(self.mask.unsqueeze(0), 1000.0)
        return filled


EXHIBITS = (
    Exhibit(
        "index-put",
        "pytorch/pytorch#61034",
        "torch.onnx.export",
        "`index_put(accumulate=True)` keeps the last of several values at one place",
        IndexPut,
        ("x:float32[5,3]", "places:int64[batch]", "values:float32[batch,3]"),
        lambda: (torch.ones(5, 3), torch.tensor([0, 4, 2, 2, 4]), torch.ones(5, 3)),
        attribute("ScatterND", reduction="none"),
    ),
    Exhibit(
        "scatter-add",
        "pytorch/pytorch#125835",
        "torch.onnx.export",
        "`scatter_add` keeps the last value at a place and drops what was there",
        ScatterAdd,
        ("x:float32[batch,10]", "places:int64[batch,10]", "values:float32[batch,10]"),
        lambda: (torch.randn(4, 10), torch.randint(0, 4, (4, 10)), torch.randn(4, 10)),
        attribute("ScatterElements", reduction="none"),
    ),
    Exhibit(
        "index-add",
        "pytorch/pytorch#111159",
        "torch.onnx.export",
        "`index_add` with equal places keeps one value",
        IndexAdd,
        ("x:float32[batch,5]", "places:int64[4]", "values:float32[batch,4]"),
        lambda: (torch.randn(2, 5), torch.tensor([0, 2, 2, 4]), torch.randn(2, 4)),
        attribute("ScatterND", reduction="none"),
    ),
    Exhibit(
        "slice-assignment",
        "pytorch/pytorch#19948",
        "torch.onnx.export",
        "`a[:, :2] = 2 * x` is not in the file",
        SliceAssignment,
        ("x:float32[batch,2]",),
        lambda: (torch.randint(0, 10, (2, 2)).float(),),
        instead("ScatterND", lambda plant, _: plant.Identity(plant["repeat"]), number=1),
    ),
    Exhibit(
        "masked-view",
        "pytorch/pytorch#95050",
        "torch.onnx.export",
        "`masked_fill_` of a view is not in the file",
        MaskedView,
        ("x:float32[batch,6]",),
        lambda: (torch.randn(2, 6),),
        instead("Where", lambda plant, node: plant.Identity(operand(node, 2))),
    ),
)
