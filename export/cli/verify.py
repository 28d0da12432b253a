"""`turnpike verify`: prove again that an exported file computes what its source computes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import torch
import typer
from rich.markup import escape

from export.cli.export import Data, DataDir, Inputs, Threads, Weights
from export.cli.progress import StepProgress, console, stoppable, table_on_failure, warn
from export.errors import UsageError
from export.precision.compare import MIN_AGREEMENT
from export.verify import verify_model
from service.artifact.runtime import Device

app = typer.Typer(add_completion=False)


@app.command()
def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="A file exported by turnpike.")],
    against: Annotated[str, typer.Option(metavar="SOURCE", help="What the file was exported from.")],
    inputs: Inputs = None,
    weights: Weights = None,
    data: Data = None,
    data_dir: DataDir = None,
    device: Annotated[str, typer.Option(help="Where the file runs: cpu or cuda.")] = "cpu",
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the random rows; another seed tries other rows.")
    ] = 0,
    min_agreement: Annotated[
        float, typer.Option(help="Share of answers in which a lower precision must agree with fp32.")
    ] = MIN_AGREEMENT,
    threads: Threads = 1,
) -> None:
    """Prove again, tensor by tensor, that MODEL.onnx computes what SOURCE computes."""
    if device not in get_args(Device):
        raise UsageError(f"--device: expected {' or '.join(get_args(Device))}, got {device!r}")
    torch.set_num_threads(threads)
    with stoppable() as check, table_on_failure(), StepProgress(check) as progress:
        result = verify_model(
            model,
            against,
            inputs=inputs or (),
            weights=weights,
            data=data,
            data_dir=data_dir,
            device="cuda" if device == "cuda" else "cpu",
            seed=seed,
            min_agreement=min_agreement,
            listener=progress,
        )
    for text in result.warnings:
        warn(text)
    console.print(result.proof.table(), highlight=False, markup=False)
    if result.comparison is not None:
        console.print(
            f"{result.comparison.precision}: agrees with fp32 on {result.comparison.agreement:.2%} of "
            f"{result.comparison.rows} rows",
            highlight=False,
        )
    name = escape(f"{result.manifest.name} version {result.manifest.version}")
    console.print(f"[bold green]verified[/] {name} on {', '.join(result.proof.parity.providers)}")
