"""Reads the rows of a table (CSV, .npy, .npz, JSON lines) as the instances of a predict request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from turnpike.common.datatypes import WIRE_DTYPES
from turnpike.service.artifact.signature import Signature
from turnpike.service.codec.predict_csv import read_table, read_texts
from turnpike.service.errors import RequestError, SettingError

FORMATS = ".csv, .npy, .npz, .json or .jsonl"


Columns = Mapping[str, Sequence[str]]


def read_rows(path: Path, signature: Signature) -> tuple[list[Any], Columns]:
    """The rows of a file for a model with these inputs: lists of numbers, texts, or what a JSON file has.

    For a model with several inputs, a row is an object with one list for each. Also returns the columns of a
    .csv that are no features of the model, by their names.

    Raises:
        SettingError: The file cannot be read. The message says where it is wrong.
    """
    readers: dict[str, Callable[[Path], list[Any]]] = {
        ".npy": _read_npy,
        ".npz": partial(_read_npz, inputs=tuple(signature.inputs)),
        ".json": _read_json,
        ".jsonl": _read_json_lines,
    }
    suffix = path.suffix.lower()
    others: Columns = {}
    if suffix != ".csv" and suffix not in readers:
        raise SettingError(f"ROWS: expected a {FORMATS} file, got {str(path)!r}")
    try:
        if suffix == ".csv":
            rows, others = _read_csv(path, signature)
        else:
            rows = readers[suffix](path)
    except OSError as error:
        raise SettingError(f"{path}: expected a file that can be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise SettingError(f"{path}: expected text in UTF-8, got other bytes") from error
    except (ValueError, EOFError) as error:
        raise SettingError(f"{path}: expected a {suffix} file, got something else: {error}") from error
    if not rows:
        raise SettingError(f"{path}: expected rows, got none")
    return rows, others


def _read_csv(path: Path, signature: Signature) -> tuple[list[Any], Columns]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            if signature.text is not None and len(signature.inputs) == 1:
                if (found := read_texts(file, str(path), keep_others=True)) is not None:
                    return list(found[0]), found[1]
                file.seek(0)
            table = read_table(file, signature, str(path), keep_others=True)
            (tensor,) = signature.inputs.values()
            values = table.to_dtype(WIRE_DTYPES[tensor.dtype])
        except RequestError as error:
            raise SettingError(str(error)) from error
    if signature.columns:
        return list(table.cells), table.others
    # in float64, floats have the digits of the file, and JSON has no more
    return (table.values if values.dtype.kind == "f" else values).tolist(), table.others


def _read_npy(path: Path) -> list[Any]:
    rows: list[Any] = _array(path, np.load(path, allow_pickle=False)).tolist()
    return rows


def _read_npz(path: Path, inputs: tuple[str, ...]) -> list[Any]:
    with np.load(path, allow_pickle=False) as file:
        names = tuple(file)
        if len(inputs) == 1 and len(names) == 1:
            return list(_array(path, file[names[0]]).tolist())
        if missing := [name for name in inputs if name not in names]:
            raise SettingError(f"{path}: expected arrays {', '.join(inputs)}, and {missing[0]!r} is missing")
        columns = [_array(path, file[name]).tolist() for name in inputs]
    if len({len(column) for column in columns}) > 1:
        raise SettingError(f"{path}: expected equally many rows in each array")
    if len(inputs) == 1:
        return list(columns[0])
    return [dict(zip(inputs, row, strict=True)) for row in zip(*columns, strict=True)]


def _array(path: Path, array: Any) -> Any:
    if not (isinstance(array, np.ndarray) and array.ndim > 1 and array.dtype.kind in "biuf"):
        raise SettingError(f"{path}: expected an array of numbers with one row along its first axis each")
    if not np.isfinite(array).all():
        raise SettingError(f"{path}: expected finite numbers, got NaN or Infinity")
    return array


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
