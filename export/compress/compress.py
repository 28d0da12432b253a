"""`compress_model`: removes the units that change least, proves the smaller graph, and writes it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory

from export.compress.agreement import AnswerComparison, AnswerQuality, points_lost
from export.compress.carried_reference import carried_reference
from export.compress.finetuning import FineTuner, UnitChoice, expect_trainable
from export.compress.layer_weights import weigh_layers
from export.compress.removable_layers import find_removable_layers
from export.compress.selection import most_important
from export.compress.trials import (
    MIN_GAIN,
    Cutter,
    OpenCut,
    fastest_cut,
    measure_cut,
    search_share,
    times_by_rows,
)
from export.compress.unit_changes import measure_changes
from export.compress.whole_network import AnySource, WholeNetwork, read_whole_network, with_reference
from export.defaults import MAX_ERROR, MIN_AGREEMENT
from export.errors import CompressionError, UsageError, errors_of_option
from export.gates.instrument import Instrumentation, Origin
from export.input_spec import InputSpec
from export.measure.gate_profile import profile_gates
from export.measure.lesion_curve import lesion_curve
from export.measure.run_rows import first_rows, rows_digest
from export.measure.sample_rows import input_ranges
from export.output.model_bytes import tool_versions, weights_digest
from export.output.repository import expect_version, expect_writable, newest_version, write_model
from export.pipeline import report_data, saying_model_is_complete
from export.precision.compare import PrecisionLimits
from export.prepared_graph import PreparedGraph
from export.proved_graph import ProvedGraph, lower_precision, prove_graph
from export.report.data import KeptUnits
from export.sources.rows import MAX_ROWS_USED, SplitRows, read_split_rows
from export.steps import ProgressListener, Steps
from models.atomic import replacing
from service.artifact.manifest import Compression, CompressionPoint, Manifest, Precision
from service.artifact.runtime import open_model

# shares of the units in the table of the result
CURVE_SHARES = (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)


@dataclass(frozen=True)
class CompressionResult:
    """The result of a compression.

    Attributes:
        path: The model file.
        manifest: The manifest inside the file.
        point: What was written.
        curve: What other shares of the units would have given, from the largest to the smallest.
        unit_counts: The number of units that each layer keeps, and had, by the name of its gate.
        warnings: What a user should know about the source, its gates and the proof.
        written: False if the identical file existed already.
        finetuned: The checkpoint of the network that was trained after the cut, if it was.
        report: The HTML report, if one was requested.
    """

    path: Path
    manifest: Manifest
    point: CompressionPoint
    curve: tuple[CompressionPoint, ...]
    unit_counts: dict[str, tuple[int, int]]
    warnings: tuple[str, ...]
    written: bool
    finetuned: Path | None = None
    report: Path | None = None


def compress_model(
    source: AnySource,
    to: str | Path,
    *,
    data: str | Path,
    keep: float | None = None,
    max_drop: float | None = None,
    finetune_epochs: int = 0,
    data_dir: Path | None = None,
    name: str | None = None,
    version: int | None = None,
    inputs: Sequence[str | InputSpec] = (),
    weights: Path | None = None,
    precision: Precision = "fp32",
    min_agreement: float = MIN_AGREEMENT,
    max_error: float = MAX_ERROR,
    report: Path | None = None,
    seed: int = 0,
    listener: ProgressListener | None = None,
) -> CompressionResult:
    """Write `<to>/<name>/<version>/model.onnx` without the units that change least, proved, or not at all.

    Args:
        source: A file of `turnpike export`, or anything else that `export_model` takes.
        to: Folder of the model repository; it is created if needed.
        data: Rows to choose the units on, and others to judge the choice on: see `read_split_rows`.
        keep: The share of the units of all layers to keep.
        max_drop: In place of `keep`: the points of accuracy (of equal answers, if the classes are not known)
            that may be lost, in percent. The smallest share is searched that keeps this on the rows on
            which the units are chosen.
        finetune_epochs: Epochs for which the units that are left are trained. SOURCE must be a checkpoint of
            `turnpike train`, and `data` what it was trained on. With `max_drop`, units are removed in several
            steps, each of which is trained, until the next one would lose more on the validation rows.
        data_dir: Folder with the original files of the data set; nothing is downloaded then.
        name: Name of the model. Default: that of the source.
        version: Version of the model. Default: the next free one.
        inputs: Arguments of `forward`, for sources that need them.
        weights: Weights for the module of a factory.
        precision: "fp32", "fp16" or "int8". The smaller graph is proved in fp32 first.
        min_agreement: Share of answers in which a lower precision must agree with fp32.
        max_error: Relative root mean square error that the outputs of a lower precision may have.
        report: Folder for an HTML report and the same figures as JSON.
        seed: Seed of the random rows that parity is proved on.
        listener: Called when a step starts, advances or finishes.

    Raises:
        UsageError: An argument makes no sense.
        SourceError: The source or its rows cannot be read or do not fit.
        CompressionError: No unit can be removed, the limit cannot be kept, or it would not be faster.
        PrecisionError: The lower precision agrees with fp32 too rarely, or differs too much.
        ParityError: The smaller graph does not compute what the whole one does with the units carried.
        ExportError: The report cannot be written, while the model is complete.
    """
    steps = Steps(listener)
    repository = expect_writable(Path(to), "--to")
    if report is not None:
        expect_writable(report, "--report")
    limits = PrecisionLimits(precision, min_agreement, max_error)
    expect_valid_options(keep, max_drop, finetune_epochs, version)

    with steps.step("load"):
        whole = read_whole_network(source, inputs, weights, name, seed, steps)
        with errors_of_option("--data"):
            features = [feature.name for feature in whole.source.features]
            rows = read_split_rows(
                data,
                whole.source.inputs,
                whole.source.labels,
                features,
                data_dir,
                whole.source.training,
            )
        checkpoint = expect_trainable(source, whole, rows) if finetune_epochs else None
        if checkpoint is not None:
            expect_writable(folder_of(checkpoint), "SOURCE")
        search = find_removable_layers(whole.graph.model, whole.graph.gates.gates)
        if not search.layers:
            reasons = f": {'; '.join(search.left_whole)}" if search.left_whole else ""
            raise CompressionError(
                f"gates: expected a highway layer whose units can be removed, got none{reasons}"
            )

    with steps.step("calibrate"):
        changes = measure_changes(whole.graph.model, search.layers, rows.calibration)
        cutter = Cutter(whole.graph, search.layers)
        importance = weigh_layers(cutter, changes, rows.calibration)

    with steps.step("search"):
        share = keep if keep is not None else search_share(cutter, importance, rows, max_drop or 0.0, steps)
        choice = UnitChoice(whole, cutter, most_important(importance, share), share)
        expect_some_units(keep, choice)
    if checkpoint is not None:
        with TemporaryDirectory(prefix="turnpike-") as folder:
            tuner = FineTuner(checkpoint, rows, finetune_epochs, Path(folder), seed, steps)
            if max_drop is None:
                choice = tuner.train(choice)
            else:
                choice = tuner.train_and_cut_further(choice, max_drop)

    with steps.step("time"):
        cut = fastest_cut(choice.cutter, choice.kept, rows)
        comparison = AnswerComparison(cutter.runtime, cutter.output, rows.test)
        curve = tuple(
            measure_cut(cutter, comparison, trial, trial.runtime, rows)
            for other in CURVE_SHARES
            for trial in [cutter.cut(most_important(importance, other), cut.graph.form)]
        )

    with steps.step("verify"):
        proved = prove_cut(choice, cut, seed, steps)

    with steps.step("measure"):
        measured = first_rows(rows.test, MAX_ROWS_USED)
        gates = cut.graph.gates
        profile = profile_gates(proved.runtime, gates, measured, whole.source.labels) if gates else None
        curve_of_lesions = (
            lesion_curve(proved.runtime, gates, measured, cutter.output, proved.graph.biases)
            if gates
            else None
        )
    if precision != "fp32":
        with steps.step(f"lower to {precision}"):
            proved = lower_precision(proved, measured, limits)
    with steps.step("judge"):
        point = measure_cut(cutter, comparison, cut, open_model(proved.data), rows)
        expect_faster(point, precision)
    with steps.step("write"):
        manifest = Manifest(
            name=whole.source.name,
            version=version or max(1, newest_version(repository, whole.source.name)),
            source=whole.source.kind,
            precision=precision,
            outputs=proved.graph.public_outputs,
            labels=whole.source.labels or rows.labels,
            alphabet=whole.source.alphabet,
            features=whole.source.features,
            gates=gates,
            profile=profile,
            lesion=curve_of_lesions,
            ranges=input_ranges(measured),
            samples=() if whole.manifest is None else whole.manifest.samples,
            random_weights=whole.source.random_weights,
            tools=tool_versions(),
            compression=compression_record(
                whole, choice, cut, comparison, point, curve, rows, finetune_epochs
            ),
            **proved.manifest_fields,
        )
        written = write_model(
            repository, manifest, proved.data, if_taken="next" if version is None else "refuse"
        )
        finetuned = save_finetuned(checkpoint, choice, written.manifest)
    result = CompressionResult(
        written.path,
        written.manifest,
        point,
        curve,
        {layer.gate.name: (len(choice.kept[layer.gate.name]), layer.units) for layer in search.layers},
        (*whole.warnings, *search.left_whole, *proved.warnings, *lost_more_than(max_drop, comparison, point)),
        written.written,
        finetuned,
    )
    if report is None:
        return result
    with saying_model_is_complete(written.path), steps.step("report"):
        from export.report.write import write_report  # matplotlib, only for a report

        content = report_data(
            written.path, written.manifest, proved, measured, result.warnings, steps.seconds
        )
        page = write_report(report, replace(content, kept=kept_units(choice)))
    return replace(result, report=page)


def expect_some_units(keep: float | None, choice: UnitChoice) -> None:
    """Raise a UsageError if a share is none or all of the units."""
    units, units_whole = sum(map(len, choice.kept.values())), choice.cutter.units
    if keep is not None and units in (0, units_whole):
        raise UsageError(
            f"--keep: expected a share that is some of the {units_whole:,} units and not all, got {keep}, "
            f"which is {units:,}"
        )


def expect_faster(point: CompressionPoint, precision: Precision) -> None:
    """Raise a CompressionError if the file in a lower precision is slower than the whole network in fp32."""
    if precision != "fp32" and geometric_mean(point.faster.values()) < MIN_GAIN:
        raise CompressionError(
            f"--precision {precision}: expected a graph that is faster than the whole one in fp32, and its "
            f"speed here is {times_by_rows(point.faster)}, where that of the whole one is 1: use fp32"
        )


def lost_more_than(
    max_drop: float | None, comparison: AnswerComparison, point: CompressionPoint
) -> list[str]:
    """A warning if the limit, which is kept on the rows that units are chosen on, is not kept on others."""
    if max_drop is None:
        return []
    lost = points_lost(comparison, AnswerQuality(point.agreement, point.metric))
    if lost <= max_drop:
        return []
    return [
        f"--max-drop: {lost:.2f} points are lost on the rows that judge the result, more than {max_drop:g}: "
        "the limit is kept on the rows that units are chosen on; a smaller --max-drop leaves a margin"
    ]


def kept_units(choice: UnitChoice) -> tuple[KeptUnits, ...]:
    """What each layer keeps, for the report."""
    return tuple(
        KeptUnits(layer.gate.name, str(layer.gate.layer), tuple(choice.kept[layer.gate.name]), layer.units)
        for layer in choice.cutter.layers
    )


def expect_valid_options(
    keep: float | None, max_drop: float | None, finetune_epochs: int, version: int | None
) -> None:
    """Raise a UsageError for an option that makes no sense, before any work is done."""
    if (keep is None) == (max_drop is None):
        raise UsageError("--keep and --max-drop: expected one of the two")
    if keep is not None and not 0 < keep < 1:
        raise UsageError(f"--keep: expected a share of the units between 0 and 1, got {keep}")
    if max_drop is not None and not 0 <= max_drop < 100:
        raise UsageError(f"--max-drop: expected points from 0 to 100, got {max_drop}")
    if finetune_epochs < 0:
        raise UsageError(f"--finetune-epochs: expected 0 or more, got {finetune_epochs}")
    if version is not None:
        expect_version(version)


def prove_cut(choice: UnitChoice, cut: OpenCut, seed: int, steps: Steps) -> ProvedGraph:
    """Prove that the cut graph computes what the whole one does if the removed units carry their input."""
    whole = choice.whole
    reference = carried_reference(
        whole.graph.model, whole.graph.public_outputs, choice.cutter.layers, choice.kept
    )
    outputs = [str(value.name) for value in cut.graph.model.graph.outputs]
    origins = {name: Origin(name) for name in outputs if name in whole.graph.gates.origins}
    gates = Instrumentation(cut.graph.gates, origins, ())
    prepared = PreparedGraph(None, cut.graph.model, gates, (), (), cut.data)
    return prove_graph(prepared, with_reference(whole.source, reference), seed, steps)


def save_finetuned(checkpoint: Path | None, choice: UnitChoice, manifest: Manifest) -> Path | None:
    """Save the network that was trained after the cut beside its source; `turnpike verify` needs it."""
    if checkpoint is None or choice.checkpoint is None:
        return None
    # named by its content, so that it takes the place of no other network
    digest = hashlib.sha256(choice.checkpoint).hexdigest()[:12]
    path = folder_of(checkpoint) / f"{manifest.name}-cut-{digest}.safetensors"
    with replacing(path) as draft:
        draft.write_bytes(choice.checkpoint)
    return path


def folder_of(checkpoint: Path) -> Path:
    """The folder of a training run, given as such or as a file in it."""
    return checkpoint if checkpoint.is_dir() else checkpoint.parent


def compression_record(
    whole: WholeNetwork,
    choice: UnitChoice,
    cut: OpenCut,
    comparison: AnswerComparison,
    point: CompressionPoint,
    curve: tuple[CompressionPoint, ...],
    rows: SplitRows,
    finetune_epochs: int,
) -> Compression:
    """What was removed, for the manifest."""
    return Compression(
        original=weights_digest(whole.graph.model),
        units=cut.units,
        units_whole=choice.cutter.units,
        macs=cut.graph.macs,
        macs_whole=cut.graph.macs_whole,
        calibration_rows=len(rows.calibration),
        calibration_digest=rows_digest(rows.calibration),
        rows=len(rows.test),
        agreement=point.agreement,
        metric=point.metric,
        metric_whole=comparison.accuracy_whole,
        bytes_whole=len(whole.graph.data),
        faster=point.faster,
        finetune_epochs=finetune_epochs,
        curve=curve,
    )
