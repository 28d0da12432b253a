"""The command `turnpike inspect`: shows manifest, inputs, outputs, gates and proof of a model file."""

from __future__ import annotations

import json
import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from turnpike.service.artifact.manifest import Compression, Feature, Gate, Manifest, expect_undamaged
from turnpike.service.artifact.runtime import Runtime, open_model
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.artifact.verdict_text import proof_lines
from turnpike.service.cli.model_argument import find_model
from turnpike.service.repository.location import names_address

app = typer.Typer(add_completion=False)
# output that is not on a terminal is wide, so that names of gates are not cut
console = Console(width=None if sys.stdout.isatty() else 160)

# rows of a table; a recurrent network has hundreds of gates
MAX_SHOWN_GATES = 40
MAX_SHOWN_FEATURES = 40
MAX_SHOWN_WORDS = 5  # of a category
EPOCH = date(1970, 1, 1)


@app.command()
def command(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="An .onnx file, or the folder of a model, run or repository."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
    # `turnpike` calls `turnpike.export.cli.inspect_runtime` if it is given
    runtime_graph: Annotated[
        bool,
        typer.Option("--runtime", help="Show what onnxruntime makes of the file (with the extra export)."),
    ] = False,
) -> None:
    """Show the manifest, inputs, outputs, gates, proof and size of MODEL.

    If a folder has several versions, the newest is shown.
    """
    if model.is_dir() or names_address(model):
        model = find_model(model).path
    if model.is_file():
        expect_undamaged(model.read_bytes(), str(model))
    runtime = open_model(model)
    if as_json:
        sys.stdout.write(json.dumps(to_record(runtime, model), indent=2) + "\n")
    elif runtime.manifest is None:
        show_summary(runtime, model)
        console.print(
            "no manifest: the file was not exported by turnpike; `turnpike export` adds gates and a manifest"
        )
    else:
        show_summary(runtime, model, runtime.manifest)
        show_features(runtime.manifest.features)
        if runtime.manifest.plain:
            console.print("\nplain: written without gates and levers for other runtimes")
        else:
            show_gates(runtime.manifest.gates)
        show_proof(runtime.manifest)


def to_record(runtime: Runtime, path: Path) -> dict[str, Any]:
    """The manifest, with the tensors of the graph. Without a manifest its fields are null or empty."""
    record: dict[str, Any] = dict.fromkeys(Manifest.model_fields)
    record |= {"features": [], "gates": [], "labels": [], "ranges": [], "samples": []}
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
    """Print name, source, size, inputs and outputs as a table."""
    facts = {}
    if manifest is not None:
        facts["model"] = f"{manifest.name}, version {manifest.version}"
        facts["source"] = f"{manifest.source}, weights {manifest.weights[:12]}"
        if manifest.random_weights:
            facts["source"] += ": random, none were loaded"
        facts["precision"] = manifest.precision
    facts["size"] = f"{path.stat().st_size:,} bytes"
    facts["inputs"] = "\n".join(map(str, runtime.inputs))
    facts["outputs"] = "\n".join(map(str, runtime.outputs))
    if manifest is not None:
        facts["labels"] = ", ".join(manifest.labels) or "none"
        if manifest.task == "number":
            facts["predicts"] = manifest.target or "a number"
            if (interval := manifest.interval) is not None:
                facts["predicts"] += (
                    f" ± {interval.half_width:.5g}, which holds {interval.level:.4g} of the true numbers, by "
                    f"{interval.rows:,} rows"
                )
        elif manifest.target:
            facts["predicts"] = f"{manifest.target}, one of {len(manifest.labels)} classes"
        if (text := manifest.text) is not None:
            facts["text"] = (
                f"{text.input} takes texts of {text.row_text} ({text.scheme_text}); "
                f"{text.texts:,} texts gave the ids of the training"
            )
        if (picture := manifest.picture) is not None:
            size = f"{picture.width}x{picture.height} pixels{'' if picture.channels == 1 else ' in colour'}"
            facts["pictures"] = f"{size}; black is {picture.black:g}, white is {picture.white:g}"
        if manifest.variant is not None:
            error = manifest.variant.error
            facts["agreement"] = f"{manifest.variant.agreement:.4f} with fp32 on {manifest.variant.rows} rows"
            facts["error"] = "unknown" if error is None else f"{error:.4f} of the outputs' size (rms)"
        if manifest.compression is not None:
            facts["compressed"] = compression_text(manifest.compression)
        facts["samples"] = f"{len(manifest.samples)} rows" if manifest.samples else "none"
        coupled = "coupled: a result depends on the other rows of the run, so requests are never batched"
        facts["rows"] = coupled if manifest.batch_coupled else "independent of each other"
        if manifest.batch_axes:
            axes = ", ".join(f"{name} on axis {axis}" for name, axis in manifest.batch_axes.items())
            facts["rows"] += f"; first in the file, where the network has them elsewhere: {axes}"
        facts["made by"] = ", ".join(f"{name} {version}" for name, version in manifest.tools.items())
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, escape(value))
    console.print(table)


def compression_text(compression: Compression) -> str:
    """What was removed, and what it changed."""
    accuracy = ""
    if compression.metric is not None and compression.metric_whole is not None:
        accuracy = f", accuracy {compression.metric:.4f} (whole: {compression.metric_whole:.4f})"
    text = (
        f"{compression.units:,} of {compression.units_whole:,} units, "
        f"{compression.macs / max(1, compression.macs_whole):.1%} of the layers' multiplications"
    )
    if compression.agreement is None:
        return text
    return f"{text}\n{compression.agreement:.4f} equal answers on {compression.rows:,} rows{accuracy}"


def show_features(features: tuple[Feature, ...]) -> None:
    """Print a table with one row per column of the input; nothing if the network reads no table."""
    if not features:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"features: {len(features)}", title_justify="left")
    table.add_column("feature")
    table.add_column("kind")
    for heading in ("low", "mean", "high", "sd"):
        table.add_column(heading, justify="right")
    table.add_column("words")
    for feature in features[:MAX_SHOWN_FEATURES]:
        kind = f"{feature.kind}, or blank" if feature.blanks else feature.kind
        table.add_row(escape(feature.name), kind, *_range_cells(feature), escape(_words(feature)))
    console.print()
    console.print(table)
    if len(features) > MAX_SHOWN_FEATURES:
        console.print(f"… and {len(features) - MAX_SHOWN_FEATURES} more; --json lists all")


def _range_cells(feature: Feature) -> list[str]:
    """The lowest, mean, highest value and the standard deviation; of a word nothing."""
    if feature.kind == "category":
        return [""] * 4
    if feature.kind == "date":
        days = (feature.low, feature.mean, feature.high)
        return [*(str(EPOCH + timedelta(round(day))) for day in days), f"{feature.sd:.4g} days"]
    return [f"{number:.4g}" for number in (feature.low, feature.mean, feature.high, feature.sd)]


def _words(feature: Feature) -> str:
    """The first words of a category."""
    if feature.kind != "category":
        return ""
    words, rest = feature.categories[:MAX_SHOWN_WORDS], len(feature.categories) - MAX_SHOWN_WORDS
    return ", ".join(words) + (f" and {rest} more" if rest > 0 else "") if words else "not published"


def show_gates(gates: tuple[Gate, ...]) -> None:
    """Print a table with one row per gate, in the order of the data flow."""
    if not gates:
        console.print("\nno gates in the file")
        return
    table = Table(
        box=None, padding=(0, 2, 0, 0), title=f"transform gates: {len(gates)}", title_justify="left"
    )
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


def show_proof(manifest: Manifest) -> None:
    """Print what is proved and what was measured, and on which batches."""
    parity = manifest.parity
    console.print()
    for line in proof_lines(manifest):
        console.print(escape(line), highlight=False)
    batches = ", ".join(f"{batch.name} ({batch.rows})" for batch in parity.batches)
    console.print(f"measured against {escape(parity.reference)}; batches: {escape(batches)}", highlight=False)
