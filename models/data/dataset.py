"""Rows with their classes, and data sets split into training, validation and test rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from turnpike.models.choices import Task
from turnpike.models.data.table.kinds import Column
from turnpike.models.errors import DataError

RowKind = Literal["image", "text", "numbers"]

DEFAULT_TEST_FRACTION = 0.2  # share of test rows for data sets without a split of their own
# classes are imbalanced if the commonest has this many times as many training rows as the rarest
IMBALANCE = 3
DEFAULT_VALID_FRACTION = 1 / 12  # share of the training rows that is held out for validation
# tables with fewer rows are small
SMALL_TABLE_ROWS = 1000
# rows of a table that are held out for validation, unless that is more than the share below or less than the
# default one; with only 97 rows, an accuracy of 76 % has a standard error of 4 points
TABLE_VALID_ROWS = 200
MAX_TABLE_VALID_FRACTION = 0.2


@dataclass(frozen=True)
class Split:
    """Rows, and their classes or the numbers to predict.

    Shapes: x (rows, *shape) in the dtype of the data set (uint8, float32 or int64), not scaled;
    y (rows,) int64, or float32 for numbers. `texts` are what the rows of ids were made from, if they are
    known.
    """

    x: Tensor
    y: Tensor
    texts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.y)

    def take(self, indices: Tensor) -> Split:
        """Return the rows with these indices."""
        texts = tuple(self.texts[index] for index in indices.tolist()) if self.texts else ()
        return Split(self.x[indices], self.y[indices], texts)


def joined(*splits: Split) -> Split:
    """The rows of several splits, one after the other."""
    texts = tuple(text for split in splits for text in split.texts)
    return Split(torch.cat([split.x for split in splits]), torch.cat([split.y for split in splits]), texts)


@dataclass(frozen=True)
class RawDataset:
    """A data set as it was read, before it is split.

    Attributes:
        name: Name of the data set.
        rows: All rows, or the official training rows.
        test: The official test rows; None if there are none.
        labels: Name of each class.
        kind: What a row is: "image", "text" or "numbers".
        alphabet: For text, the character of each id; id 0 is padding.
        features: For a table, the names of its columns without the target.
        target: For a table, the name of the column to predict.
        task: Whether the rows have classes or numbers.
        columns: For a table, what each column holds, without the one to predict; also those left out.
        time_column: For a table that is split by time, the column with the times; the rows are in its order.
        unanswered: For a table, the number of rows that were left out, because they have nothing to predict.
        white: For images, the value of a white pixel, if it is known; black is 0.
    """

    name: str
    rows: Split
    test: Split | None
    labels: tuple[str, ...]
    kind: RowKind
    alphabet: str = ""
    features: tuple[str, ...] = ()
    target: str = ""
    task: Task = "classes"
    columns: tuple[Column, ...] = ()
    time_column: str = ""
    unanswered: int = 0
    white: float | None = None


@dataclass(frozen=True)
class Dataset:
    """A data set that is split and ready for training.

    Attributes:
        name: Name of the data set.
        train: Rows to train on.
        valid: Rows held out of the training rows; the best checkpoint is chosen by them.
        test: Rows that are used once, after training.
        labels: Name of each class.
        kind: What a row is: "image", "text" or "numbers".
        alphabet: For text, the character of each id; id 0 is padding.
        features: For a table, the names of its columns without the target.
        target: For a table, the name of the column to predict.
        task: Whether the rows have classes or numbers.
        columns: For a table, what each column holds, without the one to predict; also those left out.
        time_column: For a table that is split by time, the column with the times; the rows are in its order.
        unanswered: For a table, the number of rows that were left out, because they have nothing to predict.
        white: For images, the value of a white pixel, if it is known; black is 0.
    """

    name: str
    train: Split
    valid: Split
    test: Split
    labels: tuple[str, ...]
    kind: RowKind
    alphabet: str = ""
    features: tuple[str, ...] = ()
    target: str = ""
    task: Task = "classes"
    columns: tuple[Column, ...] = ()
    time_column: str = ""
    unanswered: int = 0
    white: float | None = None

    @property
    def inputs(self) -> tuple[int, ...]:
        """Shape of one row."""
        return tuple(self.train.x.shape[1:])

    @property
    def classes(self) -> int:
        """The number of classes; 1 if a number is predicted."""
        return len(self.labels) if self.task == "classes" else 1

    @property
    def is_table(self) -> bool:
        """Whether each column of the rows has a meaning and a unit of its own."""
        return self.kind == "numbers" and len(self.inputs) == 1

    @property
    def is_small_table(self) -> bool:
        """Whether this is a table with few rows to train on and validate by."""
        return self.is_table and len(self.train) + len(self.valid) < SMALL_TABLE_ROWS

    @cached_property
    def class_counts(self) -> Tensor:
        """The number of training rows of each class."""
        return torch.bincount(self.train.y, minlength=len(self.labels))

    @property
    def is_imbalanced(self) -> bool:
        """Whether some classes are so much rarer than others that accuracy says little of them."""
        return self.task == "classes" and int(self.class_counts.max()) >= IMBALANCE * int(
            self.class_counts.min()
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the rows and classes of all three splits."""
        sha = hashlib.sha256()
        for split in (self.train, self.valid, self.test):
            for tensor in (split.x, split.y):
                sha.update(str((tuple(tensor.shape), tensor.dtype)).encode())
                sha.update(tensor.contiguous().numpy().data)
        return sha.hexdigest()

    def training_rows(self, seed: int, epoch: int) -> Split:
        """Return the training rows of an epoch; subclasses may draw new ones for each epoch."""
        return self.train


def seeded_generator(*key: object) -> torch.Generator:
    """Return a generator seeded by a hash of the key, so that similar keys give unrelated numbers."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def split_dataset(
    raw: RawDataset, *, test_fraction: float | None, valid_fraction: float | None, seed: int
) -> Dataset:
    """Split a data set into training, validation and test rows.

    Args:
        raw: The data set as it was read.
        test_fraction: None keeps the official test rows; if there are none, a fixed share of the rows,
            the same for every seed, is used. A number splits all rows at random with this share of test rows.
        valid_fraction: Share of the training rows to hold out for validation; None for a twelfth. Of a table,
            None is 200 rows, at most a fifth and at least a twelfth.
        seed: Decides the random splits.
    """
    rows, test = raw.rows, raw.test
    if test_fraction is not None:
        if test is not None:
            rows = joined(rows, test)
        rows, test = _hold_out(raw, rows, test_fraction, seeded_generator("test", seed))
    elif test is None:
        rows, test = _hold_out(raw, rows, DEFAULT_TEST_FRACTION, seeded_generator("test"))
    if valid_fraction is None:
        valid_fraction = DEFAULT_VALID_FRACTION
        if raw.kind == "numbers" and rows.x.dim() == 2:
            share = min(TABLE_VALID_ROWS / len(rows), MAX_TABLE_VALID_FRACTION)
            valid_fraction = max(share, DEFAULT_VALID_FRACTION)
    train, valid = _hold_out(raw, rows, valid_fraction, seeded_generator("valid", seed))
    dataset = Dataset(
        raw.name,
        train,
        valid,
        test,
        raw.labels,
        raw.kind,
        raw.alphabet,
        raw.features,
        raw.target,
        raw.task,
        raw.columns,
        raw.time_column,
        raw.unanswered,
        raw.white,
    )
    return _without_unseen_words(dataset)


def _without_unseen_words(data: Dataset) -> Dataset:
    """The data with only those words of categories that training rows have; others count as never seen."""
    used = [place for place, column in enumerate(data.columns) if column.form is not None]
    columns = list(data.columns)
    splits = [data.train, data.valid, data.test]
    for axis, place in enumerate(used):
        form = columns[place].form
        if form is None or form.kind != "category":
            continue
        seen = [n for n in range(len(form.categories)) if bool((data.train.x[:, axis] == n).any())]
        if len(seen) == len(form.categories):
            continue
        # the last entry is for words that are none of the categories
        new_places = torch.full((len(form.categories) + 1,), float(len(seen)))
        new_places[seen] = torch.arange(len(seen), dtype=torch.float32)
        for number, split in enumerate(splits):
            x = split.x.clone()
            known = ~x[:, axis].isnan()
            x[known, axis] = new_places[x[known, axis].long()]
            splits[number] = replace(split, x=x)
        words = tuple(form.categories[n] for n in seen)
        columns[place] = replace(columns[place], form=replace(form, categories=words))
    train, valid, test = splits
    return replace(data, train=train, valid=valid, test=test, columns=tuple(columns))


def _hold_out(
    raw: RawDataset, rows: Split, fraction: float, generator: torch.Generator
) -> tuple[Split, Split]:
    """Return (remaining rows, rows that are held out), both in the order of the data set.

    Random rows are held out, or the last ones if the data is split by time.
    """
    name = raw.name
    count = max(1, round(len(rows) * fraction))
    if count >= len(rows):
        raise DataError(f"{name}: holding out {fraction:g} of {len(rows)} rows leaves none to train on")
    if raw.time_column:
        return rows.take(torch.arange(len(rows) - count)), rows.take(
            torch.arange(len(rows) - count, len(rows))
        )
    order = torch.randperm(len(rows), generator=generator)
    return rows.take(order[count:].sort().values), rows.take(order[:count].sort().values)
