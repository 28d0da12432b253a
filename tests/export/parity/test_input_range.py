"""A network that is only proved for a range of values: `--input-range`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from turnpike.export.errors import SourceOptionError
from turnpike.export.pipeline import export_model
from turnpike.export.verify import verify_model
from turnpike.service.artifact.proof_records import InputRange

INPUT = "x:float32[batch,10,12]"


class LogSpaceGRU(nn.Module):
    """The minimal GRU in log space: h = exp(a + logcumsumexp(log z + log h~ - a))."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.candidate = nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        z, h = self.gate(x), self.candidate(x)
        log_h = torch.where(h >= 0, (torch.relu(h) + 0.5).log(), -nn.functional.softplus(-h))
        a = torch.cumsum(-nn.functional.softplus(z), 1)
        return (a + torch.logcumsumexp(log_h - nn.functional.softplus(-z) - a, 1)).exp()


def make() -> nn.Module:
    torch.manual_seed(0)
    return LogSpaceGRU().eval()


def test_a_range_is_the_way_out_and_is_recorded(tmp_path: Path) -> None:
    """onnxruntime has no logcumsumexp, and what replaces it is wrong for large numbers."""
    (warning,) = export_model(make(), tmp_path / "any", inputs=[INPUT]).warnings
    assert warning.startswith("rounding: ")
    assert warning.endswith("; if the network never gets such values, give --input-range LOW:HIGH")
    result = export_model(make(), tmp_path, inputs=[INPUT], input_range=["-8:8"])
    assert result.manifest.parity.input_ranges == (InputRange(input="x", low=-8, high=8),)
    assert list(result.manifest.parity.limits) == ["rounding was measured for values of x from -8 to 8 only"]
    assert result.warnings == ()
    assert not result.manifest.batch_coupled
    assert {"one NaN", "one Inf"}.isdisjoint(batch.name for batch in result.manifest.parity.batches)

    # another proof of the file is for the same values
    proof = verify_model(result.path, make(), seed=1).proof
    assert proof.parity.input_ranges == result.manifest.parity.input_ranges
    assert proof.warnings == ()
    assert np.abs(proof.random_rows.inputs["x"]).max() <= 8


class Embedding(nn.Module):
    """A table of 20 rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(20, 4), nn.Linear(4, 4)

    def forward(self, ids: Tensor) -> Tensor:
        return self.layer(self.table(ids))


def test_a_range_of_ids_that_the_network_rejects_is_refused(tmp_path: Path) -> None:
    """It is never narrowed: the file would say that it is proved for ids that fail."""
    source = {"inputs": ["ids:int64[batch,5]"]}
    with pytest.raises(SourceOptionError, match=r"ids: the network .* 3 to 50 \(.*range.*\); .* ids=3:19$"):
        export_model(Embedding(), tmp_path, **source, input_range=["ids=3:50"])
    result = export_model(Embedding(), tmp_path, **source, input_range=["ids=3:19"])
    assert result.manifest.parity.input_ranges == (InputRange(input="ids", low=3, high=19),)
