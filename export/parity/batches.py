"""The dimensions of a network's inputs: which of them is the batch, and what size the others have."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from export.input_spec import InputSpec
from export.parity.input_domains import InputDomain
from export.source import Array, Rows, Source
from export.trace.trace import TRACING_SIZES
from service.artifact import manifest

# sizes of the other dimensions, where the network does not take those it was traced with
FALLBACK_SIZES = (8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class DimensionSizes:
    """The named dimensions of a network's inputs: which is the batch, and what size each ordinarily has."""

    inputs: tuple[InputSpec, ...]
    batch: str | None
    sizes: dict[str, int]

    def at(self, rows: int, **sizes: int) -> dict[str, int]:
        """A size for every name."""
        return self.sizes | sizes | ({} if self.batch is None else {self.batch: rows})

    def axis(self, one: InputSpec) -> int | None:
        """The axis of an input along which its rows lie; where no size is free, the first axis."""
        if self.batch is not None:
            return one.dims.index(self.batch) if self.batch in one.dims else None
        return 0 if one.dims and one.dims[:1] == self.inputs[0].dims[:1] else None

    def fixed_rows(self) -> int | None:
        """How many rows every batch has, where the network takes no other number of them."""
        if self.batch is not None:
            return None
        first = self.inputs[0].dims[0] if self.inputs[0].dims else 1
        return first if isinstance(first, int) else None

    def others(self) -> list[DimensionSizes]:
        """The same with other sizes, for a network that does not take these."""
        free = [dim for dim in self.sizes if dim != self.batch]
        return [
            replace(self, sizes=self.sizes | dict.fromkeys(free, size)) for size in FALLBACK_SIZES if free
        ]


def choose_sizes(source: Source) -> DimensionSizes:
    """The first dynamic dimension of the first input is the batch; others are as in rows, or as traced."""
    names = list(dict.fromkeys(dim for one in source.inputs for dim in one.dims if isinstance(dim, str)))
    batch = next((dim for dim in source.inputs[0].dims if isinstance(dim, str)), None)
    sizes = dict(zip(names, TRACING_SIZES, strict=False))
    rows = {} if source.rows is None else source.rows.inputs
    for one in source.inputs:
        array = rows.get(one.name)
        if array is not None and array.ndim == len(one.dims):
            found = zip(one.dims, array.shape, strict=True)
            sizes |= {dim: size for dim, size in found if isinstance(dim, str)}
    return DimensionSizes(source.inputs, batch, sizes)


ROW_COUNTS = (1, 2, 7, 64)
# rows of the batches whose size is not what they are about, and the most in which layers are looked at
FEW_ROWS = 3
MAX_SMALL_ROWS = 7
EXTRA_SIZES = (1, 2, 5, 12, 33)
# batches that are looked at in ways of their own
LARGE_VALUES, ONE_NAN = "large", "one NaN"
REAL_ROWS = "real rows"
LARGE_FACTOR = 1e4
# far below the smallest normal number of fp32, 2^-126
DENORMAL = 2.0**-135


@dataclass(frozen=True)
class ProofBatch:
    """Arrays by the names of the inputs, with the axis of each along which its rows lie.

    `ordinary` batches are like data; the others strain the arithmetic. All `shared` ones begin with the
    same rows. A `strided` one reaches PyTorch in memory that is not contiguous. In `small` ones gates and
    layers are looked at too, in the others the outputs alone.
    """

    name: str
    rows: int
    arrays: dict[str, Array]
    axes: dict[str, int | None]
    ordinary: bool = True
    shared: bool = False
    strided: bool = False
    small: bool = True

    def part(self, start: int, stop: int) -> ProofBatch:
        """Some of its rows."""
        arrays = {
            name: array if (axis := self.axes[name]) is None else array.take(range(start, stop), axis=axis)
            for name, array in self.arrays.items()
        }
        return replace(self, rows=stop - start, arrays=arrays)

    def shaken(self, share: float) -> ProofBatch:
        """The same with every number moved at random by up to a share of itself, in float64."""
        rng = np.random.default_rng(0)
        return replace(
            self,
            arrays={
                name: array
                if array.dtype.kind != "f"
                else array * (1 + share * rng.uniform(-1, 1, array.shape))
                for name, array in self.arrays.items()
            },
        )

    def record(self) -> manifest.ParityBatch:
        """What the manifest keeps: the digest is that of names, types, shapes and bytes."""
        digest = hashlib.sha256()
        for name, array in self.arrays.items():
            digest.update(f"{name}:{array.dtype}{list(array.shape)}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return manifest.ParityBatch(name=self.name, rows=self.rows, digest=digest.hexdigest())


class BatchGenerator:
    """Draws batches for one network; the same seed always draws the same."""

    def __init__(
        self, layout: DimensionSizes, domains: dict[str, InputDomain], seed: int, max_rows: int
    ) -> None:
        self.layout = layout
        self.domains = domains
        self.seed = seed
        # a batch of fixed size is the only one there is
        fixed = layout.fixed_rows()
        self.row_counts = [fixed] if fixed else sorted({*(n for n in ROW_COUNTS if n <= max_rows), max_rows})
        self.few = fixed or min(FEW_ROWS, max_rows)
        self._axes = {one.name: layout.axis(one) for one in layout.inputs}
        self._most = self._draw("rows", self.row_counts[-1])

    def all(self, rows: Rows | None) -> list[ProofBatch]:
        """Every batch, the ordinary ones first."""
        return [*self.nested(), *self.ordinary(rows), *self.stress()]

    def drawn(self) -> Rows:
        """As many rows as one batch may have."""
        return Rows(dict(self._most))

    def probe(self) -> ProofBatch:
        """A batch that shows whether the network takes what is drawn for it: both ends of every range."""
        return self._batch("probe", self._ends())

    def nested(self) -> list[ProofBatch]:
        """One draw of rows, as batches of several sizes that all begin with the same rows."""
        most = self._batch("", self._most)
        small = [n for n in self.row_counts if n <= MAX_SMALL_ROWS] or self.row_counts
        large = sorted(set(self.row_counts) - set(small), reverse=True)
        return [
            replace(most.part(0, n), name=f"{n} row{'s' if n > 1 else ''}", shared=True, small=n in small)
            for n in (*small, *large)
        ]

    def ordinary(self, rows: Rows | None) -> list[ProofBatch]:
        """Other numbers, other neighbours, other memory, other sizes, and real rows where there are any."""
        made = [
            replace(self._batch("neighbours", self._neighbours()), shared=True),
            replace(self._batch("strided", self._draw("strided", self.few)), strided=True),
        ]
        if any(self._is_integer(one) for one in self.layout.inputs):
            made.append(self._batch("ends of the range", self._ends()))
        for dim in self.layout.sizes:
            if dim != self.layout.batch:
                usual = self.layout.sizes[dim]
                for size in sorted({*EXTRA_SIZES, usual - 1, usual + 1} - {0, usual}):
                    name = f"{dim}={size}"
                    made.append(self._batch(name, self._draw(name, min(2, self.few), **{dim: size})))
        if rows is not None and len(rows) >= (self.layout.fixed_rows() or 1):
            real = self._batch(REAL_ROWS, {one.name: rows.inputs[one.name] for one in self.layout.inputs})
            most = real.part(0, min(real.rows, self.row_counts[-1]))
            made.append(replace(most.part(0, min(most.rows, self.few)), name=f"first {REAL_ROWS}"))
            if most.rows > self.few:
                made.append(replace(most, small=False))
        return made

    def stress(self) -> list[ProofBatch]:
        """Zeros, great and tiny numbers, and one cell that is no number."""
        few = self._draw("stress", self.few)
        made = [self._batch("zeros", {name: np.zeros_like(array) for name, array in few.items()})]
        floats = [one.name for one in self.layout.inputs if np.dtype(one.dtype).kind == "f"]
        if floats:
            made += [
                self._batch(LARGE_VALUES, _changed(few, floats, lambda a: a * LARGE_FACTOR)),
                self._batch("denormal", _changed(few, floats, _denormal)),
                self._batch(ONE_NAN, self._with(few, floats[0], np.nan)),
                self._batch("one Inf", self._with(few, floats[0], np.inf)),
            ]
        return [replace(batch, ordinary=False) for batch in made]

    def _with(self, arrays: dict[str, Array], name: str, value: float) -> dict[str, Array]:
        """In the second row, where there is one, so that the first shows whether it is reached."""
        changed = arrays[name].copy()
        place = [size // 2 for size in changed.shape]
        if (axis := self._axes[name]) is not None:
            place[axis] = min(1, changed.shape[axis] - 1)
        changed[tuple(place)] = value
        return arrays | {name: changed}

    def _neighbours(self) -> dict[str, Array]:
        """The first row of the nested batches among other rows."""
        other = self._draw("neighbours", self.few)
        for one in self.layout.inputs:
            axis = 0 if self.layout.batch is None else self.layout.axis(one)
            if axis is not None and one.dims:
                np.moveaxis(other[one.name], axis, 0)[0] = np.moveaxis(self._most[one.name], axis, 0)[0]
            else:
                other[one.name] = self._most[one.name]
        return other

    def _ends(self) -> dict[str, Array]:
        """The least and the greatest ids in turn."""
        made = self._draw("ends", self.few)
        for one in self.layout.inputs:
            if self._is_integer(one):
                flat = made[one.name].reshape(-1)
                flat[0::2], flat[1::2] = self.domains[one.name].low, self.domains[one.name].high
        return made

    def _draw(self, name: str, rows: int, **sizes: int) -> dict[str, Array]:
        rng = np.random.default_rng([self.seed, *name.encode()])
        at = self.layout.at(rows, **sizes)
        return {one.name: self.domains[one.name].draw(one, at, rng) for one in self.layout.inputs}

    def _batch(self, name: str, arrays: dict[str, Array]) -> ProofBatch:
        along = ((arrays[one], axis) for one, axis in self._axes.items() if axis is not None)
        rows = next((array.shape[axis] for array, axis in along), self.row_counts[0])
        return ProofBatch(name, rows, arrays, self._axes)

    @staticmethod
    def _is_integer(one: InputSpec) -> bool:
        return np.dtype(one.dtype).kind in "iu"


def _changed(
    arrays: dict[str, Array], names: list[str], change: Callable[[Array], Array]
) -> dict[str, Array]:
    with np.errstate(over="ignore", under="ignore"):
        return arrays | {name: change(arrays[name]).astype(arrays[name].dtype) for name in names}


def _denormal(array: Array) -> Array:
    return np.sign(array) * DENORMAL * (1 + np.abs(array) / 4)
