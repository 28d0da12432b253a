"""`turnpike export`: export a network to a verified file in a model repository."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import torch
import typer

from export.cli.progress import StepProgress, show_export, stoppable, table_on_failure
from export.pipeline import export_model
from export.precision.compare import MIN_AGREEMENT
from export.trace.trace import DEFAULT_OPSET, OPSETS
from service.artifact.manifest import Precision

app = typer.Typer(add_completion=False)

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
        help="Real rows: an .npz of arrays named like the inputs (classes as y), or a data set's name.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        envvar="TURNPIKE_DATA", help="Read the data set's original files from here; download nothing."
    ),
]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads for PyTorch.")]


@app.command()
def command(
    source: SourceArgument,
    to: Annotated[Path, typer.Option(metavar="REPOSITORY", help="Folder of the model repository.")],
    name: Annotated[
        str | None, typer.Option(help="Name of the model.", show_default="the source's name")
    ] = None,
    version: Annotated[
        int | None, typer.Option(help="Version of the model.", show_default="the next free one")
    ] = None,
    inputs: Inputs = None,
    weights: Weights = None,
    data: Data = None,
    data_dir: DataDir = None,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Names of the classes: one per line, or a JSON list."),
    ] = None,
    precision: Annotated[str, typer.Option(help="fp32, fp16 or int8.")] = "fp32",
    min_agreement: Annotated[
        float, typer.Option(help="Share of answers in which a lower precision must agree with fp32.")
    ] = MIN_AGREEMENT,
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
            min=0,
            help="Number of data rows to store in the file.",
            show_default="10 of a public data set, otherwise 0",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write an HTML report and report.json to this folder."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random rows that parity is proved on.")] = 0,
    threads: Threads = 1,
) -> None:
    """Export SOURCE to REPOSITORY/NAME/VERSION/model.onnx with proved parity.

    The file has the gates as hidden outputs and a manifest inside. If it does not compute what SOURCE
    computes, or anything else fails, nothing is written.
    """
    torch.set_num_threads(threads)
    with stoppable() as check, table_on_failure(), StepProgress(check) as progress:
        result = export_model(
            source,
            to,
            name=name,
            version=version,
            inputs=inputs or (),
            weights=weights,
            data=data,
            data_dir=data_dir,
            labels=labels,
            precision=cast("Precision", precision),
            min_agreement=min_agreement,
            opset=opset,
            samples=samples,
            report=report,
            seed=seed,
            listener=progress,
        )
    show_export(result)
