"""`turnpike export`: export a network to a verified file in a model repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, cast

import typer

from turnpike.export.cli.progress import (
    StepProgress,
    show_export,
    show_messages,
    stoppable,
    table_on_failure,
    write_export_json,
)
from turnpike.export.defaults import DEFAULT_OPSET, MAX_ERROR, MIN_AGREEMENT, OPSETS
from turnpike.export.errors import UsageError
from turnpike.models.imports import collector_paused
from turnpike.service.artifact.manifest import Precision

app = typer.Typer(add_completion=False)


def at_least(smallest: int) -> Callable[[typer.CallbackParam, int | None], int | None]:
    """A check of an option's value, whose message is like those of all other options."""

    def check(option: typer.CallbackParam, value: int | None) -> int | None:
        if value is not None and value < smallest:
            raise UsageError(f"{option.opts[0]}: expected {smallest} or more, got {value}")
        return value

    return check


# options that `turnpike verify` has too
SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A training run's folder or .safetensors, path/to/file.py:factory, a .pt2 or an .onnx file.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME:DTYPE[DIM,...]",
        help="An argument of forward, in order. A DIM is a number, or a name if it varies (batch).",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Weights for the factory's module: .safetensors or a .pt of tensors."),
]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="ROWS",
        help="Real rows: a table (.csv, .parquet), an .npz of arrays named like the inputs (classes as y), a "
        "folder of images, or the name of a data set.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        envvar="TURNPIKE_DATA", help="Read the data set's original files from here; download nothing."
    ),
]
MinAgreement = Annotated[
    float,
    typer.Option(
        help="Share of rows in which a lower precision must have the same highest column in the first output "
        "as fp32."
    ),
]
MaxError = Annotated[
    float, typer.Option(help="Relative rms error that the outputs of a lower precision may have.")
]
Report = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for index.html and report.json.")]
Threads = Annotated[int, typer.Option(callback=at_least(1), help="CPU threads for PyTorch.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")]


@app.command()
def command(
    source: SourceArgument,
    to: Annotated[Path, typer.Option(metavar="REPOSITORY", help="Folder of the model repository.")],
    name: Annotated[
        str | None,
        typer.Option(help="Name of the model.", show_default="the preset, the factory, or the file's name"),
    ] = None,
    version: Annotated[
        int | None, typer.Option(help="Version of the model.", show_default="the next free one")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the file of --version if it is another one.")
    ] = False,
    inputs: Inputs = None,
    weights: Weights = None,
    data: Data = None,
    data_dir: DataDir = None,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Names of the classes: one per line, or a JSON list."),
    ] = None,
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
            metavar="[NAME=]SCHEME",
            help="How texts become the ids of an input: bytes, elmo or characterbert. --data has the texts.",
            show_default="the alphabet of the training run",
        ),
    ] = None,
    input_range: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]LOW:HIGH", help="Prove parity for these values only, of all inputs or of one."
        ),
    ] = None,
    precision: Annotated[str, typer.Option(help="fp32, fp16 or int8.")] = "fp32",
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
    seed: Annotated[
        int, typer.Option(callback=at_least(0), help="Seed of the random rows that parity is proved on.")
    ] = 0,
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
            "--plain", help="Also write plain.onnx for other runtimes: no gates, no levers, the same proof."
        ),
    ] = False,
    threads: Threads = 1,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Export SOURCE to REPOSITORY/NAME/VERSION/model.onnx with proved parity.

    The file has the gates as hidden outputs and a manifest inside. If it does not compute what SOURCE
    computes, or anything else fails before the report, nothing is written.
    """
    with collector_paused():
        import torch

        from turnpike.export.pipeline import export_model
    torch.set_num_threads(threads)
    hidden = as_json or quiet
    with (
        stoppable() as check,
        table_on_failure(hidden=hidden),
        StepProgress(check, hidden=hidden) as progress,
    ):
        result = export_model(
            source,
            to,
            name=name,
            version=version,
            replace=replace,
            inputs=inputs or (),
            weights=weights,
            data=data,
            data_dir=data_dir,
            labels=labels,
            features=features,
            text_alphabet=text_alphabet,
            input_range=input_range or (),
            precision=cast("Precision", precision),
            min_agreement=min_agreement,
            max_error=max_error,
            opset=opset,
            samples=samples,
            report=report,
            seed=seed,
            expect_gates=expect_gates,
            open_recurrent=open_recurrent,
            plain=plain,
            listener=progress,
        )
    if as_json:
        write_export_json(result)
    elif quiet:
        show_messages(result.warnings, ())
    else:
        show_export(result)
