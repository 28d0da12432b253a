"""`turnpike compress`: remove the units that change their input least, and write the verified file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.markup import escape
from rich.table import Table

from turnpike.export.cli.options import (
    AsJson,
    DataDir,
    FilePrecision,
    HideCategories,
    Inputs,
    MaxError,
    MinAgreement,
    Name,
    Quiet,
    Report,
    RepositoryFolder,
    Seed,
    SourceArgument,
    Threads,
    Version,
    Weights,
    at_least,
)
from turnpike.export.cli.progress import console, print_result, running, show_messages, write_json
from turnpike.export.defaults import MAX_ERROR, MIN_AGREEMENT
from turnpike.export.options import PrecisionOptions, SourceOptions
from turnpike.export.report.compression_curve import (
    curve_with_file,
    differs_from_curve,
    file_point,
    share_interval,
)
from turnpike.models.imports import collector_paused
from turnpike.service.artifact.manifest import Compression, Manifest, Precision

if TYPE_CHECKING:
    from turnpike.export.compress.remove_units import CompressionResult

app = typer.Typer(add_completion=False)


@app.command()
def command(
    source: SourceArgument,
    to: RepositoryFolder,
    data: Annotated[
        str,
        typer.Option(
            metavar="ROWS",
            help="Rows to choose the units on, and others to judge the choice on: a data set's training and "
            "test rows, or every other row of an .npz of arrays named like the inputs (classes as y).",
        ),
    ],
    keep: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Share of the units to keep, such as 0.2.")
    ] = None,
    max_drop: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            help="Keep as few units as lose at most this many percentage points of accuracy (of R2, if "
            "a number is predicted), or of equal answers if the classes are not known.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Write nothing if more than --max-drop is lost on the rows that judge the result, in place "
            "of a warning.",
        ),
    ] = False,
    finetune_epochs: Annotated[
        int,
        typer.Option(
            metavar="N",
            callback=at_least(0),
            help="Train the units that are left for N epochs, if SOURCE is a checkpoint; with --max-drop "
            "after each of several cuts.",
        ),
    ] = 0,
    data_dir: DataDir = None,
    name: Name = None,
    version: Version = None,
    inputs: Inputs = None,
    weights: Weights = None,
    precision: FilePrecision = "fp32",
    min_agreement: MinAgreement = MIN_AGREEMENT,
    max_error: MaxError = MAX_ERROR,
    hide_categories: HideCategories = False,
    report: Report = None,
    seed: Seed = 0,
    threads: Threads = 1,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compress SOURCE to REPOSITORY/NAME/VERSION/model.onnx: fewer units, proved, and faster.

    A unit that changes little carries its input instead, and its rows of the
    weights are removed. If the smaller graph is not faster, or anything else
    fails, nothing is written.
    """
    source_options = SourceOptions(
        name=name, inputs=inputs or (), weights=weights, data=data, data_dir=data_dir
    )
    precision_options = PrecisionOptions(
        precision=cast("Precision", precision), min_agreement=min_agreement, max_error=max_error
    )
    with collector_paused():
        from turnpike.export.compress.remove_units import CompressionOptions, run_compression
    options = CompressionOptions(
        keep, max_drop, finetune_epochs, version, report, seed, hide_categories, strict=strict
    )
    with running(threads, hidden=as_json or quiet) as progress:
        result = run_compression(source, to, source_options, precision_options, options, progress)
    print_result(
        result, as_json=as_json, quiet=quiet, write_object=write_compression_json, show=show_compression
    )


def show_compression(result: CompressionResult) -> None:
    """Print what was removed, what other shares would have given, and the path of the file."""
    show_messages(result.warnings, ())
    compression = result.manifest.compression
    if compression is None:
        raise ValueError("expected the manifest of a compressed file")
    console.print("units and multiplications that are kept, and how many times faster a run is, by its rows")
    if differs_from_curve(result.manifest.precision, compression):
        console.print("the row in bold is the file; the others are in fp32, without training after the cut")
    console.print(curve_table(result.manifest, compression))
    for line in summary_lines(result, compression):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if result.finetuned is not None:
        console.print(
            f"trained network, for turnpike verify --against: {escape(str(result.finetuned))}",
            highlight=False,
            soft_wrap=True,
        )
    if result.report is not None:
        console.print(f"report: {escape(str(result.report))}", highlight=False, soft_wrap=True)
    verb = "wrote" if result.written else "unchanged:"
    console.print(f"[bold]{verb}[/] {escape(str(result.path))}", highlight=False, soft_wrap=True)


def curve_table(manifest: Manifest, compression: Compression) -> Table:
    """A row for each share of the units, and one for the file that was written."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    file = file_point(compression)
    metric = "R2" if manifest.task == "number" else "accuracy"
    has_answers = file.agreement is not None
    titles = ["units", "multiplications"]
    titles += [*([metric] if file.metric is not None else []), *(["same answers"] if has_answers else [])]
    for title in (*titles, *(f"{size} row{'' if size == 1 else 's'}" for size in file.faster)):
        table.add_column(title, justify="right", no_wrap=True)
    for point in curve_with_file(manifest.precision, compression):
        answers = [f"{share:.2%}" for share in (point.metric, point.agreement) if share is not None]
        faster = [f"{times:.2f}x" for times in point.faster.values()]
        cells = [f"{point.share:.1%}", f"{point.macs:.1%}", *answers, *faster]
        table.add_row(*cells, style="bold" if point == file else None)
    return table


def summary_lines(result: CompressionResult, compression: Compression) -> Iterator[str]:
    """The units that are left, by layer, and the proof."""
    layers = ", ".join(f"{left} of {units}" for left, units in result.unit_counts.values())
    yield from rows_lines(result.manifest, compression)
    yield f"units kept: {compression.units:,} of {compression.units_whole:,}, by layer: {layers}"
    parity = result.manifest.parity
    yield (
        f"parity: proved on {len(parity.tensors)} tensors, {len(parity.batches)} batches, against the whole "
        "network with the removed units carried"
    )


def rows_lines(manifest: Manifest, compression: Compression) -> Iterator[str]:
    """The rows that were used, and what those that judge the result say about all others."""
    shares = {"same answers": compression.agreement}
    if manifest.task == "classes":
        shares["accuracy"] = compression.metric
    yield (
        f"rows: units chosen on {compression.calibration_rows:,}, the result judged on "
        f"{compression.rows:,} others"
    )
    for name, share in shares.items():
        if share is not None:
            low, high = share_interval(share, compression.rows)
            yield f"{name}: {share:.2%}, for all rows of this kind {low:.2%} to {high:.2%} (95 % confidence)"


def write_compression_json(result: CompressionResult) -> None:
    """Write the result as one JSON object."""
    points = [point.model_dump(mode="json") for point in (result.point, *result.curve)]
    write_json(
        {
            "path": str(result.path),
            "written": result.written,
            "finetuned": None if result.finetuned is None else str(result.finetuned),
            "report": None if result.report is None else str(result.report),
            "point": points[0],
            "curve": points[1:],
            "kept": {
                name: {"units": left, "of": units} for name, (left, units) in result.unit_counts.items()
            },
            "warnings": result.warnings,
            "manifest": result.manifest.model_dump(mode="json"),
        }
    )
