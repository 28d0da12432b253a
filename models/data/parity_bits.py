"""Parity of K random bits: the problem a net can only solve through depth or memory, drawn without end."""

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
    """Training rows are drawn afresh for each epoch, so there is nothing to learn by heart."""

    rows_per_epoch: int = 20_000

    def epoch(self, seed: int, epoch: int) -> Split:
        return draw_rows(self.inputs[0], self.rows_per_epoch, "train", seed, epoch)


def parse_parity_name(source: str) -> int | None:
    """K of the name parity-K; None for any other name."""
    match = re.fullmatch(r"parity-(\d{1,9})", source, re.ASCII)
    if match is None:
        return None
    bits = int(match[1])
    if not 2 <= bits <= MAX_BITS:
        raise DataError(f"{source}: expected 2 to {MAX_BITS} bits, got {bits}")
    return bits


def read_parity(bits: int) -> ParityDataset:
    """Validation and test rows never change; `train` is one epoch's worth, for those who want to look."""
    return ParityDataset(
        name=f"parity-{bits}",
        train=draw_rows(bits, ParityDataset.rows_per_epoch, "train"),
        valid=draw_rows(bits, VALID_ROWS, "valid"),
        test=draw_rows(bits, TEST_ROWS, "test"),
        labels=("even", "odd"),
        kind="numbers",
    )


def draw_rows(bits: int, rows: int, *key: object) -> Split:
    """Random rows x (rows, bits) of 0 and 1, and y, their sum modulo 2; the key alone decides them."""
    x = torch.randint(0, 2, (rows, bits), generator=seeded_generator("parity", *key))
    return Split(x.float(), x.sum(1) % 2)
