"""`turnpike verify`: prove again that an exported file computes what its source computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.markup import escape

from turnpike.export.cli.inspect_runtime import optimized_summary
from turnpike.export.cli.options import (
    AsJson,
    Data,
    DataDir,
    Inputs,
    Labels,
    MaxError,
    MinAgreement,
    Quiet,
    Scale,
    Threads,
    Weights,
    at_least,
)
from turnpike.export.cli.progress import console, print_result, running, show_messages, write_json
from turnpike.export.defaults import MAX_ERROR, MIN_AGREEMENT
from turnpike.export.options import DeviceOptions, SourceOptions
from turnpike.models.imports import collector_paused
from turnpike.service.artifact.devices import Device, DevicePrecision

if TYPE_CHECKING:
    from turnpike.export.identity.decision import Decision, LeverDecision
    from turnpike.export.verify import VerificationResult

# sentences about levers that are printed
MAX_SENTENCES = 3

app = typer.Typer(add_completion=False)


@app.command()
def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="A file exported by turnpike.")],
    against: Annotated[str, typer.Option(metavar="SOURCE", help="What the file was exported from.")],
    inputs: Inputs = None,
    weights: Weights = None,
    data: Data = None,
    data_dir: DataDir = None,
    labels: Labels = None,
    scale: Scale = None,
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
    source_options = SourceOptions(
        inputs=inputs or (), weights=weights, data=data, data_dir=data_dir, labels=labels, scale=scale
    )
    device_options = DeviceOptions(
        device=cast("Device", device),
        precision=cast("DevicePrecision", precision),
        min_agreement=min_agreement,
        max_error=max_error,
    )
    with collector_paused():
        from turnpike.export.verify import run_verification
    with running(threads, hidden=as_json or quiet) as progress:
        result = run_verification(
            model, against, source_options, device_options, seed=seed, listener=progress
        )
    print_result(
        result, as_json=as_json, quiet=quiet, write_object=write_verification_json, show=show_verification
    )


def write_verification_json(result: VerificationResult) -> None:
    """Write the result as one JSON object. A file that fails is an error, without one."""
    write_json(
        {
            "name": result.manifest.name,
            "version": result.manifest.version,
            "warnings": result.warnings,
            "notes": result.notes,
            "comparison": None if result.comparison is None else result.comparison.summary,
            "claims": {"checked": result.claims.checked, "claimed": dict(result.claims.claimed)},
            "identity": None if result.identity is None else identity_summary(result.identity),
            "runtime": None if result.optimized is None else optimized_summary(result.optimized),
            "parity": result.proof.parity.model_dump(mode="json"),
        }
    )


def identity_summary(identity: Decision) -> dict[str, Any]:
    """The decision as the object of `--json`."""
    return {
        "verdict": identity.verdict,
        "outputs": len(identity.compared),
        "runs": identity.runs,
        "error_bound": identity.error_bound,
        "folded": [constant.node for constant in identity.folded if constant.ulp > 0],
        "reason": identity.reason,
        "levers": None if identity.levers is None else levers_summary(identity.levers),
        "rows": None if identity.rows is None else identity.rows.verdict,
    }


def levers_summary(levers: LeverDecision) -> dict[str, Any]:
    """The decision about levers and closed layers as an object of `--json`."""
    return {"moved": levers.moved, "carried": levers.carried, "undecided": levers.undecided}


def identity_lines(identity: Decision, batches: int) -> Iterator[str]:
    """What was decided, in words."""
    if identity.verdict == "identical":
        yield (
            f"the same function of every input, in exact arithmetic, in {len(identity.compared)} outputs, "
            f"at {identity.runs} sets of sizes (chance of error: {identity.error_bound:.0e})"
        )
        rounded = [constant.node for constant in identity.folded if constant.ulp > 0]
        if rounded:
            names = ", ".join(rounded)
            yield f"up to constants that torch.onnx computed, within 2 units in the last place: {names}"
        if identity.levers is not None:
            yield from lever_lines(identity.levers)
        if identity.rows is not None:
            yield str(identity.rows)
    else:
        yield f"not decided for every input: {identity.reason}"
        yield f"it agrees on {batches} batches"


def lever_lines(levers: LeverDecision) -> Iterator[str]:
    """What was decided about levers and closed layers, in words."""
    yield (
        f"gates that their levers move alone: {len(levers.moved)}; layers that carry their input when "
        f"closed: {len(levers.carried)}"
    )
    for sentence in levers.undecided[:MAX_SENTENCES]:
        yield f"  not decided: {sentence}"
    if len(levers.undecided) > MAX_SENTENCES:
        yield f"  and {len(levers.undecided) - MAX_SENTENCES} more: --json lists all"


def show_verification(result: VerificationResult) -> None:
    """Print the table of the proof and the verdict."""
    show_messages(result.warnings, result.notes)
    console.print(result.proof.table(), highlight=False, markup=False)
    for line in result.proof.parity.limits:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if result.comparison is not None:
        for line in (*result.comparison.tensor_lines, result.comparison.summary):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    if result.identity is not None:
        for line in identity_lines(result.identity, len(result.proof.parity.batches)):
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    if result.optimized is not None:
        for line in result.optimized.lines():
            console.print(f"onnxruntime's graph: {line}", highlight=False, markup=False, soft_wrap=True)
    for line in result.claims.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    name = escape(f"{result.manifest.name} version {result.manifest.version}")
    console.print(f"[bold green]verified[/] {name} on {', '.join(result.proof.parity.providers)}")
