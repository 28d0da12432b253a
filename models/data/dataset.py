"""Rows and their classes, divided into what is trained on, what is chosen by and what is tested on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from models.errors import DataError

RowKind = Literal["image", "text", "numbers"]

DEFAULT_TEST_FRACTION = 0.2  # of data that comes without a split of its own


@dataclass(frozen=True)
class Split:
    """Rows and their classes.

    Shapes: x (rows, *shape), as the data has it: uint8, float32 or int64, not scaled; y (rows,) int64.
    """

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Tensor) -> Split:
        """Some of the rows, by their numbers."""
        return Split(self.x[rows], self.y[rows])


@dataclass(frozen=True)
class RawDataset:
    """What a reader found, before it is divided; `test` holds the official test rows where there are some."""

    name: str
    rows: Split
    test: Split | None
    labels: tuple[str, ...]
    kind: RowKind
    alphabet: str = ""


@dataclass(frozen=True)
class Dataset:
    """Data ready to train on.

    `valid` is held out of the training rows: the best checkpoint is chosen by it. `test` is looked at
    once, at the end. In text, id i stands for alphabet[i], and id 0 is padding.
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
        """The shape of one row."""
        return tuple(self.train.x.shape[1:])

    @property
    def classes(self) -> int:
        return len(self.labels)

    @cached_property
    def digest(self) -> str:
        """What tells these rows from others, in all three parts."""
        sha = hashlib.sha256()
        parts = (self.train, self.valid, self.test)
        for tensor in (tensor for part in parts for tensor in (part.x, part.y)):
            sha.update(str((tuple(tensor.shape), tensor.dtype)).encode())
            sha.update(tensor.contiguous().numpy().data)
        return sha.hexdigest()

    def epoch(self, seed: int, epoch: int) -> Split:
        """The training rows of one epoch: always the same ones, unless the data is drawn afresh."""
        return self.train


def seeded_generator(*key: object) -> torch.Generator:
    """Random numbers that depend on the key alone; keys that differ share no stream, as seed + 1 might."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def split_dataset(
    source: RawDataset, *, test_fraction: float | None, valid_fraction: float, seed: int
) -> Dataset:
    """Keep the official test rows, or, given a fraction, shuffle all rows together and part them anew.

    Data that has no official test rows gets a fixed part of them, the same whatever the seed. The
    seed decides which training rows are held out for validation.
    """
    rows, test = source.rows, source.test
    if test_fraction is not None:
        if test is not None:
            rows = Split(torch.cat([rows.x, test.x]), torch.cat([rows.y, test.y]))
        rows, test = _hold_out(source.name, rows, test_fraction, seeded_generator("test", seed))
    elif test is None:
        rows, test = _hold_out(source.name, rows, DEFAULT_TEST_FRACTION, seeded_generator("test"))
    train, valid = _hold_out(source.name, rows, valid_fraction, seeded_generator("valid", seed))
    return Dataset(source.name, train, valid, test, source.labels, source.kind, source.alphabet)


def _hold_out(name: str, rows: Split, fraction: float, generator: torch.Generator) -> tuple[Split, Split]:
    """(most, held out): a random part of the rows is held out; both parts keep the order of the data."""
    held = max(1, round(len(rows) * fraction))
    if held >= len(rows):
        raise DataError(f"{name}: holding out {fraction:g} of {len(rows)} rows leaves none to train on")
    order = torch.randperm(len(rows), generator=generator)
    return rows.take(order[held:].sort().values), rows.take(order[:held].sort().values)
