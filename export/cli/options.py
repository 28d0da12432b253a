"""Options that `turnpike export`, `verify` and `compress` share: each is declared once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from turnpike.export.errors import UsageError


def at_least(smallest: int) -> Callable[[typer.CallbackParam, int | None], int | None]:
    """A check of an option's value, whose message is like those of all other options."""

    def check(option: typer.CallbackParam, value: int | None) -> int | None:
        if value is not None and value < smallest:
            raise UsageError(f"{option.opts[0]}: expected {smallest} or more, got {value}")
        return value

    return check


SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A training run's folder or .safetensors, path/to/file.py:factory, a .pt2 or an .onnx file.",
    ),
]
RepositoryFolder = Annotated[Path, typer.Option(metavar="REPOSITORY", help="Folder of the model repository.")]
Name = Annotated[
    str | None,
    typer.Option(help="Name of the model.", show_default="the preset, the factory, or the file's name"),
]
Version = Annotated[int | None, typer.Option(help="Version of the model.", show_default="the next free one")]
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
Labels = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Names of the classes: one per line, or a JSON list.")
]
Scale = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.npz",
        help="Arrays mean and std: the file standardizes rows by them before they come to the module.",
    ),
]
FilePrecision = Annotated[str, typer.Option(help="fp32, fp16 or int8.")]
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
HideCategories = Annotated[
    bool,
    typer.Option(
        "--hide-categories",
        help="Leave the words of a table's columns out of the file. Callers send their numbers instead.",
    ),
]
Seed = Annotated[
    int, typer.Option(callback=at_least(0), help="Seed of the random rows that parity is proved on.")
]
Threads = Annotated[int, typer.Option(callback=at_least(1), help="CPU threads for PyTorch.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")]
