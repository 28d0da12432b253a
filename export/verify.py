"""The proof once more, of a file that exists: against its source, on any device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir
from torch import nn
from torch.export import ExportedProgram

from export.errors import ParityError, RequestError, SourceError
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
    """What a verification came to; `comparison` is there for a file of lower precision."""

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
    watcher: ProgressListener | None = None,
) -> VerificationResult:
    """Prove that a file computes what a source does; a ParityError says where it does not.

    A file of lower precision is compared with the source's own fp32 graph, which is proved first.
    """
    steps = Steps(watcher)
    path = Path(model)
    with steps.step("open"):
        runtime = open_model(path, device=device)
        manifest = runtime.manifest
        if manifest is None:
            raise SourceError(f"{path}: expected a file that turnpike exported, and it has no manifest")
        loaded, notes = load_with_warnings(
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
                f"{path}: expected the gates of its source, which are {expected}, got {got}: it was exported "
                "from another network"
            )
    with steps.step("verify"):
        whole = manifest.precision == "fp32"
        proof = prove(
            loaded,
            fresh.traced,
            ir.from_proto(onnx.load(path)) if whole else fresh.model,
            fresh.gates.origins,
            runtimes=[runtime if whole else open_model(fresh.data, device=device)],
            seed=seed,
            progress=steps.watcher.moved,
        )
    expect_same_manifest(manifest, fresh, loaded, path)
    if manifest.batch_coupled != proof.batch_coupled:
        raise ParityError(
            f"{path}: manifest: batch_coupled: expected {proof.batch_coupled}, got {manifest.batch_coupled}"
        )
    if manifest.weights != weights_digest(fresh.model):  # a weight that differs itself was named before
        raise ParityError(f"{path}: manifest: weights: expected the digest of the source's, got another")
    comparison = None
    if not whole:
        with steps.step(f"compare {manifest.precision}"):
            comparison = compare(
                open_model(fresh.data, device=device),
                runtime,
                loaded.rows or proof.drawn,
                precision=manifest.precision,
                gates=fresh.gates.gates,
                sizes=(len(fresh.data), path.stat().st_size),
                drawn=loaded.rows is None,
            )
            require_agreement(comparison, min_agreement)
    said = (*notes, *proof.warnings, *(comparison.warnings if comparison else ()))
    return VerificationResult(manifest, proof, comparison, said)


def expect_same_manifest(manifest: Manifest, fresh: PreparedGraph, source: Source, path: Path) -> None:
    """Stop with a ParityError where the manifest says what the source's own graph does not."""
    for expected, gate in zip(fresh.gates.gates, manifest.gates, strict=True):
        for field, value in expected:
            if getattr(gate, field) != value:
                raise ParityError(
                    f"{path}: manifest: {gate.name}: {field}: expected {value}, got {getattr(gate, field)}"
                )
    if manifest.outputs != fresh.public:
        raise ParityError(
            f"{path}: manifest: outputs: expected {', '.join(fresh.public)}, "
            f"got {', '.join(manifest.outputs)}"
        )
    if source.labels and manifest.labels != source.labels:
        raise ParityError(
            f"{path}: manifest: labels: expected {', '.join(source.labels)}, got {', '.join(manifest.labels)}"
        )


def file_inputs(runtime: Runtime, against: object) -> tuple[InputSpec, ...]:
    """The file's own inputs, for a source that does not say what it takes."""
    says = isinstance(against, ExportedProgram) or str(against).endswith((".pt2", ".onnx"))
    if says:
        return ()
    return tuple(InputSpec(tensor.name, tensor.dtype, tensor.dims) for tensor in runtime.inputs)


def opset_of(path: Path) -> int:
    """The opset that a file was written in."""
    for entry in onnx.load(path, load_external_data=False).opset_import:
        if entry.domain == "":
            return int(entry.version)
    raise RequestError(f"{path}: names no ONNX opset")
