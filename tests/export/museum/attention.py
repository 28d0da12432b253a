"""Bugs in what chooses: experts that the example did not use, and masks."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tests.export.identity.planting import Plant
from tests.export.museum.exhibit import Exhibit, instead, operand


class Experts(nn.Module):
    """Of four experts, each row uses the two that its router prefers."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(6, 4)
        self.experts = nn.ModuleList(nn.Linear(6, 5) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, -1)
        total = torch.zeros(())
        for number, expert in enumerate(self.experts):
            share = torch.where(chosen == number, weights, 0.0).sum(-1, keepdim=True)
            total = total + share * expert(x)
        return total


class MaskedAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = (layer(x).unsqueeze(1) for layer in (self.query, self.key, self.value))
        return scaled_dot_product_attention(query, key, value, mask.unsqueeze(1)).squeeze(1)


class InstructionPooling(nn.Module):
    """The mean of the tokens after an instruction, whose length each row has."""

    def forward(self, x: Tensor, instruction: Tensor) -> Tensor:
        kept = (torch.arange(x.shape[1]) >= instruction.unsqueeze(1)).to(x.dtype).unsqueeze(-1)
        return (x * kept).sum(1) / (kept.sum(1) + 1e-9)


def rows_of_the_last_experts() -> tuple[Tensor, ...]:
    """Two rows whose router prefers the last two experts."""
    torch.manual_seed(0)
    experts, x = Experts(), torch.randn(200, 6)
    return (x[(experts.router(x).topk(2).indices >= 2).all(-1)][:2],)


def lose_experts(plant: Plant) -> None:
    """Only the last two experts are in the graph: the example's rows used no other."""
    # the sums of the outputs of experts, from the second on
    sums = [node for node in plant.model.graph if node.op_type == "Add"]
    plant.feed(str(sums[2].outputs[0].name), 0, 0.0)


def without_guard(plant: Plant, node: ir.Node) -> ir.Value:
    """The softmax itself, without the selection that turns NaN into 0."""
    return plant.Identity(operand(node, 2))


def first_rows_alone(plant: Plant) -> None:
    """Python's loop over the rows ran twice in the example, so the graph masks two rows."""

    def build(lengths: ir.Value) -> ir.Value:
        rows = plant.Range(np.array(0, np.int64), plant.Squeeze(plant.size()), np.array(1, np.int64))
        return plant.Where(plant.Less(rows, np.array(2, np.int64)), lengths, np.array(0, np.int64))

    plant.wrap("instruction", build)


EXHIBITS = (
    Exhibit(
        "lost-experts",
        "Tencent/YOLO-Master#42",
        "torch.onnx.export (tracing)",
        "experts that the example's rows did not use are not in the file",
        Experts,
        ("x:float32[batch,6]",),
        rows_of_the_last_experts,
        lose_experts,
    ),
    Exhibit(
        "masked-row",
        "microsoft/onnxscript#2479",
        "torch.onnx.export",
        "NaN where a boolean mask hides all keys of a query; PyTorch gives 0",
        MaskedAttention,
        ("x:float32[batch,6,8]", "mask:bool[batch,6,6]"),
        lambda: (torch.randn(2, 6, 8), torch.ones(2, 6, 6, dtype=torch.bool)),
        instead("Where", without_guard, number=1),
        is_pull=True,
    ),
    Exhibit(
        "folded-mask",
        "xlang-ai/instructor-embedding#92",
        "torch.onnx.export (tracing)",
        "only as many rows are masked as the example had",
        InstructionPooling,
        ("x:float32[batch,6,4]", "instruction:int64[batch]"),
        lambda: (torch.randn(2, 6, 4), torch.tensor([3, 2])),
        first_rows_alone,
        noticed="measured",
        is_pull=True,
    ),
)
