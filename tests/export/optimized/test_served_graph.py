"""A file of which an optimizer makes another function is served without it.

onnxruntime's `Pad_Fusion` is such an optimizer. The service never uses it, so it is turned on here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.export.optimized.networks import CASES, ConvolutionNet, make
from turnpike.export.errors import ParityError
from turnpike.export.identity.decision import Verdict
from turnpike.export.optimized.decide_optimized import decide_optimized
from turnpike.export.optimized.served_graph import ALL_OPTIMIZERS, choose_optimizers
from turnpike.export.optimized.wrong_optimizers import OPTIMIZERS, find_wrong_optimizer
from turnpike.export.output.model_bytes import embed_manifest
from turnpike.export.pipeline import export_model
from turnpike.export.verify import verify_model
from turnpike.service.artifact import runtime as runtime_module
from turnpike.service.artifact.runtime import open_model

SPEC = "x:float32[batch,3,9,9]"
DATA = CASES["convolution"].data


@pytest.fixture
def wrong_optimizer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Lets onnxruntime use the optimizer that the service leaves out."""
    assert runtime_module.WRONG_OPTIMIZERS == ["Pad_Fusion"]
    with monkeypatch.context() as patch:
        patch.setattr(runtime_module, "WRONG_OPTIMIZERS", [])
        yield


def test_an_honest_file_has_all_optimizers() -> None:
    assert choose_optimizers(DATA) is ALL_OPTIMIZERS


@pytest.mark.usefixtures("wrong_optimizer")
def test_a_real_wrong_optimizer_is_found() -> None:
    graph = decide_optimized(DATA)
    assert graph.decision.verdict is Verdict.DIFFERENT
    assert "MaxPool" in str(graph.decision.first_difference)
    wrong = find_wrong_optimizer(DATA)
    assert wrong is not None
    assert wrong.name == "Pad_Fusion"
    assert wrong.graph.decision.verdict is Verdict.IDENTICAL
    assert "Pad_Fusion" in OPTIMIZERS


@pytest.mark.usefixtures("wrong_optimizer")
def test_an_export_leaves_it_out_and_warns(tmp_path: Path) -> None:
    net = make(ConvolutionNet).eval()
    result = export_model(net, tmp_path, name="net", inputs=[SPEC])
    assert result.manifest.disabled_optimizers == ("Pad_Fusion",)
    (warning,) = [text for text in result.warnings if "optimizer" in text]
    assert "The file is served without its optimizer Pad_Fusion: a run of one row takes " in warning

    # the service answers as the network does; with the optimizer, it would not
    x = np.random.default_rng(0).standard_normal((2, 3, 9, 9)).astype(np.float32)
    expected = net(torch.from_numpy(x)).detach().numpy()
    (answer,) = open_model(result.path).run({"x": x})
    np.testing.assert_allclose(answer, expected, atol=1e-5)
    without_manifest = open_model(DATA).run({"x": x}, [str(open_model(DATA).outputs[0].name)])[0]
    assert np.abs(without_manifest - expected).max() > 1e-3

    verified = verify_model(result.path, net)
    assert verified.optimized is not None
    assert verified.optimized.decision.verdict is Verdict.IDENTICAL
    assert "disabled_optimizers" in verified.claims.checked


@pytest.mark.usefixtures("wrong_optimizer")
def test_a_file_that_does_not_name_it_is_not_verified(tmp_path: Path) -> None:
    """Its rounding is fine for maps that are nowhere below zero, so that only the decision notices it."""

    class Positive(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.max_pool2d(F.pad(F.relu(x) + 1, (1, 1, 1, 1)), 3, 2)

    result = export_model(Positive(), tmp_path, name="net", inputs=[SPEC])
    assert result.manifest.disabled_optimizers == ("Pad_Fusion",)
    other = result.manifest.model_copy(update={"disabled_optimizers": ()})
    result.path.write_bytes(embed_manifest(result.path.read_bytes(), other))
    with pytest.raises(
        ParityError, match=r"disabled_optimizers: onnxruntime's optimizer makes another function"
    ):
        verify_model(result.path, Positive())
