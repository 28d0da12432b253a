"""Reading a user's arrays from .npz files."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from turnpike.models.data.npz import read_npz
from turnpike.models.errors import DataError

X = np.arange(12, dtype=np.float64).reshape(4, 3)
Y = np.array([0, 1, 1, 0])


def saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "mine.npz"
    np.savez(path, **arrays)
    return path


def test_rows_and_classes_are_read(tmp_path: Path) -> None:
    """x and y are enough: float64 becomes float32, and the classes' numbers become their labels."""
    source = read_npz(saved(tmp_path, x=X, y=Y))
    assert source.name == "mine"
    assert source.rows.x.dtype == torch.float32
    assert source.rows.x.tolist() == X.tolist()
    assert source.rows.y.dtype == torch.int64
    assert source.rows.y.tolist() == [0, 1, 1, 0]
    assert source.labels == ("0", "1")
    assert source.kind == "numbers"
    assert source.test is None


@pytest.mark.parametrize(
    ("dtype", "read_as"),
    [
        ("bool", torch.uint8),
        ("uint8", torch.uint8),
        ("int8", torch.int64),
        (">i4", torch.int64),
        ("uint64", torch.int64),
        ("float16", torch.float32),
        (">f8", torch.float32),
    ],
)
def test_each_dtype_is_converted(tmp_path: Path, dtype: str, read_as: torch.dtype) -> None:
    """Bytes stay bytes, other integers become int64, other numbers float32, in any byte order."""
    x = (X % 2).astype(dtype)
    source = read_npz(saved(tmp_path, x=np.asfortranarray(x), y=Y))
    assert source.rows.x.dtype == read_as
    assert source.rows.x.tolist() == (X % 2).tolist()


@pytest.mark.parametrize(
    ("y", "labels", "ids", "named"),
    [
        ([7, -1, 7, 3], None, [2, 0, 2, 1], ("-1", "3", "7")),
        ([True, False, False, True], None, [1, 0, 0, 1], ("0", "1")),
        (["dog", "cat", "cat", "dog"], None, [1, 0, 0, 1], ("cat", "dog")),
        ([b"dog", b"cat", b"cat", b"dog"], None, [1, 0, 0, 1], ("cat", "dog")),
        (["dog", "cat", "cat", "dog"], ["dog", "cat", "bat"], [0, 1, 1, 0], ("dog", "cat", "bat")),
        ([0, 2, 2, 0], ["dog", "cat", "bat"], [0, 2, 2, 0], ("dog", "cat", "bat")),
    ],
)
def test_classes_are_numbered(
    tmp_path: Path, y: list[Any], labels: list[str] | None, ids: list[int], named: tuple[str, ...]
) -> None:
    """In the order of `labels` if there are any, otherwise in the order of the sorted distinct values."""
    arrays = {"x": X, "y": np.array(y)} | ({} if labels is None else {"labels": np.array(labels)})
    source = read_npz(saved(tmp_path, **arrays))
    assert source.rows.y.tolist() == ids
    assert source.labels == named


def test_official_test_rows_are_read(tmp_path: Path) -> None:
    """x_test and y_test become the test rows; the classes are those of y and y_test together."""
    source = read_npz(saved(tmp_path, x=X, y=Y, x_test=X[:2] + 1, y_test=np.array([5, 0])))
    assert source.test is not None
    assert source.test.x.tolist() == (X[:2] + 1).tolist()
    assert source.labels == ("0", "1", "5")
    assert source.test.y.tolist() == [2, 0]


def test_rows_of_three_axes_are_images(tmp_path: Path) -> None:
    """A row (channels, height, width) is an image."""
    source = read_npz(saved(tmp_path, x=np.zeros((4, 1, 5, 6), np.uint8), y=Y))
    assert source.kind == "image"
    assert source.rows.x.shape == (4, 1, 5, 6)


NAN = X.copy()
NAN[2, 1] = np.nan
HUGE = X.copy()
HUGE[3, 0] = 1e300

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no y": ({"x": X}, "expected arrays x and y, and optionally x_test with y_test, and labels, got x"),
    "no arrays": ({}, "got none"),
    "unknown array": ({"x": X, "y": Y, "z": Y}, "got x, y, z"),
    "x_test alone": ({"x": X, "y": Y, "x_test": X}, "got x, y, x_test"),
    "lengths": ({"x": X, "y": Y[:3]}, "y: expected 4 classes, one per row, got 3"),
    "test lengths": ({"x": X, "y": Y, "x_test": X, "y_test": Y[:3]}, "y_test: expected 4 classes"),
    "nan": ({"x": NAN, "y": Y}, "x: expected finite numbers within float32, row 2 has others"),
    "too large": ({"x": HUGE, "y": Y}, "x: expected finite numbers within float32, row 3 has others"),
    "large integer": ({"x": np.full((4, 1), 2**63, np.uint64), "y": Y}, "fit int64, got 9223372036854775808"),
    "one axis": ({"x": X[:, 0], "y": Y}, "x: expected shape (rows, *shape of a row), got (4,)"),
    "no rows": ({"x": X[:0], "y": Y[:0]}, "y: expected one class per row, got shape (0,)"),
    "empty rows": ({"x": X[:, :0], "y": Y}, "x: expected shape (rows, *shape of a row), got (4, 0)"),
    "text": ({"x": X.astype(str), "y": Y}, "x: expected numbers, got <U"),
    "complex": ({"x": X * 1j, "y": Y}, "x: expected numbers, got complex128"),
    "float classes": ({"x": X, "y": Y / 2}, "y: expected integers or strings, got float64"),
    "one-hot classes": (
        {"x": X, "y": np.eye(4, 2, dtype=int)},
        "y: expected one class per row, got shape (4, 2)",
    ),
    "one class": ({"x": X, "y": Y * 0}, "expected 2 classes or more, got 1"),
    "bad bytes": ({"x": X, "y": np.array([b"\xff"] * 4)}, "y: expected strings in UTF-8"),
    "class out of range": (
        {"x": X, "y": Y + 1, "labels": np.array(["a", "b"])},
        "y: expected one of 2 classes, 0 to 1, got 2 in row 1",
    ),
    "negative class": (
        {"x": X, "y": -Y, "labels": np.array(["a", "b"])},
        "y: expected one of 2 classes, 0 to 1, got -1 in row 1",
    ),
    "unnamed class": (
        {"x": X, "y": np.array(["a", "b", "c", "a"]), "labels": np.array(["a", "b"])},
        "y: expected one of 2 classes, a to b, got c in row 2",
    ),
    "name twice": (
        {"x": X, "y": Y, "labels": np.array(["a", "a"])},
        "labels: expected distinct names, got a, a",
    ),
    "number for a name": (
        {"x": X, "y": Y, "labels": np.array([3, 4])},
        "labels: expected strings, got int64",
    ),
    "labels in a square": (
        {"x": X, "y": Y, "labels": np.array([["a"], ["b"]])},
        "labels: expected one name per class, got shape (2, 1)",
    ),
    "classes of two kinds": (
        {"x": X, "y": Y, "x_test": X, "y_test": Y.astype(str)},
        "y_test: expected classes as in y, got <U21 for int64",
    ),
    "other shape": (
        {"x": X, "y": Y, "x_test": X[:, :2], "y_test": Y},
        "x_test: expected rows of float32 (3,) as in x, got rows of float32 (2,)",
    ),
    "other dtype": (
        {"x": X, "y": Y, "x_test": X.astype(np.uint8), "y_test": Y},
        "x_test: expected rows of float32 (3,) as in x, got rows of uint8 (3,)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_invalid_arrays_are_reported(tmp_path: Path, case: str) -> None:
    """Every problem of the arrays gives a one-line error with the file's name."""
    arrays, message = WRONG[case]
    path = saved(tmp_path, **arrays)
    with pytest.raises(DataError) as caught:
        read_npz(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


class Touch:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    """An array of Python objects is refused, and none of its code runs."""
    objects = np.empty(4, dtype=object)
    objects[:] = [Touch(tmp_path / "ran")] * 4
    path = saved(tmp_path, x=X, y=objects)
    with pytest.raises(DataError, match=r"expected arrays of numbers or strings, cannot read them .*pickle"):
        read_npz(path)
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_no_zip_is_reported(tmp_path: Path) -> None:
    """A pickle, an .npy file and an empty file are not .npz files."""
    npy = io.BytesIO()
    np.save(npy, X)
    path = tmp_path / "mine.npz"
    for content in (pickle.dumps([1, 2]), npy.getvalue(), b""):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"mine\.npz: expected an \.npz file"):
            read_npz(path)


def test_damaged_members_are_reported(tmp_path: Path) -> None:
    """A cut file, flipped bytes, a wrong header and a member that is not an array give an error."""
    whole = saved(tmp_path, x=X, y=Y).read_bytes()
    place = whole.index(X.tobytes())
    flipped = whole[:place] + b"\xff" + whole[place + 1 :]
    header = whole.replace(b"(4, 3), ", b"(4, 9), ")
    path = tmp_path / "damaged.npz"
    for content in (flipped, header):
        path.write_bytes(content)
        with pytest.raises(DataError, match="cannot read them"):
            read_npz(path)
    path.write_bytes(whole[:-30])
    with pytest.raises(DataError, match=r"expected an \.npz file"):
        read_npz(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", b"text")
        archive.writestr("y", b"text")
    with pytest.raises(DataError, match="expected arrays x and y"):
        read_npz(path)


def test_strings_of_impossible_characters_are_refused(tmp_path: Path) -> None:
    """NumPy reads them from a damaged file, and fails when they are used."""
    names = np.array([0x7F9253, 0x61, 0x62, 0x61], np.uint32).view("<U1")
    with pytest.raises(DataError, match="y: expected strings in UTF-8, got other bytes"):
        read_npz(saved(tmp_path, x=X, y=names))
