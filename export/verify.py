"""`verify_model`: prove again that an existing file computes what its source does, on any device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir
from torch import nn
from torch.export import ExportedProgram

from export.errors import ParityError, SourceError, UsageError
from export.input_spec import InputSpec
from export.output.model_bytes import weights_digest
from export.parity.prove import Proof, prove
from export.pipeline import load_with_warnings
from export.precision.compare import MIN_AGREEMENT, Comparison, compare, require_agreement
from export.prepared_graph import PreparedGraph, prepare
from export.source import Source
from export.steps import ProgressListener, Steps
from service.artifact.manifest import Manifest
from service.artifact.runtime import Device, Runtime, open_model


@dataclass(frozen=True)
class VerificationResult:
    """The result of a verification.

    Attributes:
        manifest: The manifest of the verified file.
        proof: Every tensor and batch that was compared, with the errors.
        comparison: How a file of lower precision compares with fp32; None for an fp32 file.
        warnings: What a user should know about the source, the proof and the precision.
    """

    manifest: Manifest
    proof: Proof
    comparison: Comparison | None
    warnings: tuple[str, ...]


def verify_model(
    model: str | Path,
    against: str | Path | nn.Module | ExportedProgram,
    *,
    inputs: Sequence[str | InputSpec] = (),
    weights: Path | None = None,
    data: str | Path | None = None,
    data_dir: Path | None = None,
    labels: Path | Sequence[str] | None = None,
    device: Device = "cpu",
    seed: int = 0,
    min_agreement: float = MIN_AGREEMENT,
    listener: ProgressListener | None = None,
) -> VerificationResult:
    """Prove that a file computes what a source computes.

    A file of lower precision is compared with the source's own fp32 graph, which is proved first.

    Args:
        model: The exported file.
        against: The source that it was exported from, as `export_model` takes it.
        inputs: Arguments of `forward`. Default: the inputs of the file.
        weights: Weights for the factory's module.
        data: Real rows to compare on: an .npz or the name of a data set.
        data_dir: Folder with the original files of the data set; nothing is downloaded then.
        labels: Names of the classes, to compare with those in the manifest.
        device: Where the file runs: "cpu" or "cuda".
        seed: Seed of the random rows that parity is proved on.
        min_agreement: Share of answers in which a lower precision must agree with fp32.
        listener: Called when a step starts, advances or finishes.

    Returns:
        The manifest, the proof, the comparison of a lower precision, and the warnings.

    Raises:
        ParityError: The file or its manifest differs from the source.
        PrecisionError: A file of lower precision agrees with fp32 too rarely.
        SourceError: The source cannot be read, or the file has no manifest.
        ExportError: Anything else that `export_model` reports.
    """
    steps = Steps(listener)
    path = Path(model)
    with steps.step("open"):
        runtime = open_model(path, device=device)
        manifest = runtime.manifest
        if manifest is None:
            raise SourceError(f"{path}: expected a file exported by turnpike, got one without a manifest")
        loaded, source_warnings = load_with_warnings(
            against,
            inputs or file_inputs(runtime, against),
            weights=weights,
            data=data,
            data_dir=data_dir,
            labels=labels,
        )
    with steps.step("trace"):
        fresh = prepare(loaded, opset_of(path) if loaded.graph is None else None)
        if (expected := len(fresh.gates.gates)) != (got := len(manifest.gates)):
            raise ParityError(
                f"{path}: expected the {expected} gates of its source, got {got}: it was exported from "
                "another network"
            )
    with steps.step("verify"):
        is_fp32 = manifest.precision == "fp32"
        proof = prove(
            loaded,
            fresh.traced,
            ir.from_proto(onnx.load(path)) if is_fp32 else fresh.model,
            fresh.gates.origins,
            runtimes=[runtime if is_fp32 else open_model(fresh.data, device=device)],
            seed=seed,
            progress=steps.listener.advanced,
        )
    # the tensors agree: now the claims of the manifest, from the most specific to the digest of all weights
    expect_same_manifest(manifest, fresh, loaded, path)
    if manifest.batch_coupled != proof.batch_coupled:
        raise ParityError(
            f"{path}: manifest: batch_coupled: expected {proof.batch_coupled}, got {manifest.batch_coupled}"
        )
    if manifest.weights != weights_digest(fresh.model):  # a differing weight in the file was named before
        raise ParityError(f"{path}: manifest: weights: expected the digest of the source's, got another")
    comparison = None
    if not is_fp32:
        with steps.step(f"compare {manifest.precision}"):
            comparison = compare(
                open_model(fresh.data, device=device),
                runtime,
                loaded.rows or proof.random_rows,
                precision=manifest.precision,
                gates=fresh.gates.gates,
                sizes=(len(fresh.data), path.stat().st_size),
                drawn=loaded.rows is None,
            )
            require_agreement(comparison, min_agreement)
    all_warnings = (*source_warnings, *proof.warnings, *(comparison.warnings if comparison else ()))
    return VerificationResult(manifest, proof, comparison, all_warnings)


def expect_same_manifest(manifest: Manifest, fresh: PreparedGraph, source: Source, path: Path) -> None:
    """Raise a ParityError if the manifest's gates, outputs or labels are not those of the source's graph."""
    for expected, gate in zip(fresh.gates.gates, manifest.gates, strict=True):
        for field, value in expected:
            if getattr(gate, field) != value:
                raise ParityError(
                    f"{path}: manifest: {gate.name}: {field}: expected {value}, got {getattr(gate, field)}"
                )
    if manifest.outputs != fresh.public_outputs:
        raise ParityError(
            f"{path}: manifest: outputs: expected {', '.join(fresh.public_outputs)}, "
            f"got {', '.join(manifest.outputs)}"
        )
    if source.labels and manifest.labels != source.labels:
        raise ParityError(
            f"{path}: manifest: labels: expected {', '.join(source.labels)}, got {', '.join(manifest.labels)}"
        )


def file_inputs(runtime: Runtime, against: object) -> tuple[InputSpec, ...]:
    """The inputs of the exported file, for a source that does not say which inputs it takes."""
    if isinstance(against, ExportedProgram) or str(against).endswith((".pt2", ".onnx")):
        return ()
    return tuple(InputSpec(tensor.name, tensor.dtype, tensor.dims) for tensor in runtime.inputs)


def opset_of(path: Path) -> int:
    """The ONNX opset of a file."""
    for entry in onnx.load(path, load_external_data=False).opset_import:
        if entry.domain == "":
            return int(entry.version)
    raise UsageError(f"{path}: names no ONNX opset")
