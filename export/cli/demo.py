"""`turnpike demo`: train and export the default network on embedded data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from turnpike.models.imports import collector_paused

app = typer.Typer(add_completion=False)


@app.command()
def command(
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Folder for the trained network, the model repository and the report."
        ),
    ] = Path("runs/demo"),
) -> None:
    """Train the default network on the embedded digits in a few seconds, and export it with proved parity."""
    with collector_paused():
        from turnpike.export.cli.demo_run import run_demo
    run_demo(out)
