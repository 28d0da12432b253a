"""Weights of layers: the same effect on the output counts the same, whatever the scale of the layer."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from turnpike.export.compress.graph.removable_layers import find_removable_layers
from turnpike.export.compress.layer_weights import weigh_layers
from turnpike.export.compress.trials import Cutter
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network, Rows
from turnpike.export.prepared_graph import prepare
from turnpike.models.layers.highway import HighwayLayer

SCALE = 100


class TwoScales(nn.Module):
    """Two equal layers side by side; the state of the second is SCALE times as large."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = HighwayLayer(8), HighwayLayer(8)
        self.second.load_state_dict(self.first.state_dict())
        with torch.no_grad():
            for module in (self.second.normal_layer, self.second.gate):
                module.weight /= SCALE
            self.second.normal_layer.weight *= SCALE
            self.second.normal_layer.bias *= SCALE

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.first(x), self.second(SCALE * x) / SCALE], dim=-1)


def test_weights_undo_the_scales_of_layers() -> None:
    """Both layers change the output equally, so their units have the same weighed importance."""
    torch.manual_seed(0)
    network = Network("net", "module", parse_inputs(["x:float32[batch,8]"]), module=TwoScales().eval())
    graph = prepare(network)
    layers = find_removable_layers(graph.model, graph.gates.gates).layers
    first, second = (layer.gate.name for layer in layers)
    rows = Rows({"x": np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)})
    changes = np.linspace(0.1, 1, 8)
    weighed = weigh_layers(Cutter(graph, layers), {first: changes, second: SCALE * changes}, rows)
    np.testing.assert_allclose(weighed[first], weighed[second], rtol=1e-3)
    assert (np.diff(weighed[first]) > 0).all()
    # units that change nothing have no influence on the weight of their layer
    still = weigh_layers(Cutter(graph, layers), {first: changes, second: np.zeros(8)}, rows)
    np.testing.assert_array_equal(still[second], np.zeros(8))
    np.testing.assert_allclose(still[first], weighed[first])
