"""`turnpike inspect MODEL --runtime`: what onnxruntime makes of a file, and whether that is its function.

It needs the interpreter of ONNX's operators, so it is in `export` and not beside the rest of `inspect`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from turnpike.export.cli.progress import console, write_json
from turnpike.export.errors import SourceError
from turnpike.models.imports import collector_paused

if TYPE_CHECKING:
    from turnpike.export.optimized.decide_optimized import OptimizedGraph

app = typer.Typer(add_completion=False)


@app.command()
def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An .onnx file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
    runtime: Annotated[
        bool, typer.Option("--runtime", help="Show what onnxruntime makes of the file.")
    ] = True,
) -> None:
    """Show the operators that onnxruntime runs in place of the file's, and whether they compute the same."""
    if not model.is_file():
        raise SourceError(f"{model}: expected an .onnx file for --runtime, got {_kind(model)}")
    with collector_paused():
        from turnpike.export.optimized.decide_optimized import decide_optimized
    from turnpike.service.artifact.manifest import read_manifest

    data = model.read_bytes()
    manifest = read_manifest(data, str(model))
    disabled = () if manifest is None else manifest.disabled_optimizers
    graph = decide_optimized(data, disabled, where=str(model))
    if as_json:
        write_json({"runtime": optimized_summary(graph), "disabled_optimizers": disabled})
    else:
        show_optimized(graph, disabled)


def _kind(model: Path) -> str:
    return "a folder" if model.is_dir() else "no such file"


def optimized_summary(graph: OptimizedGraph) -> dict[str, Any]:
    """What onnxruntime makes of a file as an object of `--json`."""
    return {
        "verdict": graph.decision.verdict,
        "different": graph.decision.different,
        "first_difference": graph.decision.first_difference,
        "reason": graph.decision.reason,
        "error_bound": graph.decision.error_bound,
        "operators": {"file": graph.before, "onnxruntime": graph.after},
        "constants": [
            {"name": constant.name, "value": constant.value, "ulps": constant.ulps}
            for constant in graph.constants
        ],
        "max_ulps": graph.ulps,
    }


def show_optimized(graph: OptimizedGraph, disabled_optimizers: tuple[str, ...]) -> None:
    """Print the operators before and after, and the verdict."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("operator")
    table.add_column("file", justify="right")
    table.add_column("onnxruntime", justify="right")
    for name in sorted({*graph.before, *graph.after}):
        table.add_row(name, *(str(counts.get(name, "")) for counts in (graph.before, graph.after)))
    console.print(table)
    if disabled_optimizers:
        console.print(f"served without: {', '.join(disabled_optimizers)}", markup=False)
    for line in graph.lines():
        console.print(line, markup=False, soft_wrap=True)
