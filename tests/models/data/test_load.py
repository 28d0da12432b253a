"""Loading a data set by name or by path."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from turnpike.models.choices import DATASETS
from turnpike.models.cli.columns import show_table
from turnpike.models.data.dataset import Dataset, Split
from turnpike.models.data.embedded import encode_texts
from turnpike.models.data.load import load_dataset
from turnpike.models.data.mnist import IDX_DATASETS, TEST, TRAIN
from turnpike.models.data.table.options import TableOptions
from turnpike.models.errors import ConfigError, DataError


def same_rows(one: Split, other: Split) -> bool:
    return torch.equal(one.x, other.x) and torch.equal(one.y, other.y)


def mnist_files(folder: Path, rows: int = 20) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for images, classes in (TRAIN, TEST):
        (folder / images).write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, rows, 2, 2) + bytes(rows * 4))
        (folder / classes).write_bytes(struct.pack(">4BI", 0, 0, 8, 1, rows) + bytes(rows))


def test_digits_are_embedded() -> None:
    """Digits need no file: 1,797 images of bytes from 0 to 16, in three splits."""
    data = load_dataset("digits")
    assert (len(data.train), len(data.valid), len(data.test)) == (1318, 120, 359)
    assert data.inputs == (1, 8, 8)
    assert data.classes == 10
    assert data.kind == "image"
    assert data.train.x.dtype == torch.uint8
    assert int(data.train.x.max()) == 16
    assert data.train.y.dtype == torch.int64
    # every class is in every part
    assert all(set(part.y.tolist()) == set(range(10)) for part in (data.train, data.valid, data.test))


def test_drawings_are_added_to_the_training_rows_only() -> None:
    digits, drawn = load_dataset("digits"), load_dataset("drawn-digits")
    assert drawn.name == "drawn-digits"
    assert same_rows(drawn.valid, digits.valid)
    assert same_rows(drawn.test, digits.test)
    rows = len(digits.train)
    assert same_rows(drawn.train.take(torch.arange(rows)), digits.train)
    assert len(drawn.train) == rows + 1200


def test_loading_again_gives_the_same_rows() -> None:
    """Equal arguments give equal splits; another seed gives other training rows."""
    one, again, other = load_dataset("digits"), load_dataset("digits"), load_dataset("digits", seed=1)
    for part in ("train", "valid", "test"):
        assert same_rows(getattr(one, part), getattr(again, part))
    assert not same_rows(one.valid, other.valid)
    assert same_rows(one.test, other.test)


def test_fractions_set_the_sizes_of_splits() -> None:
    """A quarter of the rows for testing, and a fifth of the rest for validation."""
    data = load_dataset("digits", test_fraction=0.25, valid_fraction=0.2)
    assert (len(data.test), len(data.valid)) == (449, 270)


def test_names_are_text() -> None:
    """Names come with the alphabet of their ids."""
    data = load_dataset("names")
    assert data.kind == "text"
    assert data.inputs == (8, 12)
    assert int(data.train.x.max()) < len(data.alphabet)
    assert data.train.x.dtype == torch.int64


def test_texts_stay_with_their_rows() -> None:
    """In every split, also if all rows are split at random."""
    for fraction in (None, 0.25):
        data = load_dataset("names", test_fraction=fraction, seed=1)
        for split in (data.train, data.valid, data.test):
            assert len(split.texts) == len(split)
            assert torch.equal(encode_texts(split.texts[:50], data.alphabet), split.x[:50])
    assert load_dataset("digits").train.texts == ()


def test_parity_generates_rows_for_each_epoch() -> None:
    """Epochs of parity differ, and a test fraction is refused."""
    data = load_dataset("parity-6")
    assert isinstance(data, Dataset)
    assert not same_rows(data.training_rows(0, 0), data.training_rows(0, 1))
    with pytest.raises(ConfigError, match="test_fraction: parity-6 generates its own test rows"):
        load_dataset("parity-6", test_fraction=0.2)


def test_files_are_read_from_data_dir(tmp_path: Path) -> None:
    """MNIST is read from data_dir; its official test rows are kept, or pooled if there is a fraction."""
    mnist_files(tmp_path)
    data = load_dataset("mnist", data_dir=tmp_path, valid_fraction=0.1)
    assert (len(data.train), len(data.valid), len(data.test)) == (18, 2, 20)
    pooled = load_dataset("mnist", data_dir=tmp_path, valid_fraction=0.1, test_fraction=0.25)
    assert (len(pooled.train), len(pooled.valid), len(pooled.test)) == (27, 3, 10)


def test_a_path_to_arrays_is_read(tmp_path: Path) -> None:
    """An .npz file is a data set with the name of the file."""
    np.savez(tmp_path / "mine.npz", x=np.zeros((10, 3)), y=np.arange(10) % 2)
    data = load_dataset(str(tmp_path / "mine.npz"))
    assert data.name == "mine"
    assert (len(data.train), len(data.valid), len(data.test)) == (6, 2, 2)


def test_a_path_to_a_folder_is_read(tmp_path: Path) -> None:
    """A folder of images is a data set with the name of the folder."""
    for label in ("cat", "dog"):
        (tmp_path / "mine" / label).mkdir(parents=True)
        for number in range(5):
            Image.new("L", (4, 4), number).save(tmp_path / "mine" / label / f"{number}.png")
    data = load_dataset(str(tmp_path / "mine"))
    assert data.name == "mine"
    assert data.labels == ("cat", "dog")
    assert len(data.train) + len(data.valid) + len(data.test) == 10


@pytest.mark.parametrize("source", ["", "mnits", "nowhere/mine.npz", "a\nb", "x" * 5000, "parity-x"])
def test_an_unknown_source_lists_the_known_ones(source: str) -> None:
    """A source that is neither a name nor a path gives a one-line error that lists the known names."""
    with pytest.raises(DataError) as caught:
        load_dataset(source)
    assert "\n" not in str(caught.value)
    if len(source) < 100:
        assert all(name in str(caught.value) for name in DATASETS)
        assert repr(source) in str(caught.value)


def test_a_mistyped_file_is_not_mistaken_for_other_data(tmp_path: Path) -> None:
    """Options of a table say that there is no such file, and which one beside it was probably meant."""
    (tmp_path / "patients.csv").write_text("a,b\n1,2\n")
    said = f"data: '{tmp_path / 'patient.csv'}' does not exist; did you mean '{tmp_path / 'patients.csv'}'?"
    for table in (None, TableOptions(target="b")):
        with pytest.raises(DataError) as caught:
            load_dataset(str(tmp_path / "patient.csv"), table=table)
        assert str(caught.value) == said
    with pytest.raises(DataError) as caught:
        show_table(str(tmp_path / "patient.csv"), TableOptions())
    assert str(caught.value) == said
    with pytest.raises(
        DataError, match="'mnits' does not exist; did you mean 'mnist'[?] Expected one of digits"
    ):
        load_dataset("mnits", table=TableOptions(target="b"))
    with pytest.raises(ConfigError, match="--target: is about a column of a .csv"):
        load_dataset("digits", table=TableOptions(target="b"))


@pytest.mark.parametrize("subfolder", ["", "mnist", "fashion-mnist"])
def test_a_folder_of_idx_files_suggests_data_dir(tmp_path: Path, subfolder: str) -> None:
    """IDX files in a user's folder are not taken for images; the error shows the right options."""
    mnist_files(tmp_path / subfolder)
    with pytest.raises(DataError, match=r"found the files of (fashion-)?mnist.*--data-dir"):
        load_dataset(str(tmp_path))


def test_a_folder_of_cifar_suggests_data_dir(tmp_path: Path) -> None:
    """CIFAR-10's archive in a user's folder is not taken for images either."""
    (tmp_path / "cifar-10-binary.tar.gz").touch()
    with pytest.raises(DataError, match=r"found the files of cifar10.*--data-dir"):
        load_dataset(str(tmp_path))


def test_a_missing_data_dir_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: expected a folder with the files of mnist, there is none"):
        load_dataset("mnist", data_dir=tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["test_fraction", "valid_fraction"])
@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, float("nan")])
def test_an_invalid_fraction_is_refused(name: str, value: float) -> None:
    """A fraction must be between 0 and 1."""
    with pytest.raises(
        ConfigError, match=re.escape(f"{name}: expected a number between 0 and 1, got {value}")
    ):
        load_dataset("digits", **{name: value})  # type: ignore[arg-type]


def test_data_sets_in_the_format_of_mnist_are_listed() -> None:
    assert set(IDX_DATASETS) <= set(DATASETS)
