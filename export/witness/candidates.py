"""Inputs that may show a difference: random ones, numbers of the graph in cells, scales and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from turnpike.export.network import Array, Rows
from turnpike.export.parity.batches import ONE_INF, ONE_NAN, REAL_ROWS, BatchGenerator, ProofBatch

# numbers of the graph that are tried
MAX_NUMBERS = 24
# cells of a row that a number is put into; of a larger row, as many random ones
MAX_EDITED_CELLS = 256
# ids of a range that are all tried; of a larger one, the graph's numbers, powers of two and random ones
MAX_IDS = 300
# numbers of rows and other sizes that are all tried; larger ones only if the graph has them
ROW_COUNTS, OTHER_SIZES = range(1, 131), range(1, 41)
MAX_SIZE = 4096
# the description of rows, and of the batches of which the second row is special
RANDOM, SPECIAL_CELLS = "random numbers", frozenset((ONE_NAN, ONE_INF))
# powers of ten by which rows are multiplied: float32 goes from 1e-45 to 3e38
DECADES = range(-38, 38)
# cells of an input, which bound memory
MAX_CELLS = 2**20


@dataclass(frozen=True)
class Edit:
    """A value for one cell of a row, or for the whole row if `cell` is None."""

    name: str
    cell: int | None
    value: float

    def describe(self, shape: Sequence[int]) -> str:
        """For a person; `shape` is that of a row."""
        if self.cell is None or not shape:
            return f"{self.name} is {self.value:.9g}"
        index = ", ".join(str(index) for index in np.unravel_index(self.cell, tuple(shape)))
        return f"cell ({index}) of the row of {self.name} is {self.value:.9g}"


class Candidates:
    """Makes batches of candidates for one network.

    Args:
        generator: Draws numbers that the network accepts.
        data: The user's rows.
        numbers: The literals of the graph, suspicious ones first.
        seed: Of the random numbers.
        max_rows: Rows of a batch, unless the number of rows is itself what is tried.
    """

    def __init__(
        self,
        generator: BatchGenerator,
        data: Rows | None,
        numbers: Sequence[float],
        seed: int,
        max_rows: int,
    ) -> None:
        self._sizes, self._domains = generator.sizes, generator.domains
        self._generator, self._data = generator, data
        self._template = generator.probe()
        self._numbers = numbers[:MAX_NUMBERS]
        self._rng = np.random.default_rng([seed, 1])
        self.fixed_rows = self._sizes.fixed_rows()
        self.axes = self._template.axes
        self._row_cells = max(
            1, *(int(np.prod(spec.shape(**self._sizes.with_rows(1)))) for spec in self._sizes.inputs)
        )
        self.max_rows = self.fixed_rows or max(1, min(max_rows, MAX_CELLS // self._row_cells))

    def tame(self) -> Iterator[ProofBatch]:
        """Batches like data, which parity is proved on."""
        for batch in (*self._generator.nested(), *self._generator.ordinary(self._data)):
            if batch.rows <= self.max_rows:
                name = batch.name if REAL_ROWS in batch.name else RANDOM
                yield replace(batch, name=name, compare_layers=True)

    def stress(self) -> Iterator[ProofBatch]:
        """Zeros, numbers at the ends of what float32 holds, infinities."""
        for batch in self._generator.stress():
            if batch.compared and batch.rows <= self.max_rows:
                names = batch.row_names
                if batch.name in SPECIAL_CELLS:
                    names = tuple(batch.name if row == 1 else RANDOM for row in range(batch.rows))
                yield replace(batch, row_names=names)

    def edited(self, largest: float = np.inf) -> Iterator[ProofBatch]:
        """Rows with a special number in one cell, or in all cells; of floats, up to the largest."""
        for edits, is_safe in ((self._edits(largest), True), (self._unsafe_edits(), False)):
            remaining = iter(edits)
            # a number that the network refuses makes it refuse the other rows, too
            while chunk := list(islice(remaining, self.max_rows if is_safe else 1)):
                yield self._with_edits(chunk)

    def scaled(self) -> Iterator[ProofBatch]:
        """Ordinary rows times powers of ten."""
        names = [spec.name for spec in self._sizes.inputs if np.dtype(spec.dtype).kind == "f"]
        factors = np.float64(10) ** np.array(sorted(DECADES, key=abs))
        for start in range(0, len(factors) if names else 0, self.max_rows):
            part = np.resize(factors[start : start + self.max_rows], self.max_rows)
            arrays = self.draw(len(part))
            for name in names:
                arrays[name] = scale_rows(arrays[name], part, self.axes[name])
            names_of_rows = tuple(f"{RANDOM} times {factor:.0e}" for factor in part)
            yield replace(self.batch("powers of ten", arrays), row_names=names_of_rows)

    def sizes_of_graph(self) -> Iterator[ProofBatch]:
        """The sizes that the graph has a number for."""
        whole = [int(number) for number in self._numbers if float(number).is_integer()]
        near = [size for number in whole for size in (number, number + 1, number - 1)]
        sizes = [size for size in dict.fromkeys(near) if 1 <= size <= MAX_SIZE]
        return self._of_sizes(sizes, sizes)

    def small_sizes(self) -> Iterator[ProofBatch]:
        """Every small number of rows, and every small size of other dimensions."""
        return self._of_sizes(ROW_COUNTS, OTHER_SIZES)

    def _of_sizes(self, row_counts: Iterable[int], others: Iterable[int]) -> Iterator[ProofBatch]:
        if self._sizes.batch is not None:
            for rows in row_counts:
                if rows * self._row_cells <= MAX_CELLS:
                    yield self.batch(RANDOM, self.draw(rows))
        for dim, usual in self._sizes.sizes.items():
            if dim != self._sizes.batch:
                rows = min(2, self.max_rows)
                for size in others:
                    if rows * self._row_cells // usual * size <= MAX_CELLS:
                        yield self.batch(f"{dim} is {size}", self.draw(rows, **{dim: size}))

    def draw(self, rows: int, **sizes: int) -> dict[str, Array]:
        """Random arrays for every input."""
        all_sizes = self._sizes.with_rows(rows, **sizes)
        return {
            spec.name: self._domains[spec.name].draw(spec, all_sizes, self._rng)
            for spec in self._sizes.inputs
        }

    def batch(self, name: str, arrays: dict[str, Array]) -> ProofBatch:
        """A batch of these arrays, moved into the limits that the user gave."""
        arrays = {key: self._domains[key].clip(array) for key, array in arrays.items()}
        rows = next(
            (array.shape[axis] for key, array in arrays.items() if (axis := self.axes[key]) is not None), 1
        )
        return replace(
            self._template, name=name, rows=rows, arrays=arrays, ordinary=False, compare_layers=True
        )

    # ---- special numbers

    def _edits(self, largest: float) -> Iterator[Edit]:
        """Numbers that the network should accept, the most suspicious first."""
        for is_single in (False, True):
            for spec in self._sizes.inputs:
                kind, domain = np.dtype(spec.dtype).kind, self._domains[spec.name]
                if kind == "f":
                    values = [value for value in self._float_values() if abs(value) <= largest]
                elif kind == "b":
                    values = [0, 1]
                else:
                    values = [value for value in self._ids(spec.name) if domain.low <= value <= domain.high]
                cells = self._cells(spec.name) if is_single else [None]
                yield from (Edit(spec.name, cell, value) for value in values for cell in cells)

    def _unsafe_edits(self) -> Iterator[Edit]:
        """Ids beyond those of a table, which a network accepts that computes an index from its ids."""
        for spec in self._sizes.inputs:
            domain = self._domains[spec.name]
            if np.dtype(spec.dtype).kind in "iu" and domain.limits is None:
                info = np.iinfo(spec.dtype)
                for value in self._ids(spec.name):
                    if info.min <= value <= info.max and not domain.low <= value <= domain.high:
                        yield Edit(spec.name, None, value)

    def _float_values(self) -> list[float]:
        exact = [number for literal in self._numbers for number in (literal, -literal)]
        with np.errstate(over="ignore"):
            neighbors = [
                float(value)
                for literal in np.array(self._numbers, np.float32)
                for value in (
                    np.nextafter(literal, np.float32(np.inf)),
                    np.nextafter(literal, np.float32(-np.inf)),
                    literal + 1,
                    literal - 1,
                )
            ]
        return [value for value in dict.fromkeys((*exact, *neighbors)) if np.isfinite(value)]

    def _ids(self, name: str) -> list[int]:
        """The graph's numbers and those beside them, all of a small range, and the ends of types."""
        domain = self._domains[name]
        whole = [int(number) for number in self._numbers if float(number).is_integer()]
        near = [value for number in whole for value in (number, number + 1, number - 1, -number)]
        powers = [
            sign * 2**bits + step
            for bits in (7, 8, 15, 16, 24, 31)
            for sign in (1, -1)
            for step in (0, -1, 1)
        ]
        span = domain.high - domain.low
        ids = (
            range(domain.low, domain.high + 1)
            if span <= MAX_IDS
            else self._rng.integers(domain.low, domain.high, MAX_IDS, endpoint=True).tolist()
        )
        return list(dict.fromkeys((*near, *ids, domain.low, domain.high, *powers, *range(MAX_IDS))))

    def _cells(self, name: str) -> list[int]:
        """The cells of one row, or some of them."""
        count = int(np.prod(self._row_shape(name)))
        if count <= MAX_EDITED_CELLS:
            return list(range(count))
        return [int(cell) for cell in self._rng.choice(count, MAX_EDITED_CELLS, replace=False)]

    def _with_edits(self, edits: Sequence[Edit]) -> ProofBatch:
        """Random rows, one for each edit."""
        arrays = self.draw(self.fixed_rows or len(edits))
        for row, edit in enumerate(edits):
            put(arrays[edit.name], self.axes[edit.name], row, edit)
        count = self.fixed_rows or len(edits)
        names = [edit.describe(self._row_shape(edit.name)) for edit in edits]
        names += [RANDOM] * (count - len(edits))
        return replace(self.batch("numbers of the graph", arrays), row_names=tuple(names))

    def _row_shape(self, name: str) -> list[int]:
        """The shape of one row of an input."""
        (spec,) = (spec for spec in self._sizes.inputs if spec.name == name)
        shape, axis = list(spec.shape(**self._sizes.with_rows(1))), self.axes[name]
        return shape if axis is None else shape[:axis] + shape[axis + 1 :]


def put(array: Array, axis: int | None, row: int, edit: Edit) -> None:
    """Change one row of an array, in place; an input without rows as a whole."""
    view = array if axis is None else np.moveaxis(array, axis, 0)[row : row + 1]
    with np.errstate(over="ignore"):
        value = np.array(edit.value).astype(array.dtype)
    if edit.cell is None:
        view[...] = value
    else:
        view.flat[edit.cell] = value


def scale_rows(array: Array, factors: Array, axis: int | None) -> Array:
    """Multiply each row by a factor; an input without rows by the first one."""
    shape = [len(factors) if index == axis else 1 for index in range(array.ndim)]
    scale = factors[0] if axis is None else factors.reshape(shape)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        largest = np.finfo(array.dtype).max
        return np.asarray((array.astype(np.float64) * scale).clip(-largest, largest)).astype(array.dtype)
