"""Loads the data that rows are taken from: a table, a folder of images, or a data set by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from turnpike.export.errors import SourceError
from turnpike.export.sources.data.features import recorded_features
from turnpike.models.choices import DATASETS
from turnpike.models.data.dataset import Dataset, split_dataset
from turnpike.models.data.embedded import parse_parity_name
from turnpike.models.data.load import load_dataset
from turnpike.models.data.read_table import read_table
from turnpike.models.data.table.cells import is_table, read_cells
from turnpike.models.data.table.options import TableOptions, recorded_options
from turnpike.models.errors import ModelsError
from turnpike.models.training.checkpoint import TrainingRecord
from turnpike.service.artifact.manifest import Feature, Task

# data sets that come with the package and need no download
EMBEDDED_DATASETS = ("digits", "drawn-digits", "names")


def is_dataset_name(name: str) -> bool:
    """Whether there is a data set of this name."""
    try:
        return name in DATASETS or parse_parity_name(name) is not None
    except ModelsError:
        return False


def is_embedded(name: str) -> bool:
    """Whether a data set comes with this package, so that nothing is downloaded."""
    return is_dataset_name(name) and (name in EMBEDDED_DATASETS or name.startswith("parity-"))


def load_data(
    data: str | Path,
    data_dir: Path | None,
    *,
    record: TrainingRecord | None = None,
    labels: Sequence[str] = (),
    features: Sequence[Feature] = (),
    unused: Sequence[str] = (),
    target: str = "",
    task: Task = "classes",
) -> Dataset:
    """A table, a folder of images, or a data set by its name; split as in the training, if there was one."""
    path = Path(data)
    if not path.is_file() and not path.is_dir() and not is_dataset_name(str(data)):
        names = ", ".join(DATASETS)
        raise SourceError(
            f"expected a .csv, .parquet or .npz file, a folder of images or one of {names}, got {str(data)!r}"
        )
    try:
        if record is not None:
            return load_as_in_training(data, data_dir, record)
        if path.is_file():
            _expect_published_words(features, path.name)
            target = target or (_other_column(path, features, unused) if features else "")
            return _load_table(path, features, target, task, labels)
        return load_dataset(str(data), data_dir=data_dir)
    except ModelsError as error:
        raise SourceError(str(error)) from error


def training_data(data: str | Path, data_dir: Path | None, record: TrainingRecord) -> Dataset | None:
    """The data of a training run, split as it was there; None if `data` is other data."""
    try:
        dataset = load_as_in_training(data, data_dir, record)
    except ModelsError:
        return None
    return dataset if dataset.digest == record.data.get("digest") else None


def load_as_in_training(data: str | Path, data_dir: Path | None, record: TrainingRecord) -> Dataset:
    """A data set, split as in a training run; a table is read by the columns that the run recorded.

    Raises:
        ModelsError: The data cannot be read or split.
        SourceError: The record has no columns of a table, or malformed ones.
    """
    path, features = Path(data), recorded_features(record, str(data))
    table = None
    if path.is_file() and is_table(path) and features:
        table = recorded_options(record.data)
        if table.target is None:
            table = replace(table, target=_other_column(path, features))
    return load_dataset(
        str(data),
        table=table,
        data_dir=data_dir,
        test_fraction=record.recipe.get("test_fraction"),
        seed=record.seed,
    )


def _load_table(
    path: Path, features: Sequence[Feature], target: str, task: Task, labels: Sequence[str]
) -> Dataset:
    """The rows of a table: the columns that are recorded, or else all but the last, as numbers."""
    if features:
        forms = {feature.name: feature.form for feature in features}
        raw = read_table(path, TableOptions(target, task, forms=forms, labels=labels))
    else:
        names = read_cells(path).names
        kinds = dict.fromkeys(names[:-1], "number")
        raw = read_table(path, TableOptions(task="classes" if labels else None, kinds=kinds))
    return split_dataset(raw, test_fraction=None, valid_fraction=None, seed=0)


def _other_column(path: Path, features: Sequence[Feature], unused: Sequence[str] = ()) -> str:
    """The only column that the network does not read: the one to predict, if its name was not recorded."""
    names, used = read_cells(path).names, [feature.name for feature in features]
    for name in used:
        if name not in names:
            raise SourceError(f"{path.stem}: expected a column {name!r}, as in the training, got none")
    others = [name for name in names if name not in used and name not in unused]
    if len(others) != 1:
        raise SourceError(
            f"{path.stem}: expected one column besides those of the network, which it predicts and "
            f"whose name it has not recorded, got {', '.join(others) or 'none'}: leave out the others"
        )
    return others[0]


def _expect_published_words(features: Sequence[Feature], where: str) -> None:
    """Raise a SourceError if the words of a category were not published with the network."""
    for feature in features:
        if feature.kind == "category" and not feature.categories:
            raise SourceError(
                f"{where}: the words of column {feature.name!r} are not in the model: give the training run, "
                "or an .npz file in which each word is its number"
            )
