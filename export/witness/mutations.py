"""Random changes of a row, from which a search goes on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnpike.export.network import Array
from turnpike.export.parity.batches import ProofBatch
from turnpike.export.witness.candidates import Candidates

# the farthest that a change scales numbers, in powers of ten
MAX_DECADES = 3.0
# the smallest change, relative to a row's own numbers
MIN_STEP = 1e-6


def mutated(
    row: ProofBatch,
    other: ProofBatch,
    rows: int,
    numbers: Sequence[float],
    candidates: Candidates,
    rng: np.random.Generator,
) -> dict[str, Array]:
    """As many changed copies of a row, one of which is not changed at all.

    Args:
        row: A batch of one row.
        other: Another one, which some copies take cells from if it has the same sizes.
        rows: The number of copies.
        numbers: Values that cells may get.
        candidates: Draws other ids.
        rng: Random numbers.
    """
    drawn = candidates.draw(rows)
    return {
        name: _mutated(array, other.arrays[name], drawn[name], row.axes[name], rows, numbers, rng)
        for name, array in row.arrays.items()
    }


def _mutated(
    array: Array,
    other: Array,
    drawn: Array,
    axis: int | None,
    rows: int,
    numbers: Sequence[float],
    rng: np.random.Generator,
) -> Array:
    if axis is None:
        return array
    copies = np.repeat(np.moveaxis(array, axis, 0), rows, axis=0)
    others = np.moveaxis(other, axis, 0) if other.shape == array.shape else copies[:1]
    fresh = np.moveaxis(drawn, axis, 0)
    with np.errstate(all="ignore"):
        for index in range(1, rows):
            # few cells, or all
            mask = rng.random(copies.shape[1:]) < rng.choice((1.0, 0.3, 1.0 / max(1, copies[0].size)))
            changed = _changed(copies[index], others[0], fresh[index], numbers, rng)
            copies[index] = np.where(mask, changed, copies[index])
    return np.moveaxis(copies, 0, axis)


def _changed(
    row: Array, other: Array, drawn: Array, numbers: Sequence[float], rng: np.random.Generator
) -> Array:
    if drawn.shape != row.shape:
        drawn = row
    kind = int(rng.integers(6))
    if kind == 0:
        return other
    if kind == 1 or row.dtype.kind != "f":
        return drawn
    if kind == 2:
        return np.asarray(row * 10 ** rng.uniform(-MAX_DECADES, MAX_DECADES)).astype(row.dtype)
    if kind == 3 and numbers:
        return np.full_like(row, np.array(rng.choice(numbers)).astype(row.dtype))
    if kind == 4:
        return -row
    size = np.abs(row).max(initial=0.0) or 1.0
    step = size * 10 ** rng.uniform(np.log10(MIN_STEP), 0)
    return np.asarray(row + step * rng.standard_normal(row.shape)).astype(row.dtype)
