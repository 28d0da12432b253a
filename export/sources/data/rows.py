"""Reads the rows to measure gates on: an .npz file, a table, a folder of images, or a data set by name."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from turnpike.export.errors import SourceError, one_line
from turnpike.export.input_spec import InputSpec
from turnpike.export.network import Array, Rows
from turnpike.export.sources.data.features import recorded_features
from turnpike.export.sources.data.labels import read_distinct_names
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

# enough rows for the quantiles of gates; more would only take longer
MAX_ROWS_USED = 2_000
# rows to choose units on, and rows to judge the choice on: a point of accuracy is a hundred rows or more
MAX_CALIBRATION_ROWS, MAX_TEST_ROWS = 30_000, 10_000
MAX_NPZ_BYTES = 2 << 30
# keys of an .npz file: arrays of the test split come first
CLASS_KEYS = ("y", "classes")
TEXTS_KEY = "texts"
KEY_SUFFIXES = ("_test", "")
# data sets that come with the package and need no download
EMBEDDED_DATASETS = ("digits", "drawn-digits", "names")


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
        target: The column of a table to predict. Default: the one that is no feature.
        task: Whether that has classes or numbers.
    """
    path = Path(data)
    dataset = None if record is None else _training_data(data, data_dir, record)
    if dataset is None and path.is_file() and not is_table(path):
        rows, names = npz_rows(path, inputs, labels, max_rows=2 * MAX_TEST_ROWS, features=features)
        if len(rows) < 2:
            raise SourceError(f"{data}: expected 2 rows or more, one to choose by and one to judge by, got 1")
        return SplitRows(_every_other(rows, 0), _every_other(rows, 1), names)
    if dataset is None:
        dataset = _load_dataset(data, data_dir, labels=labels, features=features, target=target, task=task)
    training, names = dataset_rows(
        replace(dataset, test=dataset.train), inputs, labels, features, max_rows=MAX_CALIBRATION_ROWS
    )
    test, _ = dataset_rows(dataset, inputs, labels, features, max_rows=MAX_TEST_ROWS)
    return SplitRows(training, test, names, dataset)


def _training_data(data: str | Path, data_dir: Path | None, record: TrainingRecord) -> Dataset | None:
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
        target = target or _other_column(path, features)
        raw = read_table(path, TableOptions(target, task, forms=forms, labels=labels))
    else:
        names = read_cells(path).names
        kinds = dict.fromkeys(names[:-1], "number")
        raw = read_table(path, TableOptions(task="classes" if labels else None, kinds=kinds))
    return split_dataset(raw, test_fraction=None, valid_fraction=None, seed=0)


def _other_column(path: Path, features: Sequence[Feature]) -> str:
    """The column of a table that is none of the network's, which is the one to predict."""
    names, used = read_cells(path).names, [feature.name for feature in features]
    for name in used:
        if name not in names:
            raise SourceError(f"{path.stem}: expected a column {name!r}, as in the training, got none")
    others = [name for name in names if name not in used]
    if len(others) != 1:
        raise SourceError(
            f"{path.stem}: expected one column besides those of the training, with the classes, got "
            f"{', '.join(others) or 'none'}"
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


def _every_other(rows: Rows, first: int) -> Rows:
    return rows.take(slice(first, None, 2))


def read_rows(
    data: str | Path,
    inputs: tuple[InputSpec, ...],
    labels: Sequence[str] = (),
    data_dir: Path | None = None,
    record: TrainingRecord | None = None,
    *,
    features: Sequence[Feature] = (),
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
        target: The column of a table to predict.
        task: Whether that has classes or numbers.
        with_texts: Whether to read the texts of an .npz file.
    """
    path = Path(data)
    if path.is_file() and not is_table(path):
        return npz_rows(path, inputs, labels, features=features, with_texts=with_texts)
    dataset = _load_dataset(
        data, data_dir, record=record, labels=labels, features=features, target=target, task=task
    )
    return dataset_rows(dataset, inputs, labels, features)


def _load_dataset(
    data: str | Path,
    data_dir: Path | None,
    *,
    record: TrainingRecord | None = None,
    labels: Sequence[str] = (),
    features: Sequence[Feature] = (),
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
            return _load_table(path, features, target, task, labels)
        return load_dataset(str(data), data_dir=data_dir)
    except ModelsError as error:
        raise SourceError(str(error)) from error


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
            f"expected the classes {_shorten(labels)}, got those of {data.name}: {_shorten(data.labels)}"
        )
    arrays, true = {inputs[0].name: data.test.x.numpy()}, data.test.y.numpy()
    rows = _build_rows(arrays, true, inputs, data.name, max_rows, data.test.texts, features)
    return rows, data.labels


def npz_rows(
    path: Path,
    inputs: tuple[InputSpec, ...],
    labels: Sequence[str] = (),
    max_bytes: int = MAX_NPZ_BYTES,
    max_rows: int = MAX_ROWS_USED,
    *,
    features: Sequence[Feature] = (),
    with_texts: bool = False,
) -> tuple[Rows, tuple[str, ...]]:
    """The rows of an .npz file: one array per input, under its name, and the classes as `y` or `classes`.

    The array of a single input may be called `x`. If there are `x_test` and `y_test`, they are preferred. All
    arrays of the file together may take `max_bytes`. `with_texts` also reads an array `texts`, if there is
    one.
    """
    where = str(path)
    names = {name for spec in inputs for name in (spec.name, "x")} | ({TEXTS_KEY} if with_texts else set())
    arrays = _read_arrays(path, {f"{name}{suffix}" for name in names for suffix in KEY_SUFFIXES}, max_bytes)
    # the array of each input, all with the same suffix
    selected: dict[str, Array] = {}
    suffixes = set()
    for spec in inputs:
        bases = (spec.name, "x") if len(inputs) == 1 else (spec.name,)
        keys = [f"{base}{suffix}" for suffix in KEY_SUFFIXES for base in bases]
        key = next((key for key in keys if key in arrays), None)
        if key is None:
            raise SourceError(f"{where}: expected an array {spec.name!r}, got {', '.join(arrays) or 'none'}")
        selected[spec.name] = arrays[key]
        suffixes.add("_test" if key.endswith("_test") and not spec.name.endswith("_test") else "")
    if len(suffixes) > 1:
        raise SourceError(f"{where}: expected a _test array for every input or for none")
    # the classes with the same suffix, and the labels
    class_names = _label_names(arrays["labels"], where) if "labels" in arrays else ()
    suffix = suffixes.pop()
    raw_classes = next((arrays[f"{key}{suffix}"] for key in CLASS_KEYS if f"{key}{suffix}" in arrays), None)
    true = None if raw_classes is None else _true_answers(raw_classes, tuple(labels) or class_names, where)
    raw_texts = arrays.get(f"{TEXTS_KEY}{suffix}") if with_texts else None
    texts = () if raw_texts is None else _texts(raw_texts, where)
    return _build_rows(selected, true, inputs, where, max_rows, texts, features), class_names


def _true_answers(array: Array, labels: Sequence[str], where: str) -> Array:
    """The classes of rows; or if there are no labels, numbers with decimals, which are to be predicted."""
    if array.dtype.kind == "f" and array.ndim == 1 and not labels:
        if not np.isfinite(array).all():
            raise SourceError(f"{where}: expected finite numbers to predict, got others")
        return array
    return class_numbers(array, labels, where)


def _label_names(array: Array, where: str) -> tuple[str, ...]:
    """The names of the classes: an array of strings, of their bytes in UTF-8, or of numbers."""
    names = np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array
    try:
        return read_distinct_names(list(map(str, names.tolist())))
    except SourceError as error:
        raise SourceError(f"{where}: labels: {error}") from error


def _texts(array: Array, where: str) -> tuple[str, ...]:
    """The texts of an array of strings, or of their bytes in UTF-8."""
    if array.ndim != 1 or array.dtype.kind not in "SU":
        raise SourceError(f"{where}: {TEXTS_KEY}: expected one string per row, got {_describe(array)}")
    try:
        texts = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array
        # strings that UTF-8 cannot represent could not be sent to a service
        return tuple(text.encode().decode() for text in texts.tolist())
    except (UnicodeError, ValueError) as error:
        raise SourceError(f"{where}: {TEXTS_KEY}: expected strings in UTF-8, got others") from error


def class_numbers(classes: Array, labels: Sequence[str], where: str) -> Array:
    """Convert classes, which may be given as labels, to column numbers of the output.

    If the labels are numbers themselves, classes are labels: 7 is the class called 7, not column 7.
    """
    if classes.ndim != 1 or classes.dtype.kind not in "buiSU":
        raise SourceError(
            f"{where}: expected one class per row, as integers or names, got {_describe(classes)}"
        )
    if not len(classes):
        return np.zeros(0, np.int64)
    are_names = classes.dtype.kind in "SU"
    values = np.char.decode(classes, "utf-8", "replace") if classes.dtype.kind == "S" else classes
    if are_names and not labels:
        raise SourceError(
            f"{where}: expected integers as classes, as there are no labels, got {str(values[0])!r}"
        )
    if are_names or (labels and all(label.isdecimal() for label in labels)):
        columns = {label: column for column, label in enumerate(labels)}
        names = list(map(str, values.tolist()))
        if unknown := [name for name in names if name not in columns]:
            raise SourceError(f"{where}: expected classes of {_shorten(labels)}, got {unknown[0]!r}")
        return np.array([columns[name] for name in names], np.int64)
    class_count = len(labels) or np.iinfo(np.int32).max
    if not 0 <= int(values.min()) <= int(values.max()) < class_count:
        raise SourceError(
            f"{where}: expected classes from 0 to {class_count - 1}, got {values.min()} to {values.max()}"
        )
    return values.astype(np.int64)


def is_dataset_name(name: str) -> bool:
    """Whether there is a data set of this name."""
    try:
        return name in DATASETS or parse_parity_name(name) is not None
    except ModelsError:
        return False


def is_embedded(name: str) -> bool:
    """Whether a data set comes with this package, so that nothing is downloaded."""
    return is_dataset_name(name) and (name in EMBEDDED_DATASETS or name.startswith("parity-"))


def expect_shape(array: Array, spec: InputSpec, sizes: dict[str, int], where: str) -> None:
    """Raise a SourceError unless an array has the shape of rows for an input.

    Args:
        array: The rows.
        spec: The input.
        sizes: Sizes of the dynamic dimensions seen so far, by name; those of this array are added.
        where: Beginning of the message.
    """
    fits = array.ndim == len(spec.dims) and array.size > 0
    for dim, size in zip(spec.dims[1:], array.shape[1:], strict=False):
        fits = fits and size == (sizes.setdefault(dim, size) if isinstance(dim, str) else dim)
    if not fits:
        expected = ", ".join(str(sizes.get(str(dim), dim)) for dim in spec.dims[1:])
        raise SourceError(f"{where}: expected shape (rows, {expected}), got {array.shape}")


def convert_rows(
    array: Array, spec: InputSpec, where: str, numbers: Array, features: Sequence[Feature] = ()
) -> Array:
    """Convert rows to the dtype of an input, without losing anything but floating point precision.

    `numbers` has the number of each row in its file, and `features` say which cells may be blank, as NaN.
    """
    dtype = np.dtype(spec.dtype)
    if array.dtype.kind not in ("buif" if dtype.kind == "f" else "bui"):
        raise SourceError(f"{where}: expected {spec.dtype}, got {array.dtype}")
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported below
        converted = np.ascontiguousarray(array, dtype)
    if dtype.kind == "f":
        fits = np.isfinite(converted).reshape(len(converted), -1)
        if len(features) == fits.shape[1]:
            fits |= np.isnan(converted) & [feature.blanks for feature in features]
            blank = np.isnan(converted) & ~fits
            if blank.any():
                row, column = np.argwhere(blank)[0]
                raise SourceError(
                    f"{where}: row {numbers[row]}: expected a value of {features[column].name!r}, which had "
                    "no blanks in the training, got none"
                )
        finite = fits.all(axis=1)
        if not finite.all():
            row = numbers[finite.argmin()]
            raise SourceError(f"{where}: expected finite numbers within {spec.dtype}, row {row} has others")
    elif not np.array_equal(converted, array):
        raise SourceError(
            f"{where}: expected integers that fit {spec.dtype}, got {array.min()} to {array.max()}"
        )
    return converted


def _build_rows(
    arrays: dict[str, Array],
    true: Array | None,
    inputs: tuple[InputSpec, ...],
    where: str,
    max_rows: int,
    texts: tuple[str, ...] = (),
    features: Sequence[Feature] = (),
) -> Rows:
    sizes: dict[str, int] = {}
    for spec in inputs:
        expect_shape(arrays[spec.name], spec, sizes, f"{where}: {spec.name}")
    count = len(arrays[inputs[0].name])
    for name, array in arrays.items():
        if len(array) != count:
            raise SourceError(
                f"{where}: {name}: expected {count} rows as in {inputs[0].name}, got {len(array)}"
            )
    if true is not None and len(true) != count:
        raise SourceError(f"{where}: expected {count} classes, one per row, got {len(true)}")
    if texts and len(texts) != count:
        raise SourceError(f"{where}: {TEXTS_KEY}: expected {count} texts, one per row, got {len(texts)}")
    selected = _select_rows(count, max_rows)
    converted = {
        spec.name: convert_rows(
            arrays[spec.name][selected], spec, f"{where}: {spec.name}", selected, features
        )
        for spec in inputs
    }
    selected_texts = tuple(texts[row] for row in selected.tolist()) if texts else ()
    if true is None:
        return Rows(converted, texts=selected_texts)
    if true.dtype.kind == "f":
        return Rows(converted, texts=selected_texts, numbers=true[selected])
    return Rows(converted, true[selected], selected_texts)


def _select_rows(count: int, max_rows: int) -> Array:
    """The numbers of the rows to use, in order: all, or `max_rows` drawn at random with a fixed seed."""
    if count <= max_rows:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, max_rows, replace=False))


def _read_arrays(path: Path, names: set[str], max_bytes: int) -> dict[str, Array]:
    """The arrays with these names, and those of the classes and labels, of an .npz file."""
    where = str(path)
    if not zipfile.is_zipfile(path):
        raise SourceError(f"{where}: expected an .npz file, as numpy.savez writes it, got something else")
    keys = {*names, "labels", *(f"{key}{suffix}" for key in CLASS_KEYS for suffix in KEY_SUFFIXES)}
    try:
        with zipfile.ZipFile(path) as archive:
            _expect_size(where, sum(info.file_size for info in archive.infolist()), max_bytes)
        # no pickles: opening an array of Python objects would run code
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files if key in keys}
    except SourceError:
        raise
    except Exception as error:  # a damaged file makes zipfile, zlib and NumPy raise almost anything
        raise SourceError(
            f"{where}: expected arrays of numbers, cannot read them ({one_line(error)})"
        ) from error
    # NumPy returns a member without its header as bytes
    invalid = [key for key, array in arrays.items() if not isinstance(array, np.ndarray) or array.ndim == 0]
    if invalid:
        raise SourceError(f"{where}: {invalid[0]}: expected an array of rows, got something else")
    return arrays


def _expect_size(where: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise SourceError(
            f"{where}: expected at most {max_bytes >> 30} GiB of rows, got {size / 2**30:.1f} GiB"
        )


def _describe(array: Array) -> str:
    return f"{array.dtype} {array.shape}"


def _shorten(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
