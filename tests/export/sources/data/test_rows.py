"""Rows from an .npz file or a data set, in the form that the network expects."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from turnpike.export.errors import SourceError
from turnpike.export.input_spec import parse_inputs
from turnpike.export.sources.data.datasets import is_dataset_name, is_embedded
from turnpike.export.sources.data.npz_file import class_numbers, npz_rows
from turnpike.export.sources.data.row_arrays import MAX_ROWS_USED
from turnpike.export.sources.data.rows import read_rows, read_split_rows
from turnpike.models.data.dataset import Split
from turnpike.models.data.load import load_dataset
from turnpike.service.artifact.manifest import Feature

ONE = parse_inputs(["x:float32[batch,4]"])
TWO = parse_inputs(["ids:int64[batch,time]", "mask:bool[batch,time]"])
X = np.arange(12, dtype=np.float32).reshape(3, 4)
Y = np.array([0, 2, 1])


def save_npz(folder: Path, **arrays: Any) -> Path:
    np.savez(folder / "rows.npz", **arrays)
    return folder / "rows.npz"


def test_rows_and_classes_are_read(tmp_path: Path) -> None:
    """The file has one array under the name of the input, and the classes."""
    for key in ("y", "classes"):
        rows, labels = read_rows(save_npz(tmp_path, x=X, **{key: Y}), ONE)
        assert np.array_equal(rows.inputs["x"], X)
        assert rows.classes is not None
        assert rows.classes.tolist() == [0, 2, 1]
        assert (len(rows), labels) == (3, ())
    assert read_rows(save_npz(tmp_path, x=X), ONE)[0].classes is None


def test_the_array_of_a_single_input_may_be_called_x(tmp_path: Path) -> None:
    """The name of the input comes first; `turnpike train` writes x."""
    inputs = parse_inputs(["pixels:float32[batch,4]"])
    assert np.array_equal(read_rows(save_npz(tmp_path, x=X), inputs)[0].inputs["pixels"], X)
    assert np.array_equal(read_rows(save_npz(tmp_path, x=X, pixels=X + 1), inputs)[0].inputs["pixels"], X + 1)


def test_test_rows_are_preferred(tmp_path: Path) -> None:
    """In a file as turnpike train reads it, with the names of the classes."""
    path = save_npz(tmp_path, x=X, y=Y, x_test=X[:2] + 1, y_test=[1, 2], labels=["a", "b", "c"])
    rows, labels = read_rows(path, ONE)
    assert np.array_equal(rows.inputs["x"], X[:2] + 1)
    assert rows.classes is not None
    assert (rows.classes.tolist(), labels) == ([1, 2], ("a", "b", "c"))


def test_several_inputs_are_several_arrays(tmp_path: Path) -> None:
    """Dimensions with the same name have the same size."""
    ids = np.arange(6, dtype=np.int32).reshape(2, 3)
    rows, _ = read_rows(save_npz(tmp_path, ids=ids, mask=ids > 2), TWO)
    assert rows.inputs["ids"].dtype == np.int64
    assert rows.inputs["mask"].dtype == np.bool_
    with pytest.raises(SourceError, match=r"rows.npz: mask: expected shape \(rows, 3\), got \(2, 2\)"):
        read_rows(save_npz(tmp_path, ids=ids, mask=ids[:, :2] > 2), TWO)
    with pytest.raises(SourceError, match="rows.npz: mask: expected 2 rows as in ids, got 1"):
        read_rows(save_npz(tmp_path, ids=ids, mask=ids[:1] > 2), TWO)
    with pytest.raises(SourceError, match="expected an array 'mask', got ids, x"):
        read_rows(save_npz(tmp_path, ids=ids, x=ids), TWO)
    with pytest.raises(SourceError, match="expected a _test array for every input or for none"):
        read_rows(save_npz(tmp_path, ids=ids, mask=ids > 2, mask_test=ids > 2), TWO)


def test_bytes_become_floats_and_are_not_scaled(tmp_path: Path) -> None:
    """The network scales its pixels itself."""
    rows, _ = read_rows(save_npz(tmp_path, x=np.full((2, 4), 255, np.uint8)), ONE)
    assert rows.inputs["x"].dtype == np.float32
    assert rows.inputs["x"].max() == 255


def test_a_limited_choice_of_rows_is_reproducible(tmp_path: Path) -> None:
    """Each row keeps its class."""
    x = np.arange(MAX_ROWS_USED * 3, dtype=np.float32).reshape(-1, 1)
    inputs = parse_inputs(["x:float32[batch,1]"])
    rows, _ = read_rows(save_npz(tmp_path, x=x, y=x[:, 0].astype(int)), inputs)
    assert len(rows) == MAX_ROWS_USED
    assert rows.classes is not None
    assert np.array_equal(rows.inputs["x"][:, 0], rows.classes)
    assert np.all(np.diff(rows.classes) > 0)
    assert np.array_equal(read_rows(tmp_path / "rows.npz", inputs)[0].inputs["x"], rows.inputs["x"])


def test_an_error_names_the_row_of_the_file(tmp_path: Path) -> None:
    """Only some rows are used."""
    x = np.zeros((MAX_ROWS_USED * 3, 1), np.float32)
    x[-MAX_ROWS_USED:] = np.nan
    with pytest.raises(SourceError, match="row [0-9]+ has others") as caught:
        read_rows(save_npz(tmp_path, x=x), parse_inputs(["x:float32[batch,1]"]))
    row = int(str(caught.value).split("row ")[1].split()[0])
    assert np.isnan(x[row])


def test_labels_may_be_bytes(tmp_path: Path) -> None:
    path = save_npz(tmp_path, x=X, y=["b", "a", "é"], labels=np.char.encode(["a", "b", "é"]))
    rows, labels = read_rows(path, ONE)
    assert labels == ("a", "b", "é")
    assert rows.classes is not None
    assert rows.classes.tolist() == [1, 0, 2]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": X}, "expected an array 'x', got none"),
        ({"x": X[:, :3]}, r"x: expected shape \(rows, 4\), got \(3, 3\)"),
        ({"x": X[0]}, r"x: expected shape \(rows, 4\), got \(4,\)"),
        ({"x": X[:0]}, r"x: expected shape \(rows, 4\), got \(0, 4\)"),
        ({"x": np.float32(1)}, "x: expected an array of rows"),
        ({"x": X.astype(str)}, "x: expected float32, got <U"),
        ({"x": X.astype(complex)}, "x: expected float32, got complex128"),
        (
            {"x": X + np.array([[0], [np.nan], [0]])},
            "x: expected finite numbers within float32, row 1 has others",
        ),
        ({"x": X.astype(np.float64) * 1e300}, "x: expected finite numbers within float32, row 0 has others"),
        ({"x": X, "y": Y[:2]}, "expected 3 classes, one per row, got 2"),
        ({"x": X, "y": Y * np.nan}, "expected finite numbers to predict, got others"),
        ({"x": X, "y": Y + 0.5, "labels": ["a", "b"]}, "expected one class per row, .*, got float64"),
        ({"x": X, "y": Y[:0]}, "expected 3 classes, one per row, got 0"),
        ({"x": X, "y": np.array([], str)}, "expected 3 classes, one per row, got 0"),
        ({"x": X, "y": Y - 1}, "expected classes from 0 to .*, got -1 to 1"),
        ({"x": X, "y": ["a", "b", "c"]}, "expected integers as classes, as there are no labels, got .*'a'"),
        ({"x": X, "y": ["a", "b", "z"], "labels": ["a", "b"]}, "expected classes of a, b, got 'z'"),
        ({"x": X, "y": Y, "labels": ["a", "b"]}, "expected classes from 0 to 1, got 0 to 2"),
        (
            {"x": X, "y": Y, "labels": ["a", "b", "a"]},
            "labels: expected distinct names, got 'a' more than once",
        ),
        ({"x": X, "y": Y, "labels": ["a", "b", " "]}, "labels: expected names, got ' '"),
    ],
)
def test_rows_of_another_shape_are_rejected(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=rf"rows.npz: {message}"):
        read_rows(save_npz(tmp_path, **arrays), ONE)


@pytest.mark.parametrize("array", [np.array([[1.5]]), np.array([[1e30]]), np.array([["a"]])])
def test_ids_are_integers(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    """Fractions are not rounded."""
    with pytest.raises(SourceError, match="x: expected int64, got"):
        read_rows(save_npz(tmp_path, x=array), parse_inputs(["x:int64[batch,1]"]))


@pytest.mark.parametrize(("dtype", "number"), [("uint8", 256), ("int8", -129), ("bool", 2)])
def test_integers_do_not_overflow(tmp_path: Path, dtype: str, number: int) -> None:
    inputs = parse_inputs([f"x:{dtype}[batch,1]"])
    assert read_rows(save_npz(tmp_path, x=np.array([[1]])), inputs)[0].inputs["x"].dtype == np.dtype(dtype)
    with pytest.raises(SourceError, match=f"x: expected integers that fit {dtype}, got {number} to {number}"):
        read_rows(save_npz(tmp_path, x=np.array([[number]])), inputs)


def test_classes_may_be_labels() -> None:
    """Labels may be text or bytes. If they are numbers, a number is a label, not a column."""
    assert class_numbers(np.array(["dog", "cat"]), ("cat", "dog"), "here").tolist() == [1, 0]
    assert class_numbers(np.array([b"dog", b"cat"]), ("cat", "dog"), "here").tolist() == [1, 0]
    assert class_numbers(np.array([7, 3, 7]), ("3", "7"), "here").tolist() == [1, 0, 1]
    assert class_numbers(np.array([1, 0]), ("cat", "dog"), "here").tolist() == [1, 0]
    with pytest.raises(SourceError, match="here: expected classes of 3, 7, got '1'"):
        class_numbers(np.array([1]), ("3", "7"), "here")


def test_a_pickle_in_an_npz_is_not_run(tmp_path: Path) -> None:
    """Arrays of Python objects are rejected."""
    ran = tmp_path / "ran"

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return (Path.touch, (ran,))

    trap = np.empty((3, 4), object)
    trap[:] = Trap()
    for arrays in ({"x": trap}, {"x": X, "y": trap[:, 0]}, {"x": X, "y": Y, "labels": trap[:, 0]}):
        with pytest.raises(SourceError, match="expected arrays of numbers, cannot read them"):
            read_rows(save_npz(tmp_path, **arrays), ONE)
        assert not ran.exists()
    np.load(tmp_path / "rows.npz", allow_pickle=True)["labels"]
    assert ran.exists(), "expected np.load to run the code"


@pytest.mark.parametrize("keep", [0, 30, -1])
def test_a_damaged_file_is_an_error(tmp_path: Path, keep: int) -> None:
    path = save_npz(tmp_path, x=X)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        SourceError, match="expected an .npz file, as numpy.savez writes it, got something else"
    ):
        read_rows(path, ONE)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00")
    with pytest.raises(SourceError, match="expected arrays of numbers, cannot read them"):
        read_rows(path, ONE)


def test_a_file_that_expands_beyond_the_limit_is_rejected(tmp_path: Path) -> None:
    """It is rejected even if only the header of an array claims the size."""
    with zipfile.ZipFile(tmp_path / "rows.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", bytes(1 << 20))
    with pytest.raises(SourceError, match="GiB of rows"):
        npz_rows(tmp_path / "rows.npz", ONE, max_bytes=1 << 19)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 50, 4)}
    )
    with zipfile.ZipFile(tmp_path / "rows.npz", "w") as archive:
        archive.writestr("x.npy", header.getvalue())
    with pytest.raises(SourceError, match="expected arrays of numbers, cannot read them"):
        read_rows(tmp_path / "rows.npz", ONE)


def test_a_data_set_gives_its_test_rows() -> None:
    """It gives the names of its classes too."""
    rows, labels = read_rows("digits", parse_inputs(["x:float32[batch,1,8,8]"]))
    assert (len(rows), labels) == (359, tuple("0123456789"))
    assert rows.inputs["x"].dtype == np.float32
    with pytest.raises(SourceError, match="expected the classes cat, dog, got those of digits: 0, 1, 2"):
        read_rows("digits", parse_inputs(["x:float32[batch,1,8,8]"]), ("cat", "dog"))
    with pytest.raises(SourceError, match=r"^digits: x: expected shape \(rows, 4\), got \(359, 1, 8, 8\)"):
        read_rows("digits", ONE)
    with pytest.raises(SourceError, match="^digits has rows for one input, and the network has 2"):
        read_rows("digits", TWO)


def test_an_unknown_data_set_is_an_error(tmp_path: Path) -> None:
    """A known data set without files in the given folder is an error too."""
    with pytest.raises(
        SourceError,
        match="^expected a .csv, .parquet or .npz file, a folder of images or one of digits, drawn-digits",
    ):
        read_rows("absent.npz", ONE)
    with pytest.raises(SourceError, match="mnist"):
        read_rows("mnist", ONE, data_dir=tmp_path)


def test_data_sets_are_embedded_downloaded_or_unknown() -> None:
    assert is_embedded("digits")
    assert is_embedded("parity-24")
    assert is_dataset_name("mnist")
    assert not is_embedded("mnist")
    assert not is_dataset_name("parity-1")
    assert not is_dataset_name("rows.npz")


def test_rows_are_split_to_choose_by_and_to_judge_by(tmp_path: Path) -> None:
    """Training and test rows of a data set, which have no row in common; every other row of a file."""
    spec = parse_inputs(["x:float32[batch,1,8,8]"])
    split = read_split_rows("digits", spec)
    rows, _ = read_rows("digits", spec)
    assert split.labels == tuple(map(str, range(10)))
    np.testing.assert_array_equal(split.test.inputs["x"], rows.inputs["x"])
    known = {row.tobytes() for row in split.calibration.inputs["x"]}
    assert len(split.calibration) > 2 * len(split.test)
    assert sum(row.tobytes() in known for row in split.test.inputs["x"]) <= 1
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    np.savez(tmp_path / "rows.npz", x=x, y=np.arange(5))
    halves = read_split_rows(tmp_path / "rows.npz", parse_inputs(["x:float32[batch,2]"]))
    np.testing.assert_array_equal(halves.calibration.inputs["x"], x[::2])
    np.testing.assert_array_equal(halves.test.inputs["x"], x[1::2])
    assert halves.test.classes is not None
    assert halves.test.classes.tolist() == [1, 3]


def test_validation_rows_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither half is of them, so there may be none."""
    dataset = load_dataset("digits")
    none = replace(dataset, valid=Split(dataset.valid.x[:0], dataset.valid.y[:0]))
    monkeypatch.setattr(
        "turnpike.export.sources.data.datasets.load_dataset", lambda *arguments, **options: none
    )
    split = read_split_rows("digits", parse_inputs(["x:float32[batch,1,8,8]"]))
    assert split.dataset is none
    assert (len(split.calibration), len(split.test)) == (len(dataset.train), len(dataset.test))


def test_numbers_to_predict_are_read(tmp_path: Path) -> None:
    """Floats are no classes if the network has no labels."""
    rows, labels = read_rows(save_npz(tmp_path, x=X, y=Y + 0.5), ONE)
    assert rows.classes is None
    assert rows.numbers is not None
    assert labels == ()
    assert rows.numbers.tolist() == [0.5, 2.5, 1.5]
    halves = read_split_rows(tmp_path / "rows.npz", ONE)
    assert halves.calibration.numbers is not None
    assert halves.test.numbers is not None
    assert (halves.calibration.numbers.tolist(), halves.test.numbers.tolist()) == ([0.5, 1.5], [2.5])


def columns(names: str) -> list[Feature]:
    return [Feature(name=name, low=0, high=1, mean=0, sd=1) for name in names]


def test_the_columns_of_a_split_table_are_found_by_name(tmp_path: Path) -> None:
    """The class is the column that the network does not read, wherever it is."""
    lines = ["b,class,a", *(f"{n + 0.5},{'xy'[n % 2]},{n + 0.25}" for n in range(40))]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    split = read_split_rows(
        tmp_path / "table.csv", parse_inputs(["x:float32[batch,2]"]), features=columns("ab")
    )
    assert split.labels == ("x", "y")
    np.testing.assert_array_equal(np.diff(split.test.inputs["x"]), np.full((len(split.test), 1), 0.25))
    assert (split.test.inputs["x"][:, 0] % 1 == 0.25).all()
    with pytest.raises(SourceError, match="expected a column 'c', as in the training, got none"):
        read_split_rows(tmp_path / "table.csv", parse_inputs(["x:float32[batch,2]"]), features=columns("ac"))
    with pytest.raises(
        SourceError, match="expected one column besides those .* not recorded, got b, class: leave out"
    ):
        read_split_rows(tmp_path / "table.csv", parse_inputs(["x:float32[batch,1]"]), features=columns("a"))


def test_texts_are_read_if_they_are_wanted(tmp_path: Path) -> None:
    """As strings or their bytes, those of the test rows first; the chosen rows keep theirs."""
    inputs, path = parse_inputs(["ids:int64[batch,2,3]"]), tmp_path / "rows.npz"
    ids = np.arange(40 * 6).reshape(40, 2, 3)
    texts = [f"é {number}" for number in range(40)]
    for array in (np.array(texts), np.array([text.encode() for text in texts])):
        np.savez(path, ids=ids, texts=array)
        assert npz_rows(path, inputs)[0].texts == ()
        assert read_rows(path, inputs, with_texts=True)[0].texts == tuple(texts)
        some = npz_rows(path, inputs, max_rows=5, with_texts=True)[0]
        assert [f"é {row[0, 0] // 6}" for row in some.inputs["ids"]] == list(some.texts)
    np.savez(path, ids=ids, ids_test=ids[:3], texts=texts, texts_test=["a", "b", "c"])
    assert npz_rows(path, inputs, with_texts=True)[0].texts == ("a", "b", "c")
    np.savez(path, ids=ids)
    assert npz_rows(path, inputs, with_texts=True)[0].texts == ()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a"], "texts: expected 2 texts, one per row, got 1"),
        ([1, 2], "texts: expected one string per row, got int64"),
        ([["a"], ["b"]], "texts: expected one string per row, got <U1"),
        ([b"a", b"\xff"], "texts: expected strings in UTF-8, got others"),
        (["a", "\ud800"], "texts: expected strings in UTF-8, got others"),
    ],
)
def test_texts_that_do_not_fit_are_rejected(tmp_path: Path, texts: Any, message: str) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, ids=np.zeros((2, 2, 3), np.int64), texts=np.array(texts))
    with pytest.raises(SourceError, match=message):
        npz_rows(path, parse_inputs(["ids:int64[batch,2,3]"]), with_texts=True)
