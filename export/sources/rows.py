"""Rows to prove and measure on: a user's .npz, or the test rows of a data set that goes by its name."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from export.errors import SourceError
from export.input_spec import InputSpec
from export.source import Array, Rows
from models.data.dataset import Dataset
from models.data.load import known_datasets, load_dataset
from models.data.parity_bits import parse_parity_name
from models.errors import ModelsError

# enough for quantiles of gates; more would only cost time
MAX_ROWS_USED = 2_000
MAX_NPZ_BYTES = 2 << 30
CLASS_KEYS = ("y", "classes")
KEY_SUFFIXES = ("_test", "")
EMBEDDED_DATASETS = ("digits", "names")


def read_rows(
    data: str | Path, inputs: tuple[InputSpec, ...], labels: Sequence[str] = (), data_dir: Path | None = None
) -> tuple[Rows, tuple[str, ...]]:
    """Rows for the inputs and their classes, and what the classes are called where the data says so.

    `data` is an .npz file or a folder of images, or a data set's name, of which the test rows are taken.
    Of more than MOST_ROWS some are chosen, always the same ones.
    """
    if (path := Path(data)).is_file():
        return npz_rows(path, inputs, labels)
    if not path.is_dir() and not is_dataset_name(str(data)):
        names = ", ".join(known_datasets())
        raise SourceError(
            f"data: expected an .npz file, a folder of images or one of {names}, got {str(data)!r}"
        )
    try:
        found = load_dataset(str(data), data_dir=data_dir)
    except ModelsError as error:
        raise SourceError(f"data: {error}") from error
    return dataset_rows(found, inputs, labels)


def dataset_rows(
    data: Dataset, inputs: tuple[InputSpec, ...], labels: Sequence[str] = ()
) -> tuple[Rows, tuple[str, ...]]:
    """The test rows of a data set."""
    if len(inputs) != 1:
        raise SourceError(f"data: {data.name} has rows for one input, and the network reads {len(inputs)}")
    if labels and tuple(labels) != data.labels:
        raise SourceError(
            f"data: expected the classes {_shorten(labels)}, got those of {data.name}: "
            f"{_shorten(data.labels)}"
        )
    found = {inputs[0].name: data.test.x.numpy()}
    return _build_rows(found, data.test.y.numpy(), inputs, f"data: {data.name}"), data.labels


def npz_rows(
    path: Path, inputs: tuple[InputSpec, ...], labels: Sequence[str] = ()
) -> tuple[Rows, tuple[str, ...]]:
    """The rows of an .npz file: an array for each input by its name, the classes in `y` or `classes`.

    A lone input's array may be called `x`. Where there are `x_test` and `y_test`, these are taken.
    """
    where = f"data: {path}"
    arrays = _read_arrays(
        path, {f"{name}{end}" for one in inputs for name in (one.name, "x") for end in KEY_SUFFIXES}
    )
    found: dict[str, Array] = {}
    ends = set()
    for one in inputs:
        keys = (one.name, "x") if len(inputs) == 1 else (one.name,)
        key = next(
            (f"{name}{end}" for end in KEY_SUFFIXES for name in keys if f"{name}{end}" in arrays), None
        )
        if key is None:
            raise SourceError(f"{where}: expected an array {one.name!r}, got {', '.join(arrays) or 'none'}")
        found[one.name] = arrays[key]
        ends.add("_test" if key.endswith("_test") and not one.name.endswith("_test") else "")
    if len(ends) > 1:
        raise SourceError(f"{where}: expected a _test array for every input or for none")
    names = tuple(map(str, arrays["labels"].tolist())) if "labels" in arrays else ()
    end = ends.pop()
    given = next((arrays[f"{key}{end}"] for key in CLASS_KEYS if f"{key}{end}" in arrays), None)
    classes = None if given is None else class_numbers(given, tuple(labels) or names, where)
    return _build_rows(found, classes, inputs, where), names


def class_numbers(classes: Array, labels: Sequence[str], where: str) -> Array:
    """Classes as the numbers of the output's columns; they may be given as labels.

    Where the labels are numbers themselves, classes are labels: 7 means what is called 7.
    """
    if classes.ndim != 1 or classes.dtype.kind not in "buiSU":
        raise SourceError(
            f"{where}: expected one class per row, as integers or names, got {_describe(classes)}"
        )
    named = classes.dtype.kind in "SU"
    values = np.char.decode(classes, "utf-8", "replace") if classes.dtype.kind == "S" else classes
    if named and not labels:
        raise SourceError(
            f"{where}: expected integers as classes where no labels are given, got {values[0]!r}"
        )
    if named or (labels and all(label.isdecimal() for label in labels)):
        places = {label: place for place, label in enumerate(labels)}
        if strange := [value for value in map(str, values.tolist()) if value not in places]:
            raise SourceError(f"{where}: expected classes of {_shorten(labels)}, got {strange[0]!r}")
        return np.array([places[value] for value in map(str, values.tolist())], np.int64)
    most = len(labels) or np.iinfo(np.int32).max
    if len(values) and not 0 <= int(values.min()) <= int(values.max()) < most:
        raise SourceError(
            f"{where}: expected classes from 0 to {most - 1}, got {values.min()} to {values.max()}"
        )
    return values.astype(np.int64)


def is_dataset_name(name: str) -> bool:
    """Whether a data set goes by this name."""
    try:
        return name in known_datasets() or parse_parity_name(name) is not None
    except ModelsError:
        return False


def is_embedded(name: str) -> bool:
    """Whether the data set comes with this package, so that nothing needs to be fetched."""
    return is_dataset_name(name) and (name in EMBEDDED_DATASETS or name.startswith("parity-"))


def _build_rows(
    found: dict[str, Array], classes: Array | None, inputs: tuple[InputSpec, ...], where: str
) -> Rows:
    sizes: dict[str, int] = {}
    for one in inputs:
        expect_shape(found[one.name], one, sizes, f"{where}: {one.name}")
    count = len(found[inputs[0].name])
    for name, array in found.items():
        if len(array) != count:
            raise SourceError(
                f"{where}: {name}: expected {count} rows as in {inputs[0].name}, got {len(array)}"
            )
    if classes is not None and len(classes) != count:
        raise SourceError(f"{where}: expected {count} classes, one per row, got {len(classes)}")
    kept = _select_rows(count)
    cast = {one.name: convert_rows(found[one.name][kept], one, f"{where}: {one.name}") for one in inputs}
    return Rows(cast, None if classes is None else classes[kept])


def expect_shape(array: Array, one: InputSpec, sizes: dict[str, int], where: str) -> None:
    """Stop with a SourceError unless rows have the input's shape; `sizes` holds those of names met before."""
    fits = array.ndim == len(one.dims) and array.size > 0
    for dim, size in zip(one.dims[1:], array.shape[1:], strict=False):
        fits = fits and size == (sizes.setdefault(dim, size) if isinstance(dim, str) else dim)
    if not fits:
        known = ", ".join(str(sizes.get(str(dim), dim)) for dim in one.dims[1:])
        raise SourceError(f"{where}: expected shape (rows, {known}), got {array.shape}")


def convert_rows(array: Array, one: InputSpec, where: str) -> Array:
    """Rows in the input's own dtype: numbers of any kind as floats, integers as integers that hold them."""
    wanted = np.dtype(one.dtype)
    if array.dtype.kind not in ("buif" if wanted.kind == "f" else "bui"):
        raise SourceError(f"{where}: expected {one.dtype}, got {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):  # what does not fit is found below
        cast = np.ascontiguousarray(array, wanted)
    if wanted.kind == "f":
        finite = np.isfinite(cast).reshape(len(cast), -1).all(axis=1)
        if not finite.all():
            raise SourceError(
                f"{where}: expected finite numbers within {one.dtype}, row {finite.argmin()} has others"
            )
    elif not np.array_equal(cast, array):
        raise SourceError(
            f"{where}: expected integers that fit {one.dtype}, got {array.min()} to {array.max()}"
        )
    return cast


def _select_rows(count: int) -> Array:
    """The numbers of the rows that are kept, in order."""
    if count <= MAX_ROWS_USED:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, MAX_ROWS_USED, replace=False))


def _read_arrays(path: Path, wanted: set[str]) -> dict[str, Array]:
    """The arrays by these names, and the classes', of a file that unfolds to no more than MOST_BYTES."""
    where = f"data: {path}"
    if not zipfile.is_zipfile(path):
        raise SourceError(f"{where}: expected an .npz file, as numpy.savez writes it, got something else")
    keys = {*wanted, "labels", *(f"{key}{end}" for key in CLASS_KEYS for end in KEY_SUFFIXES)}
    try:
        with zipfile.ZipFile(path) as archive:
            _expect_size(where, sum(info.file_size for info in archive.infolist()))
        # without pickles: an array of Python objects would run code as it is opened
        with np.load(path, allow_pickle=False) as arrays:
            found = {key: arrays[key] for key in arrays.files if key in keys}
    except SourceError:
        raise
    except Exception as error:  # a damaged file makes zipfile, zlib and NumPy raise almost anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise SourceError(f"{where}: expected arrays of numbers, cannot read them ({reason})") from error
    # a member without NumPy's header comes back as bytes
    if strange := [
        key for key, array in found.items() if not isinstance(array, np.ndarray) or array.ndim == 0
    ]:
        raise SourceError(f"{where}: {strange[0]}: expected an array of rows, got something else")
    return found


def _expect_size(where: str, size: int) -> None:
    if size > MAX_NPZ_BYTES:
        raise SourceError(
            f"{where}: expected at most {MAX_NPZ_BYTES >> 30} GiB of rows, got {size / 2**30:.1f}"
        )


def _describe(array: Array) -> str:
    return f"{array.dtype} {array.shape}"


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
