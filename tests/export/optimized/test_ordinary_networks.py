"""onnxruntime keeps the function of ordinary networks, as far as constants round."""

from __future__ import annotations

import pytest
import torch

from tests.export.optimized.ordinary_networks import NETWORKS, with_statistics
from turnpike.export.identity.decision import Verdict
from turnpike.export.optimized.constants import MAX_ULPS
from turnpike.export.optimized.decide_optimized import decide_optimized
from turnpike.export.options import SourceOptions
from turnpike.export.prepared_graph import prepare
from turnpike.export.sources.load import load_source

# the others take as long as all other tests of this folder
QUICK = {
    "resnet with blocks that are not full",
    "factor and shift of maps",
    "norm last",
    "PyTorch's attention",
}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS]
)
def test_the_function_is_kept(name: str) -> None:
    make, spec = NETWORKS[name]
    torch.manual_seed(1)
    network = load_source(with_statistics(make()), SourceOptions(inputs=(spec,), name="net"))
    graph = decide_optimized(prepare(network).data)
    assert graph.decision.verdict is Verdict.IDENTICAL, graph.verdict_text
    assert graph.ulps < MAX_ULPS
