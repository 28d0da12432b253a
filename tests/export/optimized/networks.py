"""Networks of which onnxruntime makes other graphs, and those graphs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import onnx_ir as ir
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from turnpike.export.optimized.decide_optimized import OptimizedGraph, decide_optimized_graph
from turnpike.export.optimized.normal_form import optimize
from turnpike.export.options import SourceOptions
from turnpike.export.prepared_graph import prepare
from turnpike.export.sources.load import load_source
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import MlpConfig


class ConvolutionNet(nn.Module):
    """Convolutions with a batch norm, in blocks of channels that are not full, and a pool of padded maps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 20, 3, padding=1), nn.Conv2d(20, 5, 3, bias=False)
        self.norm, self.other = nn.BatchNorm2d(20), nn.BatchNorm2d(20)
        for norm in (self.norm, self.other):
            nn.init.uniform_(norm.running_mean, -1, 1)
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.uniform_(norm.weight, 0.5, 2)
            nn.init.uniform_(norm.bias, -1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm(self.first(x)))
        y = self.other(F.max_pool2d(F.pad(y - y.mean(), (1, 1, 1, 1)), 3, 2))
        return self.last(y).mean((2, 3))


class AttentionNet(nn.Module):
    """Attention whose scale is no power of two, a GELU with a bias, and norms of sums."""

    def __init__(self) -> None:
        super().__init__()
        self.parts, self.joined = nn.Linear(24, 72), nn.Linear(24, 24)
        self.norm, self.up, self.down = nn.LayerNorm(24), nn.Linear(24, 24, bias=True), nn.Linear(24, 24)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x).chunk(3, -1)
        heads = torch.softmax(query @ key.transpose(-1, -2) / 24**0.5, -1) @ value
        y = self.norm(x + self.joined(heads))
        return y - self.down(F.gelu(self.up(y)))


@dataclass(frozen=True)
class Case:
    """A network, its input, and the file that is made of it."""

    module: nn.Module
    spec: str

    @cached_property
    def data(self) -> bytes:
        network = load_source(self.module.eval(), SourceOptions(inputs=(self.spec,), name="net"))
        return prepare(network).data

    def optimized(self) -> ir.Model:
        """The graph that onnxruntime makes of the file, to be changed."""
        return optimize(self.data)

    def decide(self, optimized: ir.Model | None = None) -> OptimizedGraph:
        return decide_optimized_graph(self.data, self.optimized() if optimized is None else optimized)


def make(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(3)
    return kind()


def highway() -> nn.Module:
    torch.manual_seed(3)
    return build_network(MlpConfig(inputs=(6,), classes=3, width=8, layers=3))


CASES = {
    "convolution": Case(make(ConvolutionNet), "x:float32[batch,3,9,9]"),
    "attention": Case(make(AttentionNet), "x:float32[batch,7,24]"),
    "highway": Case(highway(), "x:float32[batch,6]"),
}
