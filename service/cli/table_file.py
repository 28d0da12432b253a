"""Reads rows (CSV, Parquet, .npy, .npz, JSON lines, images) as the instances of a predict request."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer

from turnpike.common.datatypes import WIRE_DTYPES
from turnpike.service.artifact.signature import Signature
from turnpike.service.cli.parquet_file import read_parquet
from turnpike.service.cli.picture_files import ENDINGS, picture_of, read_picture
from turnpike.service.codec.feature_names import expect_columns
from turnpike.service.codec.predict_csv import read_table, read_texts
from turnpike.service.errors import RequestError, SettingError

FORMATS = ".csv, .parquet, .npy, .npz, .json, .jsonl, .png or .jpg"

# bytes of the arrays in a file: their rows become lists, which take eight times as many
MAX_ARRAY_BYTES = 1 << 28
# cells by the names of their columns
Columns = Mapping[str, Sequence[Any]]


def read_rows(path: Path, signature: Signature) -> tuple[list[Any], Columns]:
    """The rows of a file for a model with these inputs: lists of numbers, texts, or what a JSON file has.

    For a model with several inputs, a row is an object with one list for each. Also returns the columns that
    are no features of the model, by their names.

    Raises:
        SettingError: The file cannot be read. The message says where it is wrong.
    """
    with_others = {".csv": _read_csv, ".parquet": read_parquet, ".pq": read_parquet}
    readers: dict[str, Callable[[Path], list[Any]]] = {
        ".npy": partial(_read_npy, blanks=bool(signature.columns)),
        ".npz": partial(_read_npz, inputs=tuple(signature.inputs), blanks=bool(signature.columns)),
        ".json": _read_json,
        ".jsonl": _read_json_lines,
    }
    suffix = path.suffix.lower()
    if suffix in ENDINGS or path.is_dir():
        return read_pictures(path, signature)
    others: Columns = {}
    if suffix not in with_others and suffix not in readers:
        raise SettingError(f"ROWS: expected a {FORMATS} file, got {str(path)!r}")
    try:
        if suffix in with_others:
            rows, others = with_others[suffix](path, signature)
        else:
            rows, others = _split_others(readers[suffix](path), signature, path)
    except RequestError as error:
        raise SettingError(str(error)) from error
    except OSError as error:
        raise SettingError(f"{path}: expected a file that can be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise SettingError(f"{path}: expected text in UTF-8, got other bytes") from error
    except RecursionError as error:
        raise SettingError(f"{path}: expected rows of numbers, got JSON that is nested too deeply") from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise SettingError(f"{path}: expected a {suffix} file, got something else: {error}") from error
    if not rows:
        raise SettingError(f"{path}: expected rows, got none")
    return rows, others


def read_pictures(path: Path, signature: Signature) -> tuple[list[Any], Columns]:
    """The rows of an image or of all images of a folder, and the names of the files."""
    found = path.iterdir() if path.is_dir() else [path]
    files = sorted(file for file in found if file.suffix.lower() in ENDINGS)
    if not files:
        raise SettingError(f"{path}: expected images ({', '.join(ENDINGS)}), got none")
    try:
        picture = picture_of(signature)
        tensor = signature.inputs[picture.input]
        rows = [read_picture(file, picture, tensor).tolist() for file in files]
    except ValueError as error:
        raise SettingError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from error
    return rows, {"file": [file.name for file in files]}


def _split_others(rows: list[Any], signature: Signature, path: Path) -> tuple[list[Any], Columns]:
    """Rows without the cells that are no features, and the columns of these cells."""
    features = set(signature.features)
    if not features or not all(isinstance(row, dict) for row in rows):
        return rows, {}
    names = dict.fromkeys(name for row in rows for name in row)
    # a feature that no row has may be spelled in another way, which the model's own check names
    optional = {column.name for column in signature.columns if column.blanks}
    if not features - optional <= names.keys() or not features & names.keys():
        return rows, {}
    first_rows: dict[frozenset[str], int] = {}
    for number, row in enumerate(rows, 1):
        first_rows.setdefault(frozenset(row), number)
    for keys, number in first_rows.items():
        # a row that lacks others is refused like those of a request
        if features - optional <= keys and features & keys:
            expect_columns(sorted(keys), signature, f"{path}, row {number}")
    others = {name: [row.get(name) for row in rows] for name in names if name not in features}
    return [{name: cell for name, cell in row.items() if name in features} for row in rows], others


def _read_csv(path: Path, signature: Signature) -> tuple[list[Any], Columns]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        if signature.text is not None and len(signature.inputs) == 1:
            if (found := read_texts(file, str(path))) is not None:
                return list(found[0]), found[1]
            file.seek(0)
        try:
            table = read_table(file, signature, str(path))
        except RequestError:
            file.seek(0)
            table = read_table(file, signature, str(path), leave_out=True)
            if not table.left_out:
                raise
            _say_left_out(table.left_out, signature)
        (tensor,) = signature.inputs.values()
        values = table.to_dtype(WIRE_DTYPES[tensor.dtype])
    if signature.columns:
        return list(table.cells), table.others
    # in float64, floats have the digits of the file, and JSON has no more
    return (table.values if values.dtype.kind == "f" else values).tolist(), table.others


def _say_left_out(faults: Sequence[str], signature: Signature) -> None:
    """Say on standard error which rows have no predictions."""
    name = "" if signature.target is None else signature.target.name
    rows = "1 row" if len(faults) == 1 else f"{len(faults)} rows"
    typer.echo(
        f"note: left out {rows} with a wrong cell and without a value of {name}; the first: {faults[0]}",
        err=True,
    )


def _read_npy(path: Path, blanks: bool) -> list[Any]:
    # mapped: the size that the header claims is allocated otherwise
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    _expect_small(path, array.nbytes)
    return _rows(path, np.asarray(array), blanks=blanks)


def _read_npz(path: Path, inputs: tuple[str, ...], blanks: bool) -> list[Any]:
    with zipfile.ZipFile(path) as archive:
        _expect_small(path, sum(entry.file_size for entry in archive.infolist()))
    with np.load(path, allow_pickle=False) as file:
        names = tuple(file)
        if len(inputs) == 1 and len(names) == 1:
            return _rows(path, file[names[0]], blanks=blanks)
        if missing := [name for name in inputs if name not in names]:
            raise SettingError(f"{path}: expected arrays {', '.join(inputs)}, and {missing[0]!r} is missing")
        columns = [_rows(path, file[name], blanks=blanks) for name in inputs]
    if len({len(column) for column in columns}) > 1:
        raise SettingError(f"{path}: expected equally many rows in each array")
    if len(inputs) == 1:
        return columns[0]
    return [dict(zip(inputs, row, strict=True)) for row in zip(*columns, strict=True)]


def _expect_small(path: Path, size: int) -> None:
    if size > MAX_ARRAY_BYTES:
        raise SettingError(
            f"{path}: expected arrays of at most {MAX_ARRAY_BYTES:,} bytes, got {size:,}: turnpike score "
            "reads larger files"
        )


def _rows(path: Path, array: Any, *, blanks: bool) -> list[Any]:
    """The rows of an array; with `blanks`, NaN is a cell without a value."""
    if not (isinstance(array, np.ndarray) and array.ndim > 1 and array.dtype.kind in "biuf"):
        raise SettingError(f"{path}: expected an array of numbers with one row along its first axis each")
    missing = np.isnan(array) if blanks else np.False_
    if not (np.isfinite(array) | missing).all():
        raise SettingError(f"{path}: expected finite numbers, got NaN or Infinity")
    if missing.any():
        array = array.astype(object)
        array[missing] = None
    rows: list[Any] = array.tolist()
    return rows


def _read_json(path: Path) -> list[Any]:
    """A list of rows, or the body of a predict request."""
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = content.get("instances") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise SettingError(f'{path}: expected a list of rows, or {{"instances": [...]}}')
    return rows


def _read_json_lines(path: Path) -> list[Any]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise SettingError(f"{path}, line {number}: expected JSON, got an error: {error}") from error
    return rows
