"""`turnpike inspect`: what a model file says of itself, for a person or as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from service.artifact.manifest import Gate, Manifest, Parity
from service.artifact.runtime import Runtime, Tensor, open_model

app = typer.Typer(add_completion=False)
# where nobody looks at a screen, names of gates are not cut to the width of one
console = Console(width=None if sys.stdout.isatty() else 160)

# of a recurrent network with hundreds of gates, so many are shown
MAX_SHOWN_GATES = 40


@app.command()
def command(
    model: Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The file to look into.")],
    as_json: Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")] = False,
) -> None:
    """Show the manifest, inputs, outputs, gates, parity and size of MODEL.onnx."""
    runtime = open_model(model)
    if as_json:
        sys.stdout.write(json.dumps(to_record(runtime, model), indent=2) + "\n")
    elif runtime.manifest is None:
        show_summary(runtime, model)
        console.print("no manifest: it was not exported by turnpike; turnpike export adopts it")
    else:
        show_summary(runtime, model, runtime.manifest)
        show_gates(runtime.manifest.gates)
        show_parity(runtime.manifest.parity)


def to_record(runtime: Runtime, path: Path) -> dict[str, Any]:
    """The manifest with what the graph itself says; its fields are null in a file that has none."""
    record: dict[str, Any] = dict.fromkeys(Manifest.model_fields)
    record |= {"gates": [], "labels": [], "ranges": [], "samples": []}
    if runtime.manifest is not None:
        record = runtime.manifest.model_dump(mode="json")
    return record | {
        "inputs": [tensor_record(tensor) for tensor in runtime.inputs],
        "outputs": [tensor_record(tensor) for tensor in runtime.outputs],
        "hidden": [tensor_record(tensor) for tensor in runtime.hidden],
        "levers": [tensor_record(tensor) for tensor in runtime.levers],
        "bytes": path.stat().st_size,
    }


def tensor_record(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.dims)}


def show_summary(runtime: Runtime, path: Path, manifest: Manifest | None = None) -> None:
    """What goes in and out, and whose the file is."""
    facts = {}
    if manifest is not None:
        facts["model"] = f"{manifest.name}, version {manifest.version}"
        facts["source"] = f"{manifest.source}, weights {manifest.weights[:12]}"
        facts["precision"] = manifest.precision
    facts["size"] = f"{path.stat().st_size:,} bytes"
    facts["inputs"] = "\n".join(map(str, runtime.inputs))
    facts["outputs"] = "\n".join(map(str, runtime.outputs))
    if manifest is not None:
        facts["labels"] = ", ".join(manifest.labels) or "none"
        if manifest.variant is not None:
            facts["agreement"] = f"{manifest.variant.agreement:.4f} with fp32 on {manifest.variant.rows} rows"
        facts["samples"] = f"{len(manifest.samples)} rows" if manifest.samples else "none"
        coupled = "coupled: an answer depends on the other rows, so rows are never batched"
        facts["rows"] = coupled if manifest.batch_coupled else "independent of each other"
        facts["made by"] = ", ".join(f"{name} {version}" for name, version in manifest.tools.items())
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, escape(value))
    console.print(table)


def show_gates(gates: tuple[Gate, ...]) -> None:
    """A line a gate, in the order data flows."""
    if not gates:
        console.print("\nno gates")
        return
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"{len(gates)} transform gates", title_justify="left")
    for heading in ("gate", "units", "kind", "carry", "bias", "levers"):
        table.add_column(heading)
    for gate in gates[:MAX_SHOWN_GATES]:
        bias = "" if gate.bias is None else f"{gate.bias.mean:+.2f} ± {gate.bias.sd:.2f}"
        units = "?" if gate.units is None else str(gate.units)
        table.add_row(escape(gate.name), units, gate.kind, gate.carry, bias, str(len(gate.levers)))
    console.print()
    console.print(table)
    if len(gates) > MAX_SHOWN_GATES:
        console.print(f"… and {len(gates) - MAX_SHOWN_GATES} more; --json lists all")


def show_parity(parity: Parity) -> None:
    """The verdict, and the tensor that came nearest to failing it."""
    rows = ", ".join(f"{batch.name} ({batch.rows})" for batch in parity.batches)
    console.print(f"\nparity: [bold]{parity.verdict}[/] against {escape(parity.reference)}")
    console.print(f"on {', '.join(parity.providers)}; batches {escape(rows)}", highlight=False)
    console.print(
        f"{parity.identical} initializers bit for bit, {parity.derived} derived within {parity.ulp:g} ulp",
        highlight=False,
    )
    if (worst := parity.worst) is not None:
        console.print(
            f"{len(parity.tensors)} tensors; furthest from the truth, beside PyTorch: {escape(worst.name)}, "
            f"rms {worst.rms:.1e} (PyTorch {worst.rms_torch:.1e})",
            highlight=False,
        )
