"""Export a PyTorch module of your own, see which gates were found in it, and run the file.

python examples/export_your_module.py [REPOSITORY]
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import Tensor, nn

from turnpike import export_model, open_model


class MyHighway(nn.Module):
    """A highway layer that knows nothing of turnpike: its gate is found in the graph."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        t = torch.sigmoid(self.gate(x))
        return torch.relu(self.transform(x)) * t + x * (1 - t)


def main(repository: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(MyHighway(20), MyHighway(20), nn.Linear(20, 3)).eval()

    # "batch" is a free dimension, 20 a fixed one; the file appears only if parity is proved
    result = export_model(module, repository, name="mine", inputs=["x:float32[batch,20]"])
    print(f"wrote {result.path}")
    for gate in result.manifest.gates:
        print(f"  {gate.name}: layer {gate.layer}, {gate.kind}, {gate.units} units")

    # run the file as the service does; gates are outputs that appear only when asked for
    model = open_model(result.path)
    rows = np.random.default_rng(0).normal(size=(5, 20)).astype(np.float32)
    first = result.manifest.gates[0]
    output, transform_gate = model.run({"x": rows}, ["output", first.name])
    with torch.no_grad():
        difference = np.abs(output - module(torch.from_numpy(rows)).numpy()).max()
    print(f"largest difference from PyTorch: {difference:.1e}")
    print(f"mean T of {first.name}: {transform_gate.mean():.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:] or ["repository"])
