"""`turnpike export`: export a network to a verified file in a model repository."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from turnpike.export.cli.options import (
    AsJson,
    Data,
    DataDir,
    FilePrecision,
    HideCategories,
    Inputs,
    Labels,
    MaxError,
    MinAgreement,
    Name,
    Quiet,
    Report,
    RepositoryFolder,
    Scale,
    Seed,
    SourceArgument,
    Threads,
    Version,
    Weights,
    at_least,
)
from turnpike.export.cli.progress import print_result, running, show_export, write_export_json
from turnpike.export.defaults import DEFAULT_OPSET, MAX_ERROR, MIN_AGREEMENT, OPSETS
from turnpike.export.options import PrecisionOptions, SourceOptions
from turnpike.models.cli.progress import show_next_step
from turnpike.models.imports import collector_paused
from turnpike.service.artifact.manifest import Precision

app = typer.Typer(add_completion=False)


@app.command()
def command(
    source: SourceArgument,
    to: RepositoryFolder,
    name: Name = None,
    version: Version = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the file of --version if it is another one.")
    ] = False,
    inputs: Inputs = None,
    weights: Weights = None,
    data: Data = None,
    data_dir: DataDir = None,
    labels: Labels = None,
    features: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Names of the columns of a table: one per line, or a JSON list.",
            show_default="those of the training run",
        ),
    ] = None,
    text_alphabet: Annotated[
        str | None,
        typer.Option(
            metavar="[NAME=]SCHEME|FILE",
            help="How texts become the ids of an input: bytes, elmo, characterbert, or a file of your own "
            "alphabet or vocabulary (a token per line, or .json). --data has the texts.",
            show_default="the alphabet of the training run",
        ),
    ] = None,
    input_range: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]LOW:HIGH", help="Measure rounding for these values only, of all inputs or of one."
        ),
    ] = None,
    pixels: Annotated[
        str | None,
        typer.Option(
            metavar="BLACK:WHITE",
            help="Numbers of a black and of a white pixel, such as 0:255, if the network reads pictures.",
            show_default="known for image data sets and folders",
        ),
    ] = None,
    scale: Scale = None,
    precision: FilePrecision = "fp32",
    min_agreement: MinAgreement = MIN_AGREEMENT,
    max_error: MaxError = MAX_ERROR,
    opset: Annotated[
        int | None,
        typer.Option(
            help=f"ONNX opset, {OPSETS[0]} to {OPSETS[-1]}. An .onnx source keeps its own.",
            show_default=str(DEFAULT_OPSET),
        ),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            callback=at_least(0),
            help="Number of data rows to store in the file.",
            show_default="10 of a public data set, otherwise 0",
        ),
    ] = None,
    report: Report = None,
    seed: Seed = 0,
    expect_gates: Annotated[
        int | None,
        typer.Option(
            callback=at_least(0), help="Number of gates that the network has. Another number is an error."
        ),
    ] = None,
    open_recurrent: Annotated[
        bool,
        typer.Option(
            "--open-recurrent",
            help="Replace each GRU and LSTM by a loop that shows its gates. It is slower, and not for fp16. "
            "Layers with sequence lengths, peepholes, clipping or other activations stay.",
        ),
    ] = False,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain", help="Also write plain.onnx for other runtimes: no gates, no levers, proved too."
        ),
    ] = False,
    hide_categories: HideCategories = False,
    threads: Threads = 1,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Export SOURCE to REPOSITORY/NAME/VERSION/model.onnx, proved to be the same function.

    The file has the gates as hidden outputs and a manifest inside. If it does not compute what SOURCE
    computes, or anything else fails before the report, nothing is written.
    """
    source_options = SourceOptions(
        name=name,
        inputs=inputs or (),
        weights=weights,
        data=data,
        data_dir=data_dir,
        labels=labels,
        features=features,
        text_alphabet=text_alphabet,
        input_range=input_range or (),
        pixels=pixels,
        scale=scale,
    )
    precision_options = PrecisionOptions(
        precision=cast("Precision", precision), min_agreement=min_agreement, max_error=max_error
    )
    with collector_paused():
        from turnpike.export.pipeline import ExportOptions, run_export
    options = ExportOptions(
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
    )
    with running(threads, hidden=as_json or quiet) as progress:
        result = run_export(source, to, source_options, precision_options, options, progress)
    print_result(result, as_json=as_json, quiet=quiet, write_object=write_export_json, show=show_export)
    if not as_json and not quiet:
        show_next_step("serve", to)
