"""The command `turnpike predict`: a table of rows in, a table of predictions out."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from turnpike.service.artifact.limits import MAX_ROWS
from turnpike.service.errors import RequestError, SettingError
from turnpike.service.inference_types import Array

app = typer.Typer(add_completion=False)


@app.command()
def command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="An .onnx file, a folder with one model, or a URL.")
    ],
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="ROWS",
            help="Rows: .csv, .parquet, .npy, .npz, .json, .jsonl, .png, or a folder of images.",
        ),
    ],
    gates: Annotated[bool, typer.Option("--gates", help="Add the mean of each gate for each row.")] = False,
    warnings: Annotated[
        bool, typer.Option("--warnings", help="Say which cells of a row the training did not have.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object instead of CSV.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="File to write.", show_default="standard output"),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option("--api-key-file", metavar="FILE", help="File with the key of a served model."),
    ] = None,
) -> None:
    """Predict the rows of a table with MODEL.

    MODEL is an .onnx file, the folder of a model, a run or a repository with
    one model, or the URL of a service, such as http://127.0.0.1:8000. If the
    model has names for its features, the columns of a table may be in any order.
    Its other columns are kept beside the predictions.
    """
    # imported here, so that --help needs neither NumPy nor onnxruntime
    import numpy as np

    from turnpike.service.cli.prediction_source import instance_warnings, local_model, read_key, served_model
    from turnpike.service.cli.table_file import read_rows
    from turnpike.service.codec.tables.cell_warnings import NO_WARNINGS
    from turnpike.service.codec.tables.predictions import predictions_csv

    if out is not None:
        expect_writable(out)
    if model.startswith(("http://", "https://")):
        signature, predict = served_model(model, read_key(api_key_file))
    else:
        signature, predict = local_model(Path(model))
    if warnings and not signature.columns:
        raise SettingError(NO_WARNINGS)
    instances, others = read_rows(rows, signature)
    predictions: list[Any] = []
    parts: list[dict[str, Array]] = []
    notes: list[str] = []
    for start in range(0, len(instances), MAX_ROWS):
        try:
            chunk = instances[start : start + MAX_ROWS]
            some, means = predict(chunk, gates)
            if signature.columns:
                notes += instance_warnings(chunk, signature)
        except RequestError as error:
            where = f" (rows from {start + 1} on)" if start else ""
            raise SettingError(f"{rows}{where}: {error}") from error
        predictions += some
        parts.append(means)
    means = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if not warnings:
        say_new_cells(notes)
    if as_json:
        text = to_json(predictions, means, notes if warnings else [])
    else:
        more = means | ({"warnings": np.array(notes, object)} if warnings else {})
        text = predictions_csv(predictions, more, others)
    if out is None:
        sys.stdout.write(text)
    else:
        with out_errors(out):
            out.write_text(text, encoding="utf-8")


def say_new_cells(notes: list[str]) -> None:
    """Say on standard error how many rows have cells that the training did not have."""
    new = [(number, note) for number, note in enumerate(notes, 1) if note]
    if not new:
        return
    number, note = new[0]
    rows = "1 row has" if len(new) == 1 else f"{len(new):,} rows have"
    typer.echo(
        f"note: {rows} cells that training did not have (the first, row {number}: {note}); "
        "--warnings adds them to the output",
        err=True,
    )


def expect_writable(out: Path) -> None:
    """Raise a SettingError, before the work, if the file cannot be written."""
    with out_errors(out):
        if out.exists():
            out.open("ab").close()
        else:
            with tempfile.TemporaryFile(dir=out.parent):
                pass


@contextmanager
def out_errors(out: Path) -> Iterator[None]:
    """Turn errors of the file system into a SettingError."""
    try:
        yield
    except OSError as error:
        message = f"--out: expected a file that can be written, got {str(out)!r} ({error.strerror})"
        raise SettingError(message) from error


def to_json(predictions: list[Any], means: dict[str, Array], warnings: list[str]) -> str:
    """One object: the predictions, for each gate the means of all rows, and for each row its warnings."""
    answer: dict[str, Any] = {"predictions": predictions}
    if means:
        answer["gates"] = {name: values.tolist() for name, values in means.items()}
    if warnings:
        answer["warnings"] = warnings
    return json.dumps(answer) + "\n"
