"""Graphs that are decided to be their network's function: rounding informs, and seldom refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from turnpike.export.parity.error_stats import EPS, TensorErrors, compare_tensors
from turnpike.export.pipeline import export_model

NAN, INF = float("nan"), float("inf")


class Normalized(nn.Module):
    """A row with an infinity is NaN behind F.normalize in PyTorch, and 0 in onnxruntime."""

    def forward(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1)


class Highway(nn.Module):
    def __init__(
        self, activation: Callable[[Tensor], Tensor] = torch.relu, norm: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.gate, self.transform = nn.Linear(8, 8), nn.Linear(8, 8)
        self.activation, self.norm = activation, norm or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        z = self.norm(x)
        t = torch.sigmoid(self.gate(z))
        return self.activation(self.transform(z)) * t + x * (1 - t)


class HalfWeights(nn.Module):
    """Parameters in bfloat16, which the network computes with in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8).bfloat16())
        self.highway = Highway()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.highway(x @ self.weight.float())
        return result


class Odds(Highway):
    """T and C are found only by the laws of exponentials, and so are their logits."""

    def forward(self, x: Tensor) -> Tensor:
        odds = torch.exp(self.gate(x))
        return odds / (1 + odds) * self.transform(x) + 1 / (1 + odds) * x


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: Highway(norm=nn.RMSNorm(8)), id="rms norm"),
        pytest.param(lambda: Highway(F.gelu), id="gelu first"),
        pytest.param(lambda: Highway(F.selu), id="selu"),
        pytest.param(
            lambda: Highway(F.selu, nn.LayerNorm(8, elementwise_affine=False)), id="norm without weights"
        ),
        pytest.param(HalfWeights, id="bfloat16"),
        pytest.param(lambda: Highway(norm=nn.RMSNorm(8)).double(), id="rms norm in float64"),
        pytest.param(lambda: Highway(torch.nan_to_num), id="nan_to_num"),
        pytest.param(Odds, id="odds"),
    ],
)
def test_honest_networks_are_exported(build: Callable[[], nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = build().eval()
    dtype = str(next(net.parameters()).dtype).removeprefix("torch.").replace("bfloat16", "float32")
    result = export_model(net, tmp_path, name="net", inputs=[f"x:{dtype}[batch,8]"])
    assert result.manifest.identity is not None
    assert result.manifest.identity.proved
    assert result.warnings == ()


def test_an_extreme_batch_informs(tmp_path: Path) -> None:
    """It was refused, as onnxruntime has no NaN where PyTorch has one."""
    torch.manual_seed(0)
    result = export_model(
        Highway(norm=Normalized()).eval(), tmp_path, name="net", inputs=["x:float32[batch,8]"]
    )
    (warning,) = result.warnings
    assert warning.startswith(
        "rounding: layer00.transform_gate with the batch 'one Inf': expected NaN in the 8"
    )


@pytest.mark.parametrize(
    ("ort", "native", "exact", "passes"),
    [
        (NAN, NAN, NAN, True),
        (INF, NAN, INF, True),  # as float64 has it
        (1.0, INF, 1.0, True),  # float32 overflows before onnxruntime does
        (NAN, NAN, 1.0, True),  # as PyTorch has it
        (NAN, INF, 1.0, False),
        (-INF, INF, INF, False),
        (INF, 1.0, 1.0, False),
        (1.0, NAN, NAN, False),
    ],
)
def test_what_is_no_number_may_be_as_in_float64_or_in_float32(
    ort: float, native: float, exact: float, passes: bool
) -> None:
    errors = compare_tensors(
        TensorErrors("y", "output", "one Inf", False),
        ort=np.array([[ort, 2.0]], np.float32),
        native=np.array([[native, 2.0]], np.float32),
        float64=np.array([[exact, 2.0 + EPS]]),
    )
    assert (errors.mismatch == "") == passes
    # a NaN of float32 alone, as that of gelu(inf) on some CPUs, is no NaN that onnxruntime loses
    assert errors.dropped_nans == 0
