"""`export_model`: load, trace, prove, measure the gates, lower the precision, write."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnpike.export.defaults import MAX_ERROR, MIN_AGREEMENT
from turnpike.export.errors import SourceOptionError, UsageError
from turnpike.export.input_spec import InputSpec
from turnpike.export.measure.gate_profile import profile_gates
from turnpike.export.measure.lesion_curve import flipped_row, lesion_curve
from turnpike.export.measure.sample_rows import choose_samples, input_ranges, sample_count
from turnpike.export.model_report import report_data, saying_model_is_complete
from turnpike.export.network import AnySource, Network, Rows
from turnpike.export.options import PrecisionOptions, SourceOptions, TextAlphabet
from turnpike.export.output.model_bytes import tool_versions
from turnpike.export.output.repository import (
    IfTaken,
    WrittenModel,
    expect_free_version,
    expect_version,
    expect_writable,
    write_model,
)
from turnpike.export.output.successor import column_warnings, expect_same_prediction, predecessor
from turnpike.export.precision.compare import Comparison
from turnpike.export.prepared_graph import PreparedGraph, expect_gate_count, prepare, with_short_sums
from turnpike.export.proved_graph import (
    ProvedGraph,
    lower_precision,
    new_warnings,
    plain_twin,
    prove_first,
    prove_graph,
)
from turnpike.export.report.data import PlainFile
from turnpike.export.sources.data.features import without_words
from turnpike.export.sources.data.labels import expect_labels
from turnpike.export.sources.data.pixels import picture_input
from turnpike.export.sources.load import load_source
from turnpike.export.steps import ProgressListener, Steps
from turnpike.export.text_input import expect_ids_in_table, prove_text_input
from turnpike.service.artifact.manifest import LesionCurve, Manifest, Precision, Profile
from turnpike.service.artifact.runtime import Runtime
from turnpike.service.artifact.tensor import Tensor


@dataclass(frozen=True)
class ExportResult:
    """The result of an export.

    Attributes:
        path: The model file.
        manifest: The manifest inside the file.
        warnings: What a user should know about the source, the gates, the proof and the precision.
        notes: What the export did with the source or its name, which is usually what the user wants.
        seconds: Duration of each step.
        written: False if the identical file existed already.
        comparison: How a lower precision compares with fp32; None for an fp32 export.
        report: The HTML report, if one was requested.
        other_gates: A sentence about each sigmoid that multiplies something and forms no highway: the line of
            the user's code or its name, and why.
        plain: The twin without gates and levers, if one was requested.
    """

    path: Path
    manifest: Manifest
    warnings: tuple[str, ...]
    seconds: dict[str, float]
    written: bool
    comparison: Comparison | None = None
    report: Path | None = None
    other_gates: tuple[str, ...] = ()
    plain: Path | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExportOptions:
    """What to check, measure and write.

    Attributes:
        version: Version of the model. Default: the next free one.
        replace: Whether to replace the file of `version`.
        opset: ONNX opset of the file. An .onnx source keeps its own.
        samples: Number of data rows to store in the file. Default: 10 of a public data set, none of others.
        report: Folder for an HTML report.
        seed: Seed of the random rows that rounding is measured on.
        expect_gates: Number of gates that the network has.
        open_recurrent: Whether to replace each GRU and LSTM by a loop that shows its gates.
        plain: Whether to write a twin without gates and levers too.
        hide_categories: Whether to leave the words of a table's columns out of the file.
    """

    version: int | None = None
    replace: bool = False
    opset: int | None = None
    samples: int | None = None
    report: Path | None = None
    seed: int = 0
    expect_gates: int | None = None
    open_recurrent: bool = False
    plain: bool = False
    hide_categories: bool = False

    def __post_init__(self) -> None:
        if self.version is not None:
            expect_version(self.version)
        elif self.replace:
            raise UsageError("--replace: expected with --version, which names the file to replace")
        if self.samples is not None and self.samples < 0:
            raise UsageError(f"--samples: expected a number of rows, 0 or more, got {self.samples}")

    @property
    def if_taken(self) -> IfTaken:
        """What to do if there is another file of this version."""
        return "next" if self.version is None else "replace" if self.replace else "refuse"


def export_model(
    source: AnySource,
    to: str | Path,
    *,
    name: str | None = None,
    version: int | None = None,
    replace: bool = False,
    inputs: Sequence[str | InputSpec] = (),
    weights: Path | None = None,
    data: str | Path | None = None,
    data_dir: Path | None = None,
    labels: Path | Sequence[str] | None = None,
    features: Path | Sequence[str] | None = None,
    text_alphabet: TextAlphabet | None = None,
    input_range: Sequence[str] = (),
    pixels: str | None = None,
    scale: str | Path | None = None,
    preprocess: Any = None,
    precision: Precision = "fp32",
    min_agreement: float = MIN_AGREEMENT,
    max_error: float = MAX_ERROR,
    opset: int | None = None,
    samples: int | None = None,
    report: Path | None = None,
    seed: int = 0,
    expect_gates: int | None = None,
    open_recurrent: bool = False,
    plain: bool = False,
    hide_categories: bool = False,
    listener: ProgressListener | None = None,
) -> ExportResult:
    """Export a network to `<to>/<name>/<version>/model.onnx`, complete and verified, or not at all.

    Args:
        source: A module, an exported program, or a path: the folder or .safetensors of a training run,
            `path/to/file.py:factory`, a .pt2 or an .onnx file.
        to: Folder of the model repository; it is created if needed.
        name: Name of the model. Default: that of the source, which is the preset of a training run or the
            name of the user's own data, the name of the factory or the module's class, and otherwise the
            file's name without its ending.
        version: Version of the model. Default: the next free one, unless the newest version is this very
            file already. A version that is another file is an error.
        replace: Replace the file of `version` instead.
        inputs: Arguments of `forward` in order, as in `x:float32[batch,784]`. Needed for modules; for
            other sources they may only rename inputs and dimensions.
        weights: Weights for the factory's module (.safetensors or a .pt of tensors).
        data: Real rows, to measure rounding and gates on: an .npz of arrays named like the inputs
            (classes as `y`), or the name of a data set.
        data_dir: Folder with the original files of the data set; nothing is downloaded then.
        labels: Names of the classes: a sequence, or a file with one per line or a JSON list.
        features: Names of the columns of a table, in the same form; their ranges come from the rows. A
            training run on a table has recorded its own.
        text_alphabet: How texts become the ids of an input: `bytes`, `elmo` or `characterbert`; a file with
            an alphabet or vocabulary of your own, a token per line or JSON; or such a vocabulary as a list or
            dictionary. After `NAME=` if several inputs could be meant. `data` then has the texts of its rows,
            as an array `texts`. A training run on texts has recorded its alphabet.
        input_range: Ranges such as `-5:5` or `x=-5:5`. Rounding is measured for these values of the inputs
            only, and the file says so.
        pixels: The numbers of a black and of a white pixel for a network of pictures, such as `0:255`: with
            them, the page, `turnpike predict` and `turnpike score` take pictures. Known for image data sets
            and folders.
        scale: An .npz file with the arrays `mean` and `std`: the file standardizes rows by them before they
            come to the module.
        preprocess: A fitted transformer of scikit-learn, such as a ColumnTransformer: it becomes a part of
            the file, which then takes the rows from before it. `data` is a table of such rows.
        precision: "fp32", "fp16" or "int8".
        min_agreement: Share of answers in which a lower precision must agree with fp32.
        max_error: Relative root mean square error that the outputs of a lower precision may have.
        opset: ONNX opset of the file. An .onnx source keeps its own.
        samples: Number of data rows to store in the file. Default: 10 of a public data set, none of others.
        report: Folder for an HTML report and the same figures as JSON.
        seed: Seed of the random rows that rounding is measured on.
        expect_gates: Number of gates that the network has; another number is an error.
        open_recurrent: Whether to replace each GRU and LSTM by a loop that shows its gates.
        plain: Whether to write a twin without gates and levers, `plain.onnx`, for other runtimes.
        hide_categories: Whether to leave the words of a table's columns out of the file. Callers then send
            the number of each word. They are always left out if the newest version of the model has none.
        listener: Called when a step starts, advances or finishes.

    Returns:
        The path of the file, its manifest, the warnings and the durations.

    Raises:
        UsageError: An argument makes no sense.
        SourceError: The source, its weights, labels or rows cannot be read or do not fit.
        RefusedError: An untrusted file asks for something that is never done.
        UntraceableError: No graph represents the module for every input.
        GateCountError: The graph has another number of gates than `expect_gates`.
        ParityError: The graph does not compute what the network computes.
        PrecisionError: The lower precision agrees with fp32 too rarely, or differs too much.
        ExportError: The file cannot be written as valid ONNX (more than 2 GiB, say), or the report cannot be
            written, while the model is complete.
        OSError: The file cannot be written (the disk is full, say).
    """
    return run_export(
        source,
        to,
        SourceOptions(
            name=name,
            inputs=inputs,
            weights=weights,
            data=data,
            data_dir=data_dir,
            labels=labels,
            features=features,
            text_alphabet=text_alphabet,
            input_range=input_range,
            pixels=pixels,
            scale=scale,
            preprocess=preprocess,
        ),
        PrecisionOptions(precision=precision, min_agreement=min_agreement, max_error=max_error),
        ExportOptions(
            version=version,
            replace=replace,
            opset=opset,
            samples=samples,
            report=report,
            seed=seed,
            expect_gates=expect_gates,
            open_recurrent=open_recurrent,
            plain=plain,
            hide_categories=hide_categories,
        ),
        listener,
    )


def run_export(
    source: AnySource,
    to: str | Path,
    source_options: SourceOptions,
    precision_options: PrecisionOptions,
    options: ExportOptions,
    listener: ProgressListener | None = None,
) -> ExportResult:
    """Do what `export_model` describes."""
    steps = Steps(listener)
    precision = precision_options.precision
    repository = expect_writable(Path(to), "--to")
    if options.report is not None:
        expect_writable(options.report, "--report")

    with steps.step("load"):
        network = load_source(source, source_options)
        newest = predecessor(repository, network.name)
        if options.version is None:
            expect_same_prediction(network, newest)
        # words that a model hides are not published by a later export
        stay_hidden = newest.hides_categories and not options.hide_categories
        text = prove_text_input(network, network.rows)
        picture = picture_input(network)
        samples = sample_count(options.samples, network)

    with steps.step("trace"):
        graph = prepare(network, options.opset, open_recurrent=options.open_recurrent, plain=options.plain)
        expect_gate_count(graph, options.expect_gates)
        # fp16 has too few digits for H - x, and its largest number is 65504
        short = None if precision == "fp16" else with_short_sums(graph)
        forms = [graph] if short is None else [short, graph]
        if options.version is not None and not options.replace and precision == "fp32":
            expect_free_version(repository, network.name, options.version, [form.data for form in forms])

    with steps.step("verify"):
        proved = prove_first(forms, network, options.seed, steps)
        expect_ids_in_table(text, proved.runtime, network.rows)

    with steps.step("measure"):
        profile, curve = measure_gates(network, graph, proved.runtime)
        flipped = find_flipped_row(network, graph, proved.runtime, curve) if samples else None

    if precision != "fp32":
        with steps.step(f"lower to {precision}"):
            proved = lower_precision(proved, network.rows, precision_options)
    manifest = Manifest(
        name=network.name,
        version=options.version or max(1, newest.version),
        source=network.kind,
        precision=precision,
        outputs=graph.public_outputs,
        labels=network.labels,
        alphabet=network.alphabet,
        text=text,
        picture=picture,
        features=without_words(network.features)
        if options.hide_categories or stay_hidden
        else network.features,
        task=network.task,
        target=network.target,
        interval=network.interval if precision != "int8" else None,
        gates=graph.gates.gates,
        batch_axes=network.batch_axes(graph.public_outputs),
        profile=profile,
        lesion=curve,
        ranges=input_ranges(network.rows),
        samples=choose_samples(network.rows, samples, network.labels, flipped),
        random_weights=network.random_weights,
        tools=tool_versions(),
        **proved.manifest_fields,
    )

    twin, twin_warnings = None, tuple[str, ...]()
    if graph.plain is not None:
        with steps.step("plain"):
            proved_twin = prove_graph(graph.plain, network, options.seed, steps)
            proved_twin = lower_precision(proved_twin, network.rows, precision_options)
            twin = plain_twin(proved_twin, manifest)
            twin_warnings = new_warnings(proved_twin, proved)

    with steps.step("write"):
        written = write_model(repository, manifest, proved.data, if_taken=options.if_taken, plain=twin)

    result = ExportResult(
        path=written.path,
        manifest=written.manifest,
        warnings=(
            *network.messages.warnings,
            *column_warnings(network, newest),
            *proved.warnings,
            *twin_warnings,
            *_warnings_of_interval(network, precision),
            *((newest.kept_hidden,) if stay_hidden and _has_words(network) else ()),
        ),
        seconds=steps.seconds,
        written=written.written,
        comparison=proved.comparison,
        other_gates=graph.other_gates,
        plain=written.plain,
        notes=(*network.messages.notes, *(_notes_of_name(written) if source_options.name is None else ())),
    )
    if options.report is None:
        return result
    with saying_model_is_complete(written.path), steps.step("report"):
        page = _write_report(options.report, result, proved, network.rows)
    return dataclasses.replace(result, report=page)


def _warnings_of_interval(network: Network, precision: Precision) -> tuple[str, ...]:
    """Says that intervals are left out, because the errors of the network in int8 are larger."""
    if network.interval is None or precision != "int8":
        return ()
    return ("the intervals of the training are left out: they are those of fp32, and int8 has larger errors",)


def _has_words(network: Network) -> bool:
    return any(feature.categories for feature in network.features)


def _notes_of_name(written: WrittenModel) -> tuple[str, ...]:
    """A note if a model whose name comes from its source is a new version of another one."""
    manifest = written.manifest
    if not written.written or manifest.version == 1:
        return ()
    return (
        f"this is version {manifest.version} of {manifest.name!r}, the name of the source: give --name if it "
        "is another model",
    )


def _write_report(folder: Path, result: ExportResult, proved: ProvedGraph, rows: Rows | None) -> Path:
    """Write the report of an export, with the notes, the other gates and the twin."""
    from turnpike.export.report.write import write_report  # matplotlib, only for a report

    content = report_data(result.path, result.manifest, proved, rows, result.warnings, result.seconds)
    return write_report(
        folder,
        dataclasses.replace(
            content,
            notes=result.notes,
            other_gates=result.other_gates,
            plain=None if result.plain is None else PlainFile.read(result.plain),
        ),
    )


def measure_gates(
    network: Network, graph: PreparedGraph, runtime: Runtime
) -> tuple[Profile | None, LesionCurve | None]:
    """Gate statistics over the source's rows, and the effect of closing each layer; None without rows."""
    output = next(tensor for tensor in runtime.outputs if tensor.name == graph.public_outputs[0])
    expect_labels(network.labels, output.dims[-1] if output.dims else "?", output.name)
    expect_classes(network.rows, output)
    gates = graph.gates.gates
    if network.rows is None or not gates:
        return None, None
    profile = profile_gates(runtime, gates, network.rows, network.labels)
    return profile, lesion_curve(runtime, gates, network.rows, output.name, graph.biases)


def find_flipped_row(
    network: Network, graph: PreparedGraph, runtime: Runtime, curve: LesionCurve | None
) -> int | None:
    """The number of a row whose answer changes when a layer is closed, to be among the samples."""
    if network.rows is None or curve is None:
        return None
    return flipped_row(runtime, graph.gates.gates, network.rows, graph.public_outputs[0], graph.biases, curve)


def expect_classes(rows: Rows | None, output: Tensor) -> None:
    """Raise a SourceOptionError if a row has a class for which the output has no column, or a number."""
    columns = output.dims[-1] if len(output.dims) == 2 else None
    if rows is not None and rows.numbers is not None and isinstance(columns, int) and columns > 1:
        raise SourceOptionError(
            f"--data: expected one class per row, for the {columns} columns of {output.name}, got numbers to "
            "predict: --labels names the classes if they are some"
        )
    if rows is None or rows.classes is None or not isinstance(columns, int) or columns == 1:
        return
    if (highest := int(rows.classes.max())) >= columns:
        raise SourceOptionError(
            f"--data: classes: expected 0 to {columns - 1}, the columns of {output.name}, got {highest} "
            f"in row {int(rows.classes.argmax())}"
        )
