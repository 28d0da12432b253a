"""The whole way: load, trace, verify, measure, lower, write."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from torch import nn
from torch.export import ExportedProgram

from export.errors import RequestError, SourceError, SourceWarning
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
    """What an export came to. `written` is False where the very same file was there already."""

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
    watcher: ProgressListener | None = None,
) -> ExportResult:
    """Export to `<to>/<name>/<version>/model.onnx`, whole and verified, or not at all.

    Without a version the file takes the next one, unless the newest is this very file already.
    """
    steps = Steps(watcher)
    repository = expect_repository(Path(to))
    expect_valid_options(precision, min_agreement, version, samples)
    with steps.step("load"):
        loaded, notes = load_with_warnings(
            source, inputs, weights=weights, data=data, data_dir=data_dir, labels=labels, name=name
        )
        tried = choose_samples(loaded.rows, sample_count(samples, loaded), loaded.labels)
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
            progress=steps.watcher.moved,
        )
    with steps.step("measure"):
        baseline, curve = measure_gates(loaded, graph, runtimes[0])
    data_out, comparison = graph.data, None
    if precision != "fp32":
        with steps.step(f"lower to {precision}"):
            data_out, comparison = lower_precision(
                graph, runtimes[0], loaded.rows, proof, precision, min_agreement
            )
    manifest = Manifest(
        name=loaded.name,
        version=version or max(1, newest_version(repository, loaded.name)),
        source=loaded.kind,
        precision=precision,
        outputs=graph.public,
        labels=loaded.labels,
        alphabet=loaded.alphabet,
        gates=graph.gates.gates,
        batch_coupled=proof.batch_coupled,
        parity=proof.parity,
        profile=baseline,
        lesion=curve,
        variant=None if comparison is None else comparison.variant,
        ranges=input_ranges(loaded.rows),
        samples=tried,
        weights=weights_digest(graph.model),
        tools=tool_versions(),
    )
    with steps.step("write"):
        placed = write_model(repository, manifest, data_out, next_free=version is None)
    said = (*notes, *graph.gates.warnings, *proof.warnings, *(comparison.warnings if comparison else ()))
    page = None
    if report is not None:
        with steps.step("report"):
            shown = ReportData(
                manifest=placed.manifest,
                inputs=tuple(map(str, runtimes[0].inputs)),
                outputs=tuple(str(tensor) for tensor in runtimes[0].outputs if tensor.name in graph.public),
                size=placed.path.stat().st_size,
                warnings=said,
                seconds=steps.seconds,
                histograms=proof.histograms,
                panel=gate_panel(
                    runtimes[0], manifest.gates, graph.biases, baseline, loaded.rows, loaded.labels
                ),
                comparison=comparison,
            )
            page = write_report(report, shown)
    return ExportResult(placed.path, placed.manifest, said, steps.seconds, placed.written, comparison, page)


def expect_valid_options(
    precision: str, min_agreement: float, version: int | None, samples: int | None
) -> None:
    """Stop with a RequestError at a setting that makes no sense, before any work is done."""
    if version is not None:
        expect_version(version)
    if precision not in get_args(Precision):
        raise RequestError(f"--precision: expected {', '.join(get_args(Precision))}, got {precision!r}")
    if not 0 <= min_agreement <= 1:
        raise RequestError(f"--min-agreement: expected a share from 0 to 1, got {min_agreement}")
    if samples is not None and samples < 0:
        raise RequestError(f"--samples: expected a number of rows, 0 or more, got {samples}")


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
    """The source, and what a user should know of it."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", SourceWarning)
        found = load_source(
            source,
            inputs=parse_inputs([str(one) for one in inputs]),
            weights=weights,
            data=data,
            data_dir=data_dir,
            labels=labels,
            name=name,
        )
    return found, tuple(str(note.message) for note in notes if note.category is SourceWarning)


def measure_gates(
    source: Source, graph: PreparedGraph, runtime: Runtime
) -> tuple[Profile | None, LesionCurve | None]:
    """How the gates behave on the rows given, and what closing each layer does to the answers."""
    answer = next(tensor for tensor in runtime.outputs if tensor.name == graph.public[0])
    expect_labels(source.labels, answer.dims[-1] if answer.dims else "?", answer.name)
    expect_classes(source.rows, answer)
    gates = graph.gates.gates
    if source.rows is None or not gates:
        return None, None
    baseline = profile_gates(runtime, gates, source.rows, source.labels)
    return baseline, lesion_curve(runtime, gates, source.rows, answer.name, graph.biases)


def expect_classes(rows: Rows | None, answer: Tensor) -> None:
    """Stop with a SourceError where a row is of a class that the output has no column for."""
    columns = answer.dims[-1] if len(answer.dims) == 2 else None
    if rows is None or rows.classes is None or not isinstance(columns, int) or columns == 1:
        return
    if (highest := int(rows.classes.max())) >= columns:
        raise SourceError(
            f"data: classes: expected 0 to {columns - 1}, the columns of {answer.name}, got {highest} "
            f"in row {int(rows.classes.argmax())}"
        )


def lower_precision(
    graph: PreparedGraph,
    fp32: Runtime,
    rows: Rows | None,
    proof: Proof,
    precision: LowPrecision,
    least: float,
) -> tuple[bytes, Comparison]:
    """The graph in a lower precision, which must agree with fp32 on the rows given, or on random ones."""
    data = lower(graph.data, precision)
    comparison = compare(
        fp32,
        open_model(data),
        rows or proof.drawn,
        precision=precision,
        gates=graph.gates.gates,
        sizes=(len(graph.data), len(data)),
        drawn=rows is None,
    )
    require_agreement(comparison, least)
    return data, comparison
