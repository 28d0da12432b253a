"""Loads a data set by its name, or a user's own data by its path."""

from __future__ import annotations

from pathlib import Path

from models.data.cifar import find_cifar_files, read_cifar
from models.data.dataset import Dataset, RawDataset, split_dataset
from models.data.download import DownloadProgress
from models.data.embedded import parse_parity_name, read_digits, read_names, read_parity
from models.data.image_folder import read_image_folder
from models.data.mnist import IDX_DATASETS, find_idx_files, read_mnist
from models.data.npz import read_npz
from models.errors import ConfigError, DataError


def known_datasets() -> tuple[str, ...]:
    """Names of the data sets: those that need no download first; parity-K stands for any K."""
    return ("digits", "names", "parity-K", *IDX_DATASETS, "cifar10")


def load_dataset(
    source: str,
    *,
    data_dir: Path | None = None,
    test_fraction: float | None = None,
    valid_fraction: float = 1 / 12,
    seed: int = 0,
    progress: DownloadProgress | None = None,
) -> Dataset:
    """Read a data set and split it into training, validation and test rows.

    Args:
        source: A name from `known_datasets`, or the path of an .npz file or a folder of images.
        data_dir: Folder with the files of a public data set; then nothing is downloaded.
        test_fraction: None keeps the official test rows; a number splits all rows at random with this
            share of test rows.
        valid_fraction: Share of the training rows to hold out for validation.
        seed: Decides the random splits.
        progress: Called during downloads.
    """
    _expect_fraction("valid_fraction", valid_fraction)
    if test_fraction is not None:
        _expect_fraction("test_fraction", test_fraction)
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
        raw = _read(source, data_dir, progress)
    except OSError as error:
        raise DataError(f"{source}: cannot be read ({error})") from error
    return split_dataset(raw, test_fraction=test_fraction, valid_fraction=valid_fraction, seed=seed)


def _read(source: str, data_dir: Path | None, progress: DownloadProgress | None) -> RawDataset:
    if source == "digits":
        return read_digits()
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
        return read_npz(path)
    names = ", ".join(known_datasets())
    raise DataError(f"data: expected one of {names}, an .npz file or a folder of images, got {source!r}")


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
