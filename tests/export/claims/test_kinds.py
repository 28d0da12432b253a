"""Claims of files in a lower precision, plain twins, compressed files, and files of other sources."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from tests.support.onnx_sources import WEIGHT, dense, model_of, value
from tests.support.text_checkpoint import save_names_checkpoint
from turnpike.export.claims.checklist import NO_CHECK, SPLIT_ROWS, Checklist, field_paths
from turnpike.export.compress import trials
from turnpike.export.compress.remove_units import compress_model
from turnpike.export.errors import ParityError
from turnpike.export.output.model_bytes import embed_manifest
from turnpike.export.pipeline import export_model
from turnpike.export.verify import VerificationResult, verify_model
from turnpike.models.layers.highway import HighwayLayer
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.runtime import open_model

INPUT = "x:float32[batch,6]"
LIMITS: dict[str, Any] = {"min_agreement": 0.0, "max_error": 1.0}


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), HighwayLayer(8), HighwayLayer(8), nn.Linear(8, 3)).eval()


def with_claims(path: Path, **changes: Any) -> Path:
    """A copy of a file whose manifest claims something else."""
    manifest = open_model(path).manifest
    assert manifest is not None
    changed = path.with_name("changed.onnx")
    changed.write_bytes(embed_manifest(path.read_bytes(), manifest.model_copy(update=changes)))
    return changed


def expect_complete(result: VerificationResult, *claimed: str) -> None:
    """Check that no field is forgotten, and that no others than these are claimed."""
    assert NO_CHECK not in result.claims.claimed.values()
    assert {"tools", *claimed} == set(result.claims.claimed) - {"random_weights"}


def test_a_field_that_no_check_knows_is_claimed() -> None:
    """Nothing is checked here, so every field is listed."""
    claims = Checklist(Path("model.onnx"))
    claims.check("parity.batches")
    claims.claim("no rows", "profile")
    claimed = claims.result().claimed
    paths = set(field_paths(Manifest))
    assert {"parity.batches.digest", "gates.levers.sign", "samples.inputs.data", "labels"} <= paths
    expected = {path for path in paths if not path.startswith(("parity.batches.", "profile."))}
    assert {field for field, reason in claimed.items() if reason == NO_CHECK} == expected


@pytest.mark.parametrize("precision", ["fp16", pytest.param("int8", marks=pytest.mark.slow)])
def test_a_lower_precision(tmp_path: Path, precision: Any) -> None:
    """The file is what lowering the source's graph gives, and compares with fp32 as it says."""
    path = export_model(network(), tmp_path, name="net", inputs=[INPUT], precision=precision, **LIMITS).path
    verified = verify_model(path, network(), **LIMITS)
    expect_complete(verified)
    assert {"precision", "variant", "weights"} <= set(verified.claims.checked)
    expect_complete(verify_model(path, network(), seed=3, **LIMITS), "variant")
    variant = verified.manifest.variant
    assert variant is not None
    for changes, message in (
        ({"variant": None}, "variant: expected a comparison of "),
        ({"variant": variant.model_copy(update={"rows": 2000})}, "variant: rows: expected 128, got 2000"),
        ({"variant": variant.model_copy(update={"error": 1e-9})}, "variant: error: expected "),
        ({"variant": variant.model_copy(update={"agreement": 0.5})}, "variant: agreement: expected "),
    ):
        with pytest.raises(ParityError, match=f"manifest: {message}"):
            verify_model(with_claims(path, **changes), network(), **LIMITS)
    changed = onnx.load(path)
    scale = next(tensor for tensor in changed.graph.initializer if len(tensor.dims) == 1)
    scale.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(scale) * 1.5, scale.name))
    path.write_bytes(embed_manifest(changed.SerializeToString(), verified.manifest))
    others = verify_model(path, network(), seed=3, **LIMITS).claims.claimed
    assert others["precision"] == f"this version makes another {precision} graph, so rows alone compare it"


def test_a_plain_twin(tmp_path: Path) -> None:
    """It has no gates; and a file with gates is no twin."""
    exported = export_model(network(), tmp_path, name="net", inputs=[INPUT], plain=True)
    assert exported.plain is not None
    expect_complete(verify_model(exported.plain, network()))
    with pytest.raises(ParityError, match="levers: expected none, got 1.gate.bias, 2.gate.bias"):
        verify_model(with_claims(exported.path, plain=True, gates=()), network())
    with pytest.raises(ParityError, match="gates: expected 2, as the source has, got 0"):
        verify_model(with_claims(exported.plain, plain=False), network())


def test_an_adopted_graph_with_other_names_and_a_range(tmp_path: Path) -> None:
    """The rows are those of the names in the file, inside the ranges of the file."""
    source = tmp_path / "source.onnx"
    onnx.save(model_of(dense(), [value("x", "batch", 4)], [value("y", "batch", 3)], [WEIGHT]), source)
    options: dict[str, Any] = {"inputs": ["rows:float32[n,4]"], "input_range": ["-2:2"]}
    path = export_model(source, tmp_path, name="net", **options).path
    verified = verify_model(path, source)
    expect_complete(verified)
    parity = verified.manifest.parity
    assert parity.reference.startswith("the graph as it came")
    wider = parity.input_ranges[0].model_copy(update={"high": 3.0})
    false = with_claims(path, parity=parity.model_copy(update={"input_ranges": (wider,)}))
    with pytest.raises(ParityError, match="manifest: parity: batches: '1 row': digest: expected"):
        verify_model(false, source)


@pytest.fixture
def compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A compressed file, and the file that it was made from."""
    monkeypatch.setattr(trials, "MIN_GAIN", 0.0)  # so small a network is no faster
    net = network()
    with torch.no_grad():
        for layer in (net[1], net[2]):  # type: ignore[index]
            layer.gate.bias[2:] = -12
    rows = tmp_path / "rows.npz"
    np.savez(
        rows, x=np.random.default_rng(0).standard_normal((200, 6)).astype(np.float32), y=np.arange(200) % 3
    )
    source = export_model(net, tmp_path / "whole", name="net", inputs=[INPUT], data=rows, samples=2).path
    return compress_model(source, tmp_path / "cut", data=rows, keep=0.25).path, source


def test_a_compressed_file(compressed: tuple[Path, Path]) -> None:
    """What was removed is checked, by cutting the source again; the rows are claimed."""
    path, source = compressed
    verified = verify_model(path, source)
    assert NO_CHECK not in verified.claims.claimed.values()
    manifest, compression = verified.manifest, verified.manifest.compression
    assert compression is not None
    assert verified.claims.claimed["profile"] == SPLIT_ROWS
    gate = manifest.gates[0]
    for changes, message in (
        ({"units": 1}, "compression.units: expected 4, as cut here, got 1"),
        ({"units_whole": 99}, "compression.units_whole: expected 16, as cut here, got 99"),
        ({"macs": 1}, "compression.macs: expected"),
        ({"macs_whole": 10**9}, "compression.macs_whole: expected"),
        ({"original": "0" * 64}, "compression.original: expected"),
    ):
        false = with_claims(path, compression=compression.model_copy(update=changes))
        with pytest.raises(ParityError, match=f"manifest: {re.escape(message)}"):
            verify_model(false, source)
    for update, message in (
        ({"kept": (1, 0)}, "kept: expected ascending numbers from 0 to 7, got 1, 0"),
        ({"kept": (0, 99)}, "kept: expected ascending numbers from 0 to 7, got 0, 99"),
        ({"units": 7}, "units: expected 2, got 7"),
    ):
        false = with_claims(path, gates=(gate.model_copy(update=update), *manifest.gates[1:]))
        with pytest.raises(ParityError, match=re.escape(message)):
            verify_model(false, source)


@pytest.mark.slow
def test_a_checkpoint_leaves_hardly_anything_to_believe(tmp_path: Path) -> None:
    """It records labels and alphabet, and its own test rows are those of the export."""
    run = save_names_checkpoint(tmp_path / "model.safetensors")
    path = export_model(run, tmp_path / "repo").path
    expect_complete(verify_model(path, run))
    for changes, message in (
        ({"alphabet": "abc"}, "alphabet: expected"),
        ({"text": None}, "text: expected texts for ids"),
    ):
        with pytest.raises(ParityError, match=f"manifest: {message}"):
            verify_model(with_claims(path, **changes), run)
