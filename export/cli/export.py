"""`turnpike export`: from a network to a verified file in a model repository."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, cast

import torch
import typer
from rich.markup import escape

from export.cli.progress import StepProgress, console, warn
from export.errors import ParityError
from export.pipeline import ExportResult, export_model
from export.precision.compare import MIN_AGREEMENT
from export.trace.trace import DEFAULT_OPSET, OPSETS
from models.interrupt import INTERRUPTED_EXIT_STATUS
from service.artifact.manifest import Manifest, Precision

app = typer.Typer(add_completion=False)

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="A run's folder or .safetensors, path/to/file.py:factory, a .pt2, or an .onnx from anywhere.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="NAME:DTYPE[DIM,...]",
        help="An argument of forward, in order; a DIM is a number, or a name where it varies (batch).",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The factory's weights: .safetensors, or an old .pt of tensors."),
]
Data = Annotated[
    str | None,
    typer.Option(
        metavar="ROWS",
        help="Real rows: an .npz of arrays named like the inputs (and y), or a data set's name.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(envvar="TURNPIKE_DATA", help="Read the original files from here; nothing is downloaded."),
]
Threads = Annotated[int, typer.Option(min=1, help="Threads for PyTorch's side of the comparison.")]


@app.command()
def command(
    source: Source,
    to: Annotated[Path, typer.Option(metavar="REPOSITORY", help="The folder of models to export to.")],
    name: Annotated[str | None, typer.Option(help="The model's name. [default: the source's]")] = None,
    version: Annotated[
        int | None, typer.Option(help="The model's version. [default: the next one that is free]")
    ] = None,
    inputs: Inputs = None,
    weights: Weights = None,
    data: Data = None,
    data_dir: DataDir = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What the classes are called, one a line, or JSON.")
    ] = None,
    precision: Annotated[str, typer.Option(help="fp32, fp16 or int8.")] = "fp32",
    min_agreement: Annotated[
        float, typer.Option(help="The share of answers that a lower precision must leave as they are.")
    ] = MIN_AGREEMENT,
    opset: Annotated[
        int | None,
        typer.Option(help=f"ONNX opset, {OPSETS[0]} to {OPSETS[-1]}. [default: {DEFAULT_OPSET}]"),
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(min=0, help="Rows of the data that go into the file. [default: 10 of public data]"),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write report.html and report.json to this folder.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the random rows that parity is proved on.")] = 0,
    threads: Threads = 1,
) -> None:
    """Export SOURCE to REPOSITORY/NAME/VERSION/model.onnx, once it is proved to compute the same.

    The file appears whole and verified, with its gates as hidden outputs and its manifest inside, or not
    at all.
    """
    torch.set_num_threads(threads)
    with stoppable() as check, table_on_failure(), StepProgress(check) as display:
        done = export_model(
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
            watcher=display,
        )
    show_export(done)


def show_export(done: ExportResult) -> None:
    """What an export came to, in a few lines."""
    for text in done.warnings:
        warn(text)
    for line in summary_lines(done.manifest):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if done.comparison is not None:
        speed = ", ".join(f"{one.ratio:.2f}x at {one.rows}" for one in done.comparison.speed)
        console.print(
            f"{done.comparison.precision}: agrees with fp32 on {done.comparison.agreement:.2%} of "
            f"{done.comparison.rows} rows; speed {speed}",
            highlight=False,
        )
    if done.report is not None:
        console.print(f"report: {escape(str(done.report))}", highlight=False, soft_wrap=True)
    verb = "wrote" if done.written else "already there:"
    console.print(f"[bold]{verb}[/] {escape(str(done.path))}", highlight=False, soft_wrap=True)


def summary_lines(manifest: Manifest) -> Iterator[str]:
    """The proof and the gates, in words."""
    parity = manifest.parity
    yield (
        f"parity: {len(parity.tensors)} tensors, {len(parity.batches)} batches on "
        f"{', '.join(parity.providers)}; {parity.identical} initializers bit for bit"
    )
    yield f"samples: {len(manifest.samples)} rows" if manifest.samples else "samples: none"
    if not manifest.gates:
        yield "gates: none found"
        return
    layers = len({gate.layer for gate in manifest.gates})
    kinds = ", ".join(sorted({f"{gate.kind}, {gate.carry} carry" for gate in manifest.gates}))
    yield f"gates: {len(manifest.gates)} in {layers} layers ({kinds})"


@contextmanager
def stoppable() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C and SIGTERM stop the block: it leaves nothing behind, and the command exits with 130.

    What is given stops it, too, where that was asked for: a library may swallow the exception of a signal.
    """
    asked = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        raise KeyboardInterrupt

    def check() -> None:
        if asked:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield check
    except KeyboardInterrupt:
        console.print("interrupted: nothing was written")
        raise typer.Exit(INTERRUPTED_EXIT_STATUS) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def table_on_failure() -> Iterator[None]:
    """Show where a graph and its network differ, before the error itself is said."""
    try:
        yield
    except ParityError as error:
        if error.table:
            console.print(error.table, highlight=False, markup=False)
        raise
