"""The parity of K random bits: a task without limit on rows, which needs depth or memory to solve."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from models.data.dataset import Dataset, Split, seeded_generator
from models.errors import DataError

MAX_BITS = 1024
VALID_ROWS = 5_000
TEST_ROWS = 10_000


@dataclass(frozen=True)
class ParityDataset(Dataset):
    """Parity of K bits. Every epoch has new training rows, so a network cannot memorize them."""

    rows_per_epoch: int = 20_000

    def training_rows(self, seed: int, epoch: int) -> Split:
        return draw_rows(self.inputs[0], self.rows_per_epoch, "train", seed, epoch)


def parse_parity_name(name: str) -> int | None:
    """Return K for the name parity-K, and None for any other name."""
    match = re.fullmatch(r"parity-(\d{1,9})", name, re.ASCII)
    if match is None:
        return None
    bits = int(match[1])
    if not 2 <= bits <= MAX_BITS:
        raise DataError(f"{name}: expected 2 to {MAX_BITS} bits, got {bits}")
    return bits


def read_parity(bits: int) -> ParityDataset:
    """Return the data set: fixed validation and test rows, and the rows of one epoch as `train`."""
    return ParityDataset(
        name=f"parity-{bits}",
        train=draw_rows(bits, ParityDataset.rows_per_epoch, "train"),
        valid=draw_rows(bits, VALID_ROWS, "valid"),
        test=draw_rows(bits, TEST_ROWS, "test"),
        labels=("even", "odd"),
        kind="numbers",
    )


def draw_rows(bits: int, rows: int, *key: object) -> Split:
    """Return random rows x (rows, bits) of 0 and 1, and y, their sum modulo 2; the key is the seed."""
    x = torch.randint(0, 2, (rows, bits), generator=seeded_generator("parity", *key))
    return Split(x.float(), x.sum(1) % 2)
