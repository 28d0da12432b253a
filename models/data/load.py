"""Loads a data set by its name, or a user's own data by its path."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from turnpike.common.similar_names import similar_name
from turnpike.models.choices import DATASETS
from turnpike.models.data.cifar import find_cifar_files, read_cifar
from turnpike.models.data.dataset import Dataset, RawDataset, joined, split_dataset
from turnpike.models.data.download import DownloadProgress
from turnpike.models.data.embedded import (
    parse_parity_name,
    read_digits,
    read_drawn_digits,
    read_names,
    read_parity,
)
from turnpike.models.data.features import expect_feature_names, read_feature_names
from turnpike.models.data.image_folder import read_image_folder
from turnpike.models.data.mnist import IDX_DATASETS, find_idx_files, read_mnist
from turnpike.models.data.npz import read_npz
from turnpike.models.data.read_table import read_table
from turnpike.models.data.table.cells import is_table
from turnpike.models.data.table.options import TableOptions
from turnpike.models.errors import ConfigError, DataError

# handwritten digits, with digits drawn by mouse among the training rows
DRAWN_DIGITS = "drawn-digits"
EXPECTED = f"one of {', '.join(DATASETS)}, a .csv, .parquet or .npz file, or a folder of images"


def load_dataset(
    source: str,
    *,
    table: TableOptions | None = None,
    features: Path | None = None,
    data_dir: Path | None = None,
    test_fraction: float | None = None,
    valid_fraction: float | None = None,
    seed: int = 0,
    progress: DownloadProgress | None = None,
) -> Dataset:
    """Read a data set and split it into training, validation and test rows.

    Args:
        source: A name from `models.choices.DATASETS`, or the path of a table, an .npz file or a folder of
            images.
        table: For a table, what is decided about its columns.
        features: File with the names of the columns of an .npz file, one per line.
        data_dir: Folder with the files of a public data set; then nothing is downloaded.
        test_fraction: None keeps the official test rows; a number splits all rows at random with this
            share of test rows.
        valid_fraction: Share of the training rows to hold out for validation; None for a twelfth. Of a table,
            None is 200 rows, at most a fifth and at least a twelfth.
        seed: Decides the random splits.
        progress: Called during downloads.
    """
    if valid_fraction is not None:
        _expect_fraction("valid_fraction", valid_fraction)
    if test_fraction is not None:
        _expect_fraction("test_fraction", test_fraction)
    expect_exists(source)
    path = Path(source)
    if table is not None and (option := table.first_option()) and not (path.is_file() and is_table(path)):
        raise ConfigError(
            f"{option}: is about a column of a .csv, .tsv or .parquet file, and the data is {source}"
        )
    if features is not None and not (path.is_file() and path.suffix == ".npz"):
        raise ConfigError(f"--features: names the columns of an .npz file, and the data is {source}")
    bits = parse_parity_name(source)
    if bits is not None:
        if test_fraction is not None:
            raise ConfigError(
                f"test_fraction: {source} generates its own test rows; expected none, got {test_fraction!r}"
            )
        return read_parity(bits)
    if source in ("cifar10", *IDX_DATASETS) and data_dir is not None and not data_dir.exists():
        raise DataError(f"{data_dir}: expected a folder with the files of {source}, there is none")
    try:
        raw = _read(source, table, data_dir, progress)
        if features is not None:
            raw = _with_features(raw, features)
    except OSError as error:
        raise DataError(f"{source}: cannot be read ({error})") from error
    dataset = split_dataset(raw, test_fraction=test_fraction, valid_fraction=valid_fraction, seed=seed)
    return _with_drawings(dataset) if source == DRAWN_DIGITS else dataset


def _with_drawings(dataset: Dataset) -> Dataset:
    """Add drawings to the training rows; validation and test rows are all from people's handwriting."""
    drawn = read_drawn_digits()
    train = joined(dataset.train, drawn)
    return replace(dataset, train=train)


def _read(
    source: str, table: TableOptions | None, data_dir: Path | None, progress: DownloadProgress | None
) -> RawDataset:
    if source in ("digits", DRAWN_DIGITS):
        return replace(read_digits(), name=source)
    if source == "names":
        return read_names()
    if source == "cifar10":
        return read_cifar(data_dir, progress)
    if source in IDX_DATASETS:
        return read_mnist(source, data_dir, progress)
    path = Path(source)
    if source and path.is_dir():
        _expect_image_folder(path)
        return read_image_folder(path)
    if path.is_file():
        return read_table(path, table) if is_table(path) else read_npz(path)
    raise DataError(f"data: expected {EXPECTED}, got {source!r}")


def expect_exists(source: str) -> None:
    """Raise a DataError, with what was probably meant, unless this is a data set or a path that exists."""
    path = Path(source)
    is_known = source in DATASETS or parse_parity_name(source) is not None
    if is_known or (source and os.path.lexists(path)):
        return
    is_name = path.name == source
    similar = similar_name(path.name, [*(DATASETS if is_name else ()), *_names_in(path.parent)])
    if similar is None:
        raise DataError(f"data: {source!r} does not exist; expected {EXPECTED}")
    meant = similar if is_name else str(path.with_name(similar))
    known = f" Expected {EXPECTED}" if is_name and not path.suffix else ""
    raise DataError(f"data: {source!r} does not exist; did you mean {meant!r}?{known}")


def _names_in(folder: Path) -> list[str]:
    """The files and folders of a folder, those of tables and arrays first; none if it cannot be read."""
    try:
        found = sorted(folder.iterdir(), key=lambda path: (path.suffix == "", path.name))
    except OSError:
        return []
    return [path.name for path in found]


def _with_features(raw: RawDataset, file: Path) -> RawDataset:
    """The rows with names for their columns."""
    shape = tuple(raw.rows.x.shape[1:])
    if len(shape) != 1:
        raise DataError(f"--features: expected rows of one axis, the columns, and {raw.name} has {shape}")
    names = read_feature_names(file)
    expect_feature_names(names, shape[0])
    return replace(raw, features=names)


def _expect_image_folder(folder: Path) -> None:
    """Raise a DataError with the right command if the folder has the files of a public data set."""
    for name in (*IDX_DATASETS, "cifar10"):
        try:
            find_idx_files(folder, name) if name in IDX_DATASETS else find_cifar_files(folder)
        except DataError:
            continue
        raise DataError(
            f"{folder}: expected a sub-folder of images per class, found the files of {name}: "
            f"read them with --data {name} --data-dir {folder}"
        )


def _expect_fraction(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ConfigError(f"{name}: expected a number between 0 and 1, got {value!r}")
