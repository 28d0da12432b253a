"""Reads the rows to measure gates on: an .npz file, a table, a folder of images, or a data set by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from turnpike.export.errors import SourceError
from turnpike.export.input_spec import InputSpec
from turnpike.export.network import Rows
from turnpike.export.sources.data.datasets import load_data, training_data
from turnpike.export.sources.data.npz_file import npz_rows
from turnpike.export.sources.data.row_arrays import MAX_ROWS_USED, build_rows, shorten
from turnpike.models.data.dataset import Dataset, joined
from turnpike.models.data.table.cells import is_table
from turnpike.models.training.checkpoint import TrainingRecord
from turnpike.service.artifact.manifest import Feature, Task

# rows to choose units on, and rows to judge the choice on: a point of accuracy is a hundred rows or more
MAX_CALIBRATION_ROWS, MAX_TEST_ROWS = 30_000, 10_000


@dataclass(frozen=True)
class SplitRows:
    """Rows to choose by and other rows to judge by.

    Attributes:
        calibration: The rows to choose by.
        test: The rows to judge by.
        labels: The names of the classes, if the data has them.
        dataset: The data set that the rows are from; None for an .npz file.
    """

    calibration: Rows
    test: Rows
    labels: tuple[str, ...]
    dataset: Dataset | None = None


def read_rows(
    data: str | Path,
    inputs: tuple[InputSpec, ...],
    labels: Sequence[str] = (),
    data_dir: Path | None = None,
    record: TrainingRecord | None = None,
    *,
    features: Sequence[Feature] = (),
    unused: Sequence[str] = (),
    target: str = "",
    task: Task = "classes",
    with_texts: bool = False,
) -> tuple[Rows, tuple[str, ...]]:
    """Rows for the inputs, with their classes, and the names of the classes if the data has them.

    At most MAX_ROWS_USED rows are returned, always the same ones.

    Args:
        data: An .npz file; or a .csv or .parquet file, a folder of images or the name of a data set, whose
            test rows are taken.
        inputs: The inputs of the network.
        labels: The labels of the network, if known; classes may be given as labels.
        data_dir: Folder of the data sets.
        record: Of the training run, if the network is from one. Its rows are split as they were there.
        features: The columns of the network, if its rows are those of a table: see `read_split_rows`.
        unused: Columns of a table that are neither read nor predicted.
        target: The column of a table to predict.
        task: Whether that has classes or numbers.
        with_texts: Whether to read the texts of an .npz file.
    """
    path = Path(data)
    if path.is_file() and not is_table(path):
        return npz_rows(path, inputs, labels, features=features, with_texts=with_texts)
    dataset = load_data(
        data,
        data_dir,
        record=record,
        labels=labels,
        features=features,
        unused=unused,
        target=target,
        task=task,
    )
    rows, names = dataset_rows(dataset, inputs, labels, features)
    if record is None and path.is_file():
        rows = replace(rows, table=joined(dataset.train, dataset.valid, dataset.test).x.numpy())
    return rows, names


def read_split_rows(
    data: str | Path,
    inputs: tuple[InputSpec, ...],
    labels: Sequence[str] = (),
    features: Sequence[Feature] = (),
    data_dir: Path | None = None,
    record: TrainingRecord | None = None,
    target: str = "",
    task: Task = "classes",
) -> SplitRows:
    """Training and test rows of a data set, or every other row of an .npz file.

    At most MAX_CALIBRATION_ROWS and MAX_TEST_ROWS rows are returned, always the same ones.

    Args:
        data: As for `read_rows`.
        inputs: The inputs of the network.
        labels: The labels of the network, if known.
        features: The columns of the network, if its rows are those of a table. They may be in another order
            there.
        data_dir: Folder of the data sets.
        record: Of the training run, if the network is from one. Its data is split as it was there.
        target: The column of a table to predict. Default: the only column that `features` do not have.
        task: Whether that has classes or numbers.
    """
    path = Path(data)
    dataset = None if record is None else training_data(data, data_dir, record)
    if dataset is None and path.is_file() and not is_table(path):
        rows, names = npz_rows(path, inputs, labels, max_rows=2 * MAX_TEST_ROWS, features=features)
        if len(rows) < 2:
            raise SourceError(f"{data}: expected 2 rows or more, one to choose by and one to judge by, got 1")
        return SplitRows(_every_other(rows, 0), _every_other(rows, 1), names)
    if dataset is None:
        dataset = load_data(data, data_dir, labels=labels, features=features, target=target, task=task)
    training, names = dataset_rows(
        replace(dataset, test=dataset.train), inputs, labels, features, max_rows=MAX_CALIBRATION_ROWS
    )
    test, _ = dataset_rows(dataset, inputs, labels, features, max_rows=MAX_TEST_ROWS)
    return SplitRows(training, test, names, dataset)


def dataset_rows(
    data: Dataset,
    inputs: tuple[InputSpec, ...],
    labels: Sequence[str] = (),
    features: Sequence[Feature] = (),
    max_rows: int = MAX_ROWS_USED,
) -> tuple[Rows, tuple[str, ...]]:
    """The test rows of a data set; `features` say which cells may be blank."""
    if len(inputs) != 1:
        raise SourceError(f"{data.name} has rows for one input, and the network has {len(inputs)}")
    if labels and tuple(labels) != data.labels:
        raise SourceError(
            f"expected the classes {shorten(labels)}, got those of {data.name}: {shorten(data.labels)}"
        )
    arrays, true = {inputs[0].name: data.test.x.numpy()}, data.test.y.numpy()
    rows = build_rows(arrays, true, inputs, data.name, max_rows, data.test.texts, features)
    return replace(rows, white=data.white), data.labels


def _every_other(rows: Rows, first: int) -> Rows:
    return rows.take(slice(first, None, 2))
