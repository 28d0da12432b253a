"""`compress_model`: removes the units that change least, proves the smaller graph, and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from turnpike.export.compress.agreement import AnswerQuality, points_lost
from turnpike.export.compress.finetuning import expect_trainable, save_finetuned, train_choice
from turnpike.export.compress.graph.removable_layers import LayerSearch, find_removable_layers
from turnpike.export.compress.judging_rows import expect_enough_rows, warnings_of_far_rows
from turnpike.export.compress.measured_cut import MeasuredCut, cut_and_measure, cut_manifest
from turnpike.export.compress.selection import UnitChoice, rank_units, search_share
from turnpike.export.compress.trials import Cutter, expect_possible_gain
from turnpike.export.compress.whole_network import WholeNetwork, read_whole_network
from turnpike.export.defaults import MAX_ERROR, MIN_AGREEMENT
from turnpike.export.errors import CompressionError, UsageError, errors_of_option
from turnpike.export.input_spec import InputSpec
from turnpike.export.model_report import report_data, saying_model_is_complete
from turnpike.export.network import AnySource
from turnpike.export.options import PrecisionOptions, SourceOptions
from turnpike.export.output.repository import (
    IfTaken,
    expect_version,
    expect_writable,
    write_model,
)
from turnpike.export.output.successor import Predecessor, column_warnings, expect_same_prediction, predecessor
from turnpike.export.report.data import KeptUnits
from turnpike.export.sources.data.features import without_words
from turnpike.export.sources.data.rows import SplitRows, read_split_rows
from turnpike.export.steps import ProgressListener, Steps
from turnpike.export.text_input import prove_text_input
from turnpike.service.artifact.manifest import CompressionPoint, Manifest, Precision


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


@dataclass(frozen=True)
class CompressionOptions:
    """What to remove, and what to write.

    Attributes:
        keep: The share of the units of all layers to keep.
        max_drop: In place of `keep`: the points of accuracy or of equal answers that may be lost, in percent.
        finetune_epochs: Epochs for which the units that are left are trained.
        version: Version of the model. Default: the next free one.
        report: Folder for an HTML report.
        seed: Seed of the random rows that parity is proved on.
        hide_categories: Whether to leave the words of a table's columns out of the file. They are in any
            case if the source or the newest version of the model has none.
        strict: Whether to write nothing if `max_drop` is not kept on the rows that judge the result.
    """

    keep: float | None = None
    max_drop: float | None = None
    finetune_epochs: int = 0
    version: int | None = None
    report: Path | None = None
    seed: int = 0
    hide_categories: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        if (self.keep is None) == (self.max_drop is None):
            raise UsageError("--keep and --max-drop: expected one of the two")
        if self.keep is not None and not 0 < self.keep < 1:
            raise UsageError(f"--keep: expected a share of the units between 0 and 1, got {self.keep}")
        if self.max_drop is not None and not 0 <= self.max_drop < 100:
            raise UsageError(f"--max-drop: expected points from 0 to 100, got {self.max_drop}")
        if self.strict and self.max_drop is None:
            raise UsageError("--strict: expected --max-drop, which it is about, got none")
        if self.finetune_epochs < 0:
            raise UsageError(f"--finetune-epochs: expected 0 or more, got {self.finetune_epochs}")
        if self.version is not None:
            expect_version(self.version)


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
    hide_categories: bool = False,
    strict: bool = False,
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
            that may be lost, in percent. The smallest share is searched that loses no more on the rows on
            which the units are chosen.
        finetune_epochs: Epochs for which the units that are left are trained. `source` must be a checkpoint
            of `turnpike train`, and `data` what it was trained on. With `max_drop`, units are removed in
            several steps, each of which is trained, until the next one would lose more on the validation
            rows.
        data_dir: Folder with the original files of the data set; nothing is downloaded then.
        name: Name of the model. Default: that of the source.
        version: Version of the model. Default: the next free one.
        inputs: Arguments of `forward`, for sources that need them.
        weights: Weights for the module of a factory.
        precision: "fp32", "fp16" or "int8". The smaller graph is proved in fp32 first.
        min_agreement: Share of answers in which a lower precision must agree with fp32.
        max_error: Relative root mean square error that the outputs of a lower precision may have.
        hide_categories: Whether to leave the words of a table's columns out of the file. They are always left
            out if the source is a file without them, or if the newest version of the model has none.
        strict: Whether to write nothing if more than `max_drop` is lost on the rows that judge the result, on
            which no units are chosen. Otherwise that is a warning.
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
    return run_compression(
        source,
        to,
        SourceOptions(name=name, inputs=inputs, weights=weights, data=data, data_dir=data_dir),
        PrecisionOptions(precision=precision, min_agreement=min_agreement, max_error=max_error),
        CompressionOptions(
            keep, max_drop, finetune_epochs, version, report, seed, hide_categories, strict=strict
        ),
        listener,
    )


def run_compression(
    source: AnySource,
    to: str | Path,
    source_options: SourceOptions,
    precision_options: PrecisionOptions,
    options: CompressionOptions,
    listener: ProgressListener | None = None,
) -> CompressionResult:
    """Do what `compress_model` describes; the source's options must have data."""
    steps = Steps(listener)
    repository = expect_writable(Path(to), "--to")
    if options.report is not None:
        expect_writable(options.report, "--report")

    with steps.step("load"):
        whole = read_whole_network(source, source_options.without_rows(), options.seed, steps)
        newest = predecessor(repository, whole.network.name)
        if options.version is None:
            expect_same_prediction(whole.network, newest)
        rows = _read_rows(whole, source_options)
        expect_enough_rows(rows)
        # an exported file has its own proof, and the cut leaves its inputs as they are
        text = prove_text_input(whole.network, rows.test) if whole.manifest is None else whole.manifest.text
        checkpoint = expect_trainable(source, whole, rows) if options.finetune_epochs else None
        search = _expect_removable_layers(whole)

        cutter = Cutter(whole.graph, search.layers)
        expect_possible_gain(cutter, rows.calibration)

    # choose the units, and train them
    with steps.step("calibrate"):
        ranking = rank_units(whole, cutter, rows.calibration)
    with steps.step("search"):
        share = options.keep
        if share is None:
            share = search_share(ranking, rows.calibration, options.max_drop or 0.0, steps)
        choice = ranking.choose(share)
        _expect_some_units(options.keep, choice)
    if checkpoint is not None:
        choice = train_choice(
            choice, checkpoint, rows, options.finetune_epochs, options.max_drop, options.seed, steps
        )

    # cut, prove, measure and write
    measured = cut_and_measure(ranking, choice, rows.test, precision_options, options.seed, steps)
    broken_limit = _broken_limit(options.max_drop, measured)
    if broken_limit and options.strict:
        raise CompressionError(broken_limit)
    with steps.step("write"):
        # the first that is tried: if it is taken, `write_model` takes the next
        version = options.version or max(1, newest.version)
        manifest = cut_manifest(whole, measured, rows, text, options.finetune_epochs, version)
        if options.hide_categories or newest.hides_categories:
            manifest = manifest.model_copy(update={"features": without_words(manifest.features)})
        if_taken: IfTaken = "next" if options.version is None else "refuse"
        written = write_model(repository, manifest, measured.proved.data, if_taken=if_taken)
        finetuned = save_finetuned(checkpoint, choice, written.manifest.name)
    layers = choice.cutter.layers
    result = CompressionResult(
        written.path,
        written.manifest,
        measured.point,
        measured.curve,
        {layer.gate.name: (len(choice.kept[layer.gate.name]), layer.units) for layer in layers},
        (
            *whole.warnings,
            *warnings_of_far_rows(whole, rows),
            *column_warnings(whole.network, newest),
            *search.left_whole,
            *measured.proved.warnings,
            *([broken_limit] if broken_limit else []),
            *_warnings_of_interval(whole),
            *_warnings_of_hidden_words(options, whole, newest),
        ),
        written.written,
        finetuned,
    )
    if options.report is None:
        return result
    with saying_model_is_complete(written.path), steps.step("report"):
        page = _write_report(options.report, result, measured, choice, steps)
    return replace(result, report=page)


def _read_rows(whole: WholeNetwork, options: SourceOptions) -> SplitRows:
    """Rows for the inputs of a network, split as in its training."""
    if options.data is None:
        raise UsageError("--data: expected rows to choose the units on, got none")
    data_dir = None if options.data_dir is None else Path(options.data_dir)
    network = whole.network
    with errors_of_option("--data"):
        return read_split_rows(
            options.data,
            network.inputs,
            network.labels,
            network.features,
            data_dir,
            network.training,
            network.target,
            network.task,
        )


def _expect_removable_layers(whole: WholeNetwork) -> LayerSearch:
    """The layers whose units can be removed; a CompressionError if there are none."""
    search = find_removable_layers(whole.graph.model, whole.graph.gates.gates)
    if not search.layers:
        reasons = f": {'; '.join(search.left_whole)}" if search.left_whole else ""
        raise CompressionError(
            f"gates: expected a highway layer whose units can be removed, got none{reasons}"
        )
    return search


def _expect_some_units(keep: float | None, choice: UnitChoice) -> None:
    """Raise a UsageError if a share is none or all of the units."""
    units, units_whole = sum(map(len, choice.kept.values())), choice.cutter.units
    if keep is not None and units in (0, units_whole):
        raise UsageError(
            f"--keep: expected a share that keeps at least 1 and not all of the {units_whole:,} units, got "
            f"{keep}, which keeps {units:,}"
        )


def _broken_limit(max_drop: float | None, measured: MeasuredCut) -> str:
    """Says that the limit, which is kept on the rows that units are chosen on, is not kept on others."""
    if max_drop is None:
        return ""
    quality = AnswerQuality(measured.point.agreement, measured.point.metric)
    lost = points_lost(measured.comparison, quality)
    if lost <= max_drop:
        return ""
    return (
        f"--max-drop: {lost:.2f} points are lost on the rows that judge the result, more than {max_drop:g}: "
        "the limit is kept on the rows that units are chosen on; a smaller --max-drop leaves a margin"
    )


def _warnings_of_interval(whole: WholeNetwork) -> tuple[str, ...]:
    """Says that intervals are left out, because the smaller network has other errors."""
    source = whole.network if whole.manifest is None else whole.manifest
    if source.interval is None:
        return ()
    return ("the intervals are left out: they are those of the whole network, whose errors are others",)


def _warnings_of_hidden_words(
    options: CompressionOptions, whole: WholeNetwork, newest: Predecessor
) -> tuple[str, ...]:
    """Says that words are left out without being asked for."""
    has_words = any(feature.categories for feature in whole.network.features)
    if not newest.hides_categories or not has_words or options.hide_categories:
        return ()
    return (newest.kept_hidden,)


def _write_report(
    folder: Path, result: CompressionResult, measured: MeasuredCut, choice: UnitChoice, steps: Steps
) -> Path:
    """Write the report of an export, with what each layer keeps."""
    from turnpike.export.report.write import write_report  # matplotlib, only for a report

    data = report_data(
        result.path, result.manifest, measured.proved, measured.gate_rows, result.warnings, steps.seconds
    )
    kept = tuple(
        KeptUnits(layer.gate.name, str(layer.gate.layer), tuple(choice.kept[layer.gate.name]), layer.units)
        for layer in choice.cutter.layers
    )
    return write_report(folder, replace(data, kept=kept))
