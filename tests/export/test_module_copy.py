"""Copies of modules that keep tensors computed from their parameters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import weight_norm

from turnpike.export.module_copy import copy_module
from turnpike.export.pipeline import export_model

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")


class NormedHighway(nn.Module):
    """A convolutional highway with old weight norm, as in text-to-speech networks."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = weight_norm(nn.Conv1d(4, 4, 3, padding=1))
        self.transform = weight_norm(nn.Conv1d(4, 4, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        return t * torch.relu(self.transform(x)) + (1 - t) * x


def trained() -> NormedHighway:
    """The network after a training step, whose computed weights have a gradient."""
    module = NormedHighway()
    module(torch.randn(2, 4, 5)).sum().backward()
    return module


def test_a_copy_shares_no_tensors() -> None:
    """Neither a parameter, nor a buffer with a gradient, nor one in a list."""
    module = trained()
    module.register_buffer("computed", module.gate.bias * 2)
    module.cache = [{"weight": module.gate.weight}]
    copied = copy_module(module)
    x = torch.randn(1, 4, 6)
    assert torch.equal(copied(x), module(x))
    assert torch.equal(copied.cache[0]["weight"], module.gate.weight)
    with torch.no_grad():
        for tensor in (*copied.parameters(), *copied.buffers(), copied.cache[0]["weight"]):
            tensor.zero_()
    assert all(tensor.any() for tensor in (*module.parameters(), *module.buffers(), module.gate.weight))
    assert module.training


def test_old_weight_norm_is_exported(tmp_path: Path) -> None:
    """Magnitude and direction are the weights of the file, and the module keeps its own."""
    module = trained()
    weight = module.gate.weight
    manifest = export_model(module, tmp_path, inputs=["x:float32[batch,4,time]"]).manifest
    assert manifest.parity.reference.startswith("the original network in float64")
    assert [gate.kind for gate in manifest.gates] == ["coupled"]
    assert module.gate.weight is weight
    assert module.training
