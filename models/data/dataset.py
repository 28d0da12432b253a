"""Rows with their classes, and data sets split into training, validation and test rows."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from models.errors import DataError

RowKind = Literal["image", "text", "numbers"]

DEFAULT_TEST_FRACTION = 0.2  # share of test rows for data sets without a split of their own


@dataclass(frozen=True)
class Split:
    """Rows and their classes.

    Shapes: x (rows, *shape) in the dtype of the data set (uint8, float32 or int64), not scaled;
    y (rows,) int64.
    """

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def take(self, indices: Tensor) -> Split:
        """Return the rows with these indices."""
        return Split(self.x[indices], self.y[indices])


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
    """

    name: str
    rows: Split
    test: Split | None
    labels: tuple[str, ...]
    kind: RowKind
    alphabet: str = ""


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
    """

    name: str
    train: Split
    valid: Split
    test: Split
    labels: tuple[str, ...]
    kind: RowKind
    alphabet: str = ""

    @property
    def inputs(self) -> tuple[int, ...]:
        """Shape of one row."""
        return tuple(self.train.x.shape[1:])

    @property
    def classes(self) -> int:
        return len(self.labels)

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
    raw: RawDataset, *, test_fraction: float | None, valid_fraction: float, seed: int
) -> Dataset:
    """Split a data set into training, validation and test rows.

    Args:
        raw: The data set as it was read.
        test_fraction: None keeps the official test rows; if there are none, a fixed share of the rows,
            the same for every seed, is used. A number splits all rows at random with this share of test rows.
        valid_fraction: Share of the training rows to hold out for validation.
        seed: Decides the random splits.
    """
    rows, test = raw.rows, raw.test
    if test_fraction is not None:
        if test is not None:
            rows = Split(torch.cat([rows.x, test.x]), torch.cat([rows.y, test.y]))
        rows, test = _hold_out(raw.name, rows, test_fraction, seeded_generator("test", seed))
    elif test is None:
        rows, test = _hold_out(raw.name, rows, DEFAULT_TEST_FRACTION, seeded_generator("test"))
    train, valid = _hold_out(raw.name, rows, valid_fraction, seeded_generator("valid", seed))
    return Dataset(raw.name, train, valid, test, raw.labels, raw.kind, raw.alphabet)


def _hold_out(name: str, rows: Split, fraction: float, generator: torch.Generator) -> tuple[Split, Split]:
    """Return (remaining rows, random rows that are held out), both in the order of the data set."""
    count = max(1, round(len(rows) * fraction))
    if count >= len(rows):
        raise DataError(f"{name}: holding out {fraction:g} of {len(rows)} rows leaves none to train on")
    order = torch.randperm(len(rows), generator=generator)
    return rows.take(order[count:].sort().values), rows.take(order[:count].sort().values)
