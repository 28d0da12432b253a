"""`export_model`: load, trace, prove parity, measure the gates, lower the precision, write."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from torch import nn
from torch.export import ExportedProgram

from export.errors import SourceError, SourceWarning, UsageError
from export.input_spec import InputSpec, parse_inputs
from export.measure.gate_profile import profile_gates
from export.measure.lesion_curve import lesion_curve
from export.measure.sample_rows import choose_samples, input_ranges, sample_count
from export.output.model_bytes import tool_versions, weights_digest
from export.output.repository import expect_repository, expect_version, newest_version, write_model
from export.parity.prove import Proof, prove
from export.precision.compare import MIN_AGREEMENT, Comparison, compare, require_agreement
from export.precision.lower import LowPrecision, lower
from export.prepared_graph import PreparedGraph, open_on_all_devices, prepare
from export.report.data import ReportData, gate_panel
from export.report.write import write_report
from export.source import Rows, Source
from export.sources.labels import expect_labels
from export.sources.load import load_source
from export.steps import ProgressListener, Steps
from service.artifact.manifest import LesionCurve, Manifest, Precision, Profile
from service.artifact.runtime import Runtime, Tensor, open_model


@dataclass(frozen=True)
class ExportResult:
    """The result of an export.

    Attributes:
        path: The model file.
        manifest: The manifest inside the file.
        warnings: What a user should know about the source, the gates, the proof and the precision.
        seconds: Duration of each step.
        written: False if the identical file existed already.
        comparison: How a lower precision compares with fp32; None for an fp32 export.
        report: The HTML report, if one was requested.
    """

    path: Path
    manifest: Manifest
    warnings: tuple[str, ...]
    seconds: dict[str, float]
    written: bool
    comparison: Comparison | None = None
    report: Path | None = None


def export_model(
    source: str | Path | nn.Module | ExportedProgram,
    to: str | Path,
    *,
    name: str | None = None,
    version: int | None = None,
    inputs: Sequence[str | InputSpec] = (),
    weights: Path | None = None,
    data: str | Path | None = None,
    data_dir: Path | None = None,
    labels: Path | Sequence[str] | None = None,
    precision: Precision = "fp32",
    min_agreement: float = MIN_AGREEMENT,
    opset: int | None = None,
    samples: int | None = None,
    report: Path | None = None,
    seed: int = 0,
    listener: ProgressListener | None = None,
) -> ExportResult:
    """Export a network to `<to>/<name>/<version>/model.onnx`, complete and verified, or not at all.

    Args:
        source: A module, an exported program, or a path: the folder or .safetensors of a training run,
            `path/to/file.py:factory`, a .pt2 or an .onnx file.
        to: Folder of the model repository; it is created if needed.
        name: Name of the model. Default: the source's name.
        version: Version of the model. Default: the next free one, unless the newest version is this very
            file already.
        inputs: Arguments of `forward` in order, as in `x:float32[batch,784]`. Needed for modules; for
            other sources they may only rename inputs and dimensions.
        weights: Weights for the factory's module (.safetensors or a .pt of tensors).
        data: Real rows, to prove parity and measure gates on: an .npz of arrays named like the inputs
            (classes as `y`), or the name of a data set.
        data_dir: Folder with the original files of the data set; nothing is downloaded then.
        labels: Names of the classes: a sequence, or a file with one per line or a JSON list.
        precision: "fp32", "fp16" or "int8".
        min_agreement: Share of answers in which a lower precision must agree with fp32.
        opset: ONNX opset of the file. An .onnx source keeps its own.
        samples: Number of data rows to store in the file. Default: 10 of a public data set, none of others.
        report: Folder for an HTML report and the same figures as JSON.
        seed: Seed of the random rows that parity is proved on.
        listener: Called when a step starts, advances or finishes.

    Returns:
        Where the file is, its manifest, the warnings and the durations.

    Raises:
        UsageError: An argument makes no sense.
        SourceError: The source, its weights, labels or rows cannot be read or do not fit.
        RefusedError: An untrusted file asks for something that is never done.
        UntraceableError: No graph represents the module for every input.
        ParityError: The graph does not compute what the network computes.
        PrecisionError: The lower precision agrees with fp32 too rarely.
        ExportError: The file cannot be written as valid ONNX (more than 2 GiB, say).
    """
    steps = Steps(listener)
    repository = expect_repository(Path(to))
    expect_valid_options(precision, min_agreement, version, samples)
    with steps.step("load"):
        loaded, source_warnings = load_with_warnings(
            source, inputs, weights=weights, data=data, data_dir=data_dir, labels=labels, name=name
        )
        chosen_samples = choose_samples(loaded.rows, sample_count(samples, loaded), loaded.labels)
    with steps.step("trace"):
        graph = prepare(loaded, opset)
    with steps.step("verify"):
        runtimes = open_on_all_devices(graph.data)
        proof = prove(
            loaded,
            graph.traced,
            graph.model,
            graph.gates.origins,
            runtimes=runtimes,
            seed=seed,
            progress=steps.listener.advanced,
        )
    with steps.step("measure"):
        profile, curve = measure_gates(loaded, graph, runtimes[0])
    model_data, comparison = graph.data, None
    if precision != "fp32":
        with steps.step(f"lower to {precision}"):
            model_data, comparison = lower_precision(
                graph, runtimes[0], loaded.rows, proof, precision, min_agreement
            )
    manifest = Manifest(
        name=loaded.name,
        version=version or max(1, newest_version(repository, loaded.name)),
        source=loaded.kind,
        precision=precision,
        outputs=graph.public_outputs,
        labels=loaded.labels,
        alphabet=loaded.alphabet,
        gates=graph.gates.gates,
        batch_coupled=proof.batch_coupled,
        parity=proof.parity,
        profile=profile,
        lesion=curve,
        variant=None if comparison is None else comparison.variant,
        ranges=input_ranges(loaded.rows),
        samples=chosen_samples,
        weights=weights_digest(graph.model),
        tools=tool_versions(),
    )
    with steps.step("write"):
        written = write_model(repository, manifest, model_data, next_free=version is None)
    all_warnings = (
        *source_warnings,
        *graph.gates.warnings,
        *proof.warnings,
        *(comparison.warnings if comparison else ()),
    )
    report_page = None
    if report is not None:
        with steps.step("report"):
            runtime = runtimes[0]
            report_data = ReportData(
                manifest=written.manifest,
                inputs=tuple(map(str, runtime.inputs)),
                outputs=tuple(
                    str(tensor) for tensor in runtime.outputs if tensor.name in graph.public_outputs
                ),
                size=written.path.stat().st_size,
                warnings=all_warnings,
                seconds=steps.seconds,
                histograms=proof.histograms,
                panel=gate_panel(runtime, manifest.gates, graph.biases, profile, loaded.rows, loaded.labels),
                comparison=comparison,
            )
            report_page = write_report(report, report_data)
    return ExportResult(
        written.path,
        written.manifest,
        all_warnings,
        steps.seconds,
        written.written,
        comparison,
        report_page,
    )


def expect_valid_options(
    precision: str, min_agreement: float, version: int | None, samples: int | None
) -> None:
    """Raise a UsageError for an option that makes no sense, before any work is done."""
    if version is not None:
        expect_version(version)
    if precision not in get_args(Precision):
        raise UsageError(f"--precision: expected {', '.join(get_args(Precision))}, got {precision!r}")
    if not 0 <= min_agreement <= 1:
        raise UsageError(f"--min-agreement: expected a share from 0 to 1, got {min_agreement}")
    if samples is not None and samples < 0:
        raise UsageError(f"--samples: expected a number of rows, 0 or more, got {samples}")


def load_with_warnings(
    source: str | Path | nn.Module | ExportedProgram,
    inputs: Sequence[str | InputSpec],
    *,
    weights: Path | None = None,
    data: str | Path | None = None,
    data_dir: Path | None = None,
    labels: Path | Sequence[str] | None = None,
    name: str | None = None,
) -> tuple[Source, tuple[str, ...]]:
    """Load the source, and collect the SourceWarnings; the arguments are those of `export_model`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SourceWarning)
        loaded = load_source(
            source,
            inputs=parse_inputs([str(spec) for spec in inputs]),
            weights=weights,
            data=data,
            data_dir=data_dir,
            labels=labels,
            name=name,
        )
    return loaded, tuple(str(warning.message) for warning in caught if warning.category is SourceWarning)


def measure_gates(
    source: Source, graph: PreparedGraph, runtime: Runtime
) -> tuple[Profile | None, LesionCurve | None]:
    """Gate statistics over the source's rows, and the effect of closing each layer; None without rows."""
    output = next(tensor for tensor in runtime.outputs if tensor.name == graph.public_outputs[0])
    expect_labels(source.labels, output.dims[-1] if output.dims else "?", output.name)
    expect_classes(source.rows, output)
    gates = graph.gates.gates
    if source.rows is None or not gates:
        return None, None
    profile = profile_gates(runtime, gates, source.rows, source.labels)
    return profile, lesion_curve(runtime, gates, source.rows, output.name, graph.biases)


def expect_classes(rows: Rows | None, output: Tensor) -> None:
    """Raise a SourceError if a row has a class for which the output has no column."""
    columns = output.dims[-1] if len(output.dims) == 2 else None
    if rows is None or rows.classes is None or not isinstance(columns, int) or columns == 1:
        return
    if (highest := int(rows.classes.max())) >= columns:
        raise SourceError(
            f"data: classes: expected 0 to {columns - 1}, the columns of {output.name}, got {highest} "
            f"in row {int(rows.classes.argmax())}"
        )


def lower_precision(
    graph: PreparedGraph,
    fp32: Runtime,
    rows: Rows | None,
    proof: Proof,
    precision: LowPrecision,
    min_agreement: float,
) -> tuple[bytes, Comparison]:
    """Convert the graph, and require that it agrees with fp32.

    Args:
        graph: The proved fp32 graph.
        fp32: The same graph, open.
        rows: Real rows to compare on. Without any, the random rows of the proof are used.
        proof: The proof of the fp32 graph.
        precision: The precision to convert to.
        min_agreement: Share of answers that must agree.

    Returns:
        The bytes of the converted graph, and the comparison with fp32.
    """
    data = lower(graph.data, precision)
    comparison = compare(
        fp32,
        open_model(data),
        rows or proof.random_rows,
        precision=precision,
        gates=graph.gates.gates,
        sizes=(len(graph.data), len(data)),
        drawn=rows is None,
    )
    require_agreement(comparison, min_agreement)
    return data, comparison
