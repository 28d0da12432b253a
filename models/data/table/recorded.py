"""Reads a table by the columns of an earlier training, whatever else its columns would be taken for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from turnpike.common.columns import CellError, ColumnForm, in_words, is_blank
from turnpike.models.choices import Task
from turnpike.models.data.dataset import RawDataset, Split
from turnpike.models.data.table.cells import Cells, read_cells, stem
from turnpike.models.data.table.read import MAX_FLOAT32, class_of, labels_of, number_in
from turnpike.models.errors import DataError


def read_recorded_table(
    path: Path, forms: Mapping[str, ColumnForm], target: str, task: Task, labels: Sequence[str] = ()
) -> RawDataset:
    """Read the columns that a network was trained on, in their order, and the one to predict.

    Args:
        path: The file; it may have further columns.
        forms: How the cells of each column become numbers.
        target: The column to predict.
        task: Whether that has classes or numbers.
        labels: Its classes. Default: those of the file.

    Raises:
        DataError: A column is missing, or a cell is no value of its column. The message names both.
    """
    cells = read_cells(path)
    if not cells.places:
        raise DataError(f"{path}: expected rows under the names of the columns, got none")
    for name in (*forms, target):
        if name not in cells.names:
            raise DataError(f"{path}: expected a column {name!r}, as in the training, got none")
    rows = torch.tensor(
        [_column(path, cells, name, form) for name, form in forms.items()], dtype=torch.float32
    )
    if task == "classes" and not labels:
        labels = labels_of(_values(cells, target))
    targets = _numbers(path, cells, target) if task == "number" else _classes(path, cells, target, labels)
    return RawDataset(
        stem(path),
        Split(rows.T.contiguous(), targets),
        None,
        tuple(labels),
        "numbers",
        features=tuple(forms),
        target=target,
        task=task,
    )


def _values(cells: Cells, name: str) -> Sequence[Any]:
    return cells.columns[cells.names.index(name)]


def _column(path: Path, cells: Cells, name: str, form: ColumnForm) -> list[float]:
    numbers = []
    for place, cell in zip(cells.places, _values(cells, name), strict=True):
        try:
            number = form.number_of(cell)
        except CellError as error:
            raise DataError(f"{path}: {place}, column {name!r}: {error}") from error
        if abs(number) > MAX_FLOAT32:
            raise DataError(
                f"{path}: {place}, column {name!r}: expected a number within float32, got {in_words(cell)}"
            )
        numbers.append(number)
    return numbers


def _numbers(path: Path, cells: Cells, target: str) -> torch.Tensor:
    numbers = [number_in(cell) for cell in _values(cells, target)]
    for place, cell, number in zip(cells.places, _values(cells, target), numbers, strict=True):
        if number is None or not math.isfinite(number):
            raise DataError(
                f"{path}: {place}, column {target!r}: expected a number to predict, got {in_words(cell)}"
            )
    return torch.tensor(numbers, dtype=torch.float32)


def _classes(path: Path, cells: Cells, target: str, labels: Sequence[str]) -> torch.Tensor:
    index = {label: place for place, label in enumerate(labels)}
    classes = []
    for place, cell in zip(cells.places, _values(cells, target), strict=True):
        name = None if is_blank(cell, "category") else class_of(cell, number_in(cell))
        if name not in index:
            raise DataError(
                f"{path}: {place}, column {target!r}: expected one of the classes of the training, got "
                f"{in_words(cell)}"
            )
        classes.append(index[name])
    return torch.tensor(classes)
