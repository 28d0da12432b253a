"""`verify_model`: prove again that an existing file computes what its source does, on any device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
from torch.export import ExportedProgram

from turnpike.export.claims.check import check_claims
from turnpike.export.claims.checklist import Claims
from turnpike.export.claims.graph_claims import expect_same_interface
from turnpike.export.claims.verified_file import VerifiedFile
from turnpike.export.compress.verify_cut import verify_cut
from turnpike.export.defaults import MAX_ERROR, MIN_AGREEMENT
from turnpike.export.errors import ParityError, SourceError, UsageError
from turnpike.export.graph_identity import decide_file
from turnpike.export.identity.decision import Decision, Verdict
from turnpike.export.input_spec import InputSpec
from turnpike.export.network import AnySource, Network
from turnpike.export.optimized.decide_optimized import OptimizedGraph, decide_optimized
from turnpike.export.options import DeviceOptions, SourceOptions
from turnpike.export.output.model_bytes import weights_digest
from turnpike.export.parity.rounding import Rounding, measure_rounding
from turnpike.export.precision.compare import Comparison, compare, require_agreement
from turnpike.export.prepared_graph import prepare_like
from turnpike.export.sources.load import load_source
from turnpike.export.steps import ProgressListener, Steps
from turnpike.service.artifact.devices import Device, DevicePrecision
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.runtime import Runtime, open_model


@dataclass(frozen=True)
class VerificationResult:
    """The result of a verification.

    Attributes:
        manifest: The manifest of the verified file.
        proof: Every tensor and batch that was compared, with the errors.
        comparison: How lower precision, of the file or of the device, compares with fp32; None if both
            are fp32.
        claims: The fields of the manifest that were checked, and those that the file alone claims.
        warnings: What a user should know about the source, the proof and the precision.
        notes: What was done with the source, which is usually what the user wants.
        identity: Whether the file, in fp32, is the same function as the network, for every input. For a
            compressed file: as the network with the removed units carried.
        optimized: What onnxruntime makes of the file on this CPU, and whether that is the same function.
    """

    manifest: Manifest
    proof: Rounding = field(repr=False)  # many arrays
    comparison: Comparison | None
    claims: Claims
    warnings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    identity: Decision | None = None
    optimized: OptimizedGraph | None = None


def verify_model(
    model: str | Path,
    against: AnySource,
    *,
    inputs: Sequence[str | InputSpec] = (),
    weights: Path | None = None,
    data: str | Path | None = None,
    data_dir: Path | None = None,
    labels: Path | Sequence[str] | None = None,
    scale: str | Path | None = None,
    preprocess: Any = None,
    device: Device = "cpu",
    precision: DevicePrecision = "fp32",
    seed: int = 0,
    min_agreement: float = MIN_AGREEMENT,
    max_error: float = MAX_ERROR,
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
        scale: As for `export_model`.
        preprocess: As for `export_model`.
        device: Where the file runs: "cpu", "cuda" or "openvino".
        precision: Precision of the device's arithmetic. For bf16, the file is proved in fp32 on the CPU, and
            the device is compared with that.
        seed: Seed of the random rows that parity is proved on.
        min_agreement: Share of answers in which a lower precision must agree with fp32.
        max_error: Relative root mean square error that the outputs of a lower precision may have.
        listener: Called when a step starts, advances or finishes.

    Returns:
        The manifest, the proof, the comparison of a lower precision, what was checked, and the warnings.

    Raises:
        ParityError: The file or its manifest differs from the source.
        PrecisionError: A file of lower precision agrees with fp32 too rarely, or differs too much.
        SourceError: The source cannot be read, or the file has no manifest.
        ExportError: Anything else that `export_model` reports.
    """
    return run_verification(
        model,
        against,
        SourceOptions(
            inputs=inputs,
            weights=weights,
            data=data,
            data_dir=data_dir,
            labels=labels,
            scale=scale,
            preprocess=preprocess,
        ),
        DeviceOptions(device=device, precision=precision, min_agreement=min_agreement, max_error=max_error),
        seed=seed,
        listener=listener,
    )


def run_verification(
    model: str | Path,
    against: AnySource,
    source_options: SourceOptions,
    device_options: DeviceOptions,
    *,
    seed: int = 0,
    listener: ProgressListener | None = None,
) -> VerificationResult:
    """Do what `verify_model` describes."""
    steps = Steps(listener)
    path = Path(model)
    device, precision = device_options.device, device_options.precision
    with steps.step("open"):
        proved_device: Device = device if precision == "fp32" else "cpu"
        runtime = open_model(path, device=proved_device)
        manifest = runtime.manifest
        if manifest is None:
            raise SourceError(f"{path}: expected a file exported by turnpike, got one without a manifest")
        own_inputs = source_options.inputs
        if not own_inputs and not knows_inputs(against):
            source_options = replace(source_options, inputs=file_inputs(runtime))
        if manifest.compression is not None:
            expect_fp32(path, manifest, precision)
            return _verify_compressed(path, runtime, manifest, against, source_options, seed, steps)
        on_device = None
        if precision != "fp32":
            if manifest.precision != "fp32":
                raise SourceError(
                    f"{path}: expected a file in fp32 for {precision}, got {manifest.precision}"
                )
            on_device = open_model(path, device=device, precision=precision)
        if not own_inputs and knows_inputs(against):
            source_options = with_names_of_file(runtime, against, source_options)
        network = load_source(against, source_options, with_texts=manifest.text is not None)
        network = replace(network, ranges=recorded_ranges(manifest, runtime, network))
    with steps.step("trace"):
        model_in_file = ir.from_proto(onnx.load(path))
        fresh = prepare_like(network, model_in_file, plain=manifest.plain)
        fresh = fresh.plain or fresh
        if (expected := len(fresh.gates.gates)) != (got := len(manifest.gates)):
            raise ParityError(
                f"{another_network(path, manifest)}: gates: expected {expected}, as the source has, got {got}"
            )
    is_fp32 = manifest.precision == "fp32"
    with steps.step("verify"):
        proved_model = model_in_file if is_fp32 else fresh.model
        try:
            # what has the most specific errors comes first
            expect_same_interface(path, model_in_file, fresh)
            proved_runtime = runtime if is_fp32 else open_model(fresh.data, device=proved_device)
            identity = decide_file(str(path), network, fresh, proved_model, proved_runtime)
            proof = measure_rounding(
                network,
                fresh.traced,
                proved_model,
                fresh.gates.origins,
                runtimes=[proved_runtime],
                seed=seed,
                progress=steps.listener.advanced,
                decided=identity.verdict is Verdict.IDENTICAL,
                source_graph=fresh.model,
                coupled=identity.coupled,
            )
        except ParityError as error:
            if manifest.weights == weights_digest(fresh.model):
                raise
            raise ParityError(f"{another_network(path, manifest)}: {error}", error.table) from error
    comparison = None
    if on_device is not None or not is_fp32:
        lower_precision = manifest.precision if on_device is None else precision
        with steps.step(f"compare {lower_precision}"):
            comparison = compare(
                open_model(fresh.data, device=device) if on_device is None else runtime,
                on_device or runtime,
                network.rows or proof.random_rows,
                precision=lower_precision,
                gates=fresh.gates.gates,
                sizes=(len(fresh.data), path.stat().st_size),
                drawn=network.rows is None,
            )
            require_agreement(comparison, device_options)
    with steps.step("check the manifest"):
        file = VerifiedFile(
            *(path, runtime, manifest, model_in_file, against, network, fresh, proof, identity),
            optimized=decide_optimized(path.read_bytes(), manifest.disabled_optimizers),
            comparison=comparison,
        )
        claims = check_claims(file)
    all_warnings = (*network.messages.warnings, *proof.warnings, *(comparison.warnings if comparison else ()))
    return VerificationResult(
        manifest, proof, comparison, claims, all_warnings, network.messages.notes, identity, file.optimized
    )


def _verify_compressed(
    path: Path,
    runtime: Runtime,
    manifest: Manifest,
    against: AnySource,
    options: SourceOptions,
    seed: int,
    steps: Steps,
) -> VerificationResult:
    """Prove a compressed file against the network that it was made from."""
    cut = verify_cut(path, runtime, manifest, against, options, seed=seed, steps=steps)
    network, proof = cut.network, cut.proof
    with steps.step("check the manifest"):
        expect_same_interface(path, cut.model, cut.prepared)
        file = VerifiedFile(
            *(path, runtime, manifest, cut.model, against, network, cut.prepared, proof, cut.identity),
            optimized=decide_optimized(path.read_bytes(), manifest.disabled_optimizers),
        )
        claims = check_claims(file, cut)
    warnings = (*cut.whole.warnings, *proof.warnings)
    return VerificationResult(
        manifest, proof, None, claims, warnings, network.messages.notes, cut.identity, file.optimized
    )


def recorded_ranges(manifest: Manifest, runtime: Runtime, network: Network) -> dict[str, tuple[float, float]]:
    """The ranges inside which parity was proved, under the names that the source gives its inputs."""
    names = dict(zip((tensor.name for tensor in runtime.inputs), network.inputs, strict=False))
    return {
        names[bound.input].name: (bound.low, bound.high)
        for bound in manifest.parity.input_ranges
        if bound.input in names
    }


def expect_fp32(path: Path, manifest: Manifest, precision: DevicePrecision) -> None:
    """Raise a SourceError for a compressed file of lower precision, or a device that has one."""
    if (manifest.precision, precision) != ("fp32", "fp32"):
        lower_precision = precision if manifest.precision == "fp32" else manifest.precision
        raise SourceError(
            f"{path}: expected fp32 for a compressed file, got {lower_precision}: `turnpike compress` proved "
            "the same graph in fp32, and compared the lower precision with it"
        )


def another_network(path: Path, manifest: Manifest) -> str:
    """Says that a file was exported from another network than the source, and what the file holds."""
    return (
        f"{path}: this file was exported from another network, or with other --weights (it holds "
        f"{manifest.name!r}, version {manifest.version}, from a source of the kind {manifest.source})"
    )


def knows_inputs(against: object) -> bool:
    """Whether a source says itself which inputs it takes."""
    return isinstance(against, ExportedProgram) or str(against).endswith((".pt2", ".onnx"))


def with_names_of_file(runtime: Runtime, against: AnySource, options: SourceOptions) -> SourceOptions:
    """The options, with the file's names for the inputs of a source that knows them, if these fit.

    The export may have had other names than the source, and random rows depend on the names.
    """
    renamed = replace(options, inputs=file_inputs(runtime))
    try:
        load_source(against, renamed.without_rows())
    except UsageError:  # another network: the comparison of the graphs says how it differs
        return options
    return renamed


def file_inputs(runtime: Runtime) -> tuple[InputSpec, ...]:
    """The inputs of the exported file, with the batch on the axis that the source has it on."""
    axes = {} if runtime.manifest is None else runtime.manifest.batch_axes
    inputs = []
    for tensor in runtime.inputs:
        dims = list(tensor.dims)
        if axis := axes.get(tensor.name):
            dims.insert(axis, dims.pop(0))
        inputs.append(InputSpec(tensor.name, tensor.dtype, tuple(dims)))
    return tuple(inputs)
