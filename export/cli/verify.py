"""`turnpike verify`: prove again that an exported file computes what its source computes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from rich.markup import escape

from turnpike.export.cli.export import (
    AsJson,
    Data,
    DataDir,
    Inputs,
    MaxError,
    MinAgreement,
    Quiet,
    Threads,
    Weights,
    at_least,
)
from turnpike.export.cli.progress import (
    StepProgress,
    console,
    show_messages,
    stoppable,
    table_on_failure,
    write_json,
)
from turnpike.export.defaults import MAX_ERROR, MIN_AGREEMENT
from turnpike.export.errors import UsageError
from turnpike.models.imports import collector_paused
from turnpike.service.artifact.devices import Device, DevicePrecision

if TYPE_CHECKING:
    from turnpike.export.verify import VerificationResult

app = typer.Typer(add_completion=False)


@app.command()
def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="A file exported by turnpike.")],
    against: Annotated[str, typer.Option(metavar="SOURCE", help="What the file was exported from.")],
    inputs: Inputs = None,
    weights: Weights = None,
    data: Data = None,
    data_dir: DataDir = None,
    device: Annotated[str, typer.Option(help="Where the file runs: cpu, cuda or openvino.")] = "cpu",
    precision: Annotated[
        str, typer.Option(help="Precision of the device's arithmetic: fp32, or bf16 with openvino.")
    ] = "fp32",
    seed: Annotated[
        int,
        typer.Option(callback=at_least(0), help="Seed of the random rows; another seed tries other rows."),
    ] = 0,
    min_agreement: MinAgreement = MIN_AGREEMENT,
    max_error: MaxError = MAX_ERROR,
    threads: Threads = 1,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Prove again, tensor by tensor, that MODEL.onnx computes what SOURCE computes."""
    if device not in get_args(Device):
        raise UsageError(f"--device: expected {', '.join(get_args(Device))}, got {device!r}")
    if precision not in get_args(DevicePrecision):
        raise UsageError(f"--precision: expected {', '.join(get_args(DevicePrecision))}, got {precision!r}")
    if precision != "fp32" and device != "openvino":
        raise UsageError(f"--precision: expected fp32 with --device {device}, got {precision}")
    with collector_paused():
        import torch

        from turnpike.export.verify import verify_model
    torch.set_num_threads(threads)
    hidden = as_json or quiet
    with (
        stoppable() as check,
        table_on_failure(hidden=hidden),
        StepProgress(check, hidden=hidden) as progress,
    ):
        result = verify_model(
            model,
            against,
            inputs=inputs or (),
            weights=weights,
            data=data,
            data_dir=data_dir,
            device=cast("Device", device),
            precision=cast("DevicePrecision", precision),
            seed=seed,
            min_agreement=min_agreement,
            max_error=max_error,
            listener=progress,
        )
    if as_json:
        write_verification_json(result)
    elif quiet:
        show_messages(result.warnings, ())
    else:
        show_verification(result)


def write_verification_json(result: VerificationResult) -> None:
    """Write the result as one JSON object. A file that fails is an error, without one."""
    write_json(
        {
            "name": result.manifest.name,
            "version": result.manifest.version,
            "warnings": result.warnings,
            "notes": result.notes,
            "comparison": None if result.comparison is None else result.comparison.summary,
            "parity": result.proof.parity.model_dump(mode="json"),
        }
    )


def show_verification(result: VerificationResult) -> None:
    """Print the table of the proof and the verdict."""
    show_messages(result.warnings, result.notes)
    console.print(result.proof.table(), highlight=False, markup=False)
    for line in result.proof.parity.limits:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if result.comparison is not None:
        for line in (*result.comparison.tensor_lines, result.comparison.summary):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    name = escape(f"{result.manifest.name} version {result.manifest.version}")
    console.print(f"[bold green]verified[/] {name} on {', '.join(result.proof.parity.providers)}")
