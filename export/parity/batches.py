"""The batches that parity is proved on: ordinary ones of many sizes, and ones that stress the arithmetic."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from turnpike.export.input_spec import InputSpec, batch_dimension
from turnpike.export.network import Array, Network, Rows
from turnpike.export.parity.input_domains import InputDomain
from turnpike.export.trace.trace_network import TRACING_SIZES
from turnpike.service.artifact import proof_records

# sizes tried for the other dynamic dimensions if the network does not accept the sizes it was traced with
FALLBACK_SIZES = (8, 16, 32, 64, 128, 256)
# sizes that each other dynamic dimension is proved at, beside its ordinary size and that size +- 1
EXTRA_SIZES = (1, 2, 5, 12, 33)
# numbers of rows that parity is proved at, beside the service's maximum
ROW_COUNTS = (1, 2, 7, 64)
# rows of a batch that tests something other than the number of rows
FEW_ROWS = 3
# rows up to which gates and layers are compared too
MAX_SMALL_ROWS = 7

# names of batches that are treated specially
LARGE_VALUES, ONE_NAN, ONE_INF = "large", "one NaN", "one Inf"
REAL_ROWS = "real rows"
BLANKS, UNSEEN_WORDS = "blanks", "unseen words"
# by which the rows of the batch LARGE_VALUES are multiplied, one each. The moderate ones push gates to their
# ends while rounding does not decide anything yet
LARGE_FACTORS = (3.0, 10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4)
# magnitude of the values of the batch "denormal", far below the smallest normal float32, 2^-126
DENORMAL = 2.0**-135


@dataclass(frozen=True)
class DimensionSizes:
    """The named dimensions of a network's inputs: which one is the batch, and the ordinary size of each.

    `batch` is None if the network accepts only one number of rows.
    """

    inputs: tuple[InputSpec, ...]
    batch: str | None
    sizes: dict[str, int]

    def with_rows(self, rows: int, **sizes: int) -> dict[str, int]:
        """The size of every named dimension for a batch of `rows`; `sizes` replaces ordinary sizes."""
        return self.sizes | sizes | ({} if self.batch is None else {self.batch: rows})

    def row_axis(self, spec: InputSpec) -> int | None:
        """The axis of an input's rows, or None. With a fixed batch it is the first axis."""
        if self.batch is not None:
            return spec.dims.index(self.batch) if self.batch in spec.dims else None
        return 0 if spec.dims and spec.dims[:1] == self.inputs[0].dims[:1] else None

    def fixed_rows(self) -> int | None:
        """The number of rows of every batch, if the network accepts only one."""
        if self.batch is not None:
            return None
        first = self.inputs[0].dims[0] if self.inputs[0].dims else 1
        return first if isinstance(first, int) else None

    def alternatives(self) -> list[DimensionSizes]:
        """Other sizes to try, if the network does not accept these."""
        dims = [dim for dim in self.sizes if dim != self.batch]
        return [
            replace(self, sizes=self.sizes | dict.fromkeys(dims, size)) for size in FALLBACK_SIZES if dims
        ]


def choose_sizes(network: Network) -> DimensionSizes:
    """Ordinary sizes: those of the data rows if there are any, or else those used for tracing."""
    names = list(dict.fromkeys(dim for spec in network.inputs for dim in spec.dims if isinstance(dim, str)))
    batch = batch_dimension(network.inputs)
    sizes = dict(zip(names, TRACING_SIZES, strict=False))
    rows = {} if network.rows is None else network.rows.inputs
    for spec in network.inputs:
        array = rows.get(spec.name)
        if array is not None and array.ndim == len(spec.dims):
            dims = zip(spec.dims, array.shape, strict=True)
            sizes |= {dim: size for dim, size in dims if isinstance(dim, str)}
    return DimensionSizes(network.inputs, batch, sizes)


@dataclass(frozen=True)
class ProofBatch:
    """One batch of the proof.

    Attributes:
        name: Name in the manifest and in messages.
        rows: Number of rows.
        arrays: An array for each input, by name.
        axes: The axis of the rows in each array; None if the input has none.
        ordinary: Whether the values are like data. Other batches stress the arithmetic.
        shared: Whether the first row is the same as in all other shared batches.
        strided: Whether PyTorch gets the arrays in memory that is not contiguous.
        compare_layers: Whether gates and layers are compared, or the outputs alone.
        row_names: A name for each row if the rows are judged one by one.
        usual: The root mean square of each float input in ordinary batches.
        codes: The columns of an input whose numbers stand for words.
        compared: Whether values are compared; if not, the batch shows only whether rows are mixed.
    """

    name: str
    rows: int
    arrays: dict[str, Array]
    axes: dict[str, int | None]
    ordinary: bool = True
    shared: bool = False
    strided: bool = False
    compare_layers: bool = True
    row_names: tuple[str, ...] = ()
    usual: Mapping[str, float] = field(default_factory=dict)
    codes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    compared: bool = True

    def slice_rows(self, start: int, stop: int) -> ProofBatch:
        """The rows from `start` to `stop`, without names."""
        arrays = {
            name: array if (axis := self.axes[name]) is None else array.take(range(start, stop), axis=axis)
            for name, array in self.arrays.items()
        }
        return replace(self, rows=stop - start, arrays=arrays, row_names=())

    def perturbed(self, share: float, seed: int) -> ProofBatch:
        """The batch with each number moved randomly by up to a share of its value or of its usual value.

        Numbers that stand for words stay.
        """
        rng = np.random.default_rng(seed)

        def moved(name: str, array: Array) -> Array:
            size = np.maximum(np.where(np.isfinite(array), np.abs(array), 0), self.usual.get(name, 0))
            step = share * size * rng.uniform(-1, 1, array.shape)
            if codes := self.codes.get(name):
                step[:, list(codes)] = 0.0
            return (array + step).astype(array.dtype)

        return replace(
            self,
            arrays={
                name: moved(name, array) if array.dtype.kind == "f" else array
                for name, array in self.arrays.items()
            },
        )

    def record(self) -> proof_records.ParityBatch:
        """The manifest's record of the batch, with a digest of names, types, shapes and bytes."""
        digest = hashlib.sha256()
        for name, array in self.arrays.items():
            digest.update(f"{name}:{array.dtype}{list(array.shape)}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return proof_records.ParityBatch(name=self.name, rows=self.rows, digest=digest.hexdigest())


class BatchGenerator:
    """Generates the batches for one network; the same seed always gives the same batches."""

    def __init__(
        self, sizes: DimensionSizes, domains: dict[str, InputDomain], seed: int, max_rows: int
    ) -> None:
        self.sizes = sizes
        self.domains = domains
        self.seed = seed
        fixed = sizes.fixed_rows()
        self.row_counts = [fixed] if fixed else sorted({*(n for n in ROW_COUNTS if n <= max_rows), max_rows})
        self.few_rows = fixed or min(FEW_ROWS, max_rows)
        self._usual = {
            name: float(np.sqrt(np.mean(np.square(domain.mean) + np.square(domain.sd))))
            for name, domain in domains.items()
        }
        self._axes = {spec.name: sizes.row_axis(spec) for spec in sizes.inputs}
        self._max_rows_arrays = self._draw("rows", self.row_counts[-1])

    def all(self, rows: Rows | None) -> list[ProofBatch]:
        """Every batch, ordinary ones first; `rows` are the user's data."""
        return [*self.nested(), *self.ordinary(rows), *self.stress()]

    def random_rows(self) -> Rows:
        """The rows of the largest batch."""
        return Rows(dict(self._max_rows_arrays))

    def probe(self) -> ProofBatch:
        """A batch with both ends of every range, to find out whether the network accepts them."""
        return self._batch("probe", self._range_ends())

    def nested(self) -> list[ProofBatch]:
        """Batches of several sizes that all begin with the same rows, small ones first."""
        largest = self._batch("", self._max_rows_arrays)
        small = [n for n in self.row_counts if n <= MAX_SMALL_ROWS] or self.row_counts
        large = sorted(set(self.row_counts) - set(small), reverse=True)
        return [
            replace(
                largest.slice_rows(0, n),
                name=f"{n} row{'s' if n > 1 else ''}",
                shared=True,
                compare_layers=n in small,
            )
            for n in (*small, *large)
        ]

    def ordinary(self, rows: Rows | None) -> list[ProofBatch]:
        """Batches with other neighbors, strided memory, range ends, blanks, other sizes, and real rows."""
        batches = [
            replace(self._batch("neighbours", self._other_neighbors()), shared=True),
            replace(self._batch("strided", self._draw("strided", self.few_rows)), strided=True),
        ]
        if any(self._is_integer(spec) for spec in self.sizes.inputs):
            batches.append(self._batch("ends of the range", self._range_ends()))
        if any(column.blanks for domain in self.domains.values() for column in domain.columns):
            blank = {
                name: self.domains[name].with_blanks(array)
                for name, array in self._draw(BLANKS, self.few_rows).items()
            }
            batches.append(self._batch(BLANKS, blank))
        if any(domain.codes for domain in self.domains.values()):
            unseen = {
                name: self.domains[name].with_unseen_words(array)
                for name, array in self._draw(UNSEEN_WORDS, self.few_rows).items()
            }
            batches.append(self._batch(UNSEEN_WORDS, unseen))
        for dim, usual in self.sizes.sizes.items():
            if dim != self.sizes.batch:
                for size in sorted({*EXTRA_SIZES, usual - 1, usual + 1} - {0, usual}):
                    name = f"{dim}={size}"
                    arrays = self._draw(name, min(2, self.few_rows), **{dim: size})
                    batches.append(self._batch(name, arrays))
        if rows is not None and len(rows) >= (self.sizes.fixed_rows() or 1):
            real = self._batch(REAL_ROWS, {spec.name: rows.inputs[spec.name] for spec in self.sizes.inputs})
            real = real.slice_rows(0, min(real.rows, self.row_counts[-1]))
            few = real.slice_rows(0, min(real.rows, self.few_rows))
            batches.append(replace(few, name=f"first {REAL_ROWS}"))
            if real.rows > self.few_rows:
                batches.append(replace(real, compare_layers=False))
        return batches

    def stress(self) -> list[ProofBatch]:
        """Zeros, very large and very small numbers, and one cell that is NaN or infinite.

        If an input has limits, numbers outside are moved to the nearest limit. There is no infinity, and
        values are not compared beside a NaN.
        """
        few = self._draw("stress", self.few_rows)
        batches = [self._batch("zeros", {name: np.zeros_like(array) for name, array in few.items()})]
        float_inputs = [spec.name for spec in self.sizes.inputs if np.dtype(spec.dtype).kind == "f"]
        if float_inputs:
            first = float_inputs[0]
            unlimited = all(domain.limits is None for domain in self.domains.values())
            one_nan = self._batch(ONE_NAN, self._with_one_cell(few, first, np.nan))
            batches += [
                *self._large(float_inputs),
                self._batch("denormal", _apply(few, float_inputs, _denormal)),
                replace(one_nan, compared=unlimited),
            ]
            if unlimited:
                batches.append(self._batch(ONE_INF, self._with_one_cell(few, first, np.inf)))
        return [replace(batch, ordinary=False) for batch in batches]

    def _large(self, float_inputs: list[str]) -> list[ProofBatch]:
        """Rows times `LARGE_FACTORS`, in as few batches as the network's number of rows allows."""
        rows = min(len(LARGE_FACTORS), self.row_counts[-1])
        batches = []
        for start in range(0, len(LARGE_FACTORS), rows):
            factors = np.array((*LARGE_FACTORS, *(LARGE_FACTORS[-1:] * rows))[start : start + rows])
            # a fixed number of rows may be more than there are factors
            factors = np.resize(factors, self.few_rows if self.sizes.fixed_rows() else rows)
            names = tuple(f"{LARGE_VALUES} x{factor:g}" for factor in factors)
            arrays = self._draw(f"{LARGE_VALUES} {start}", len(factors))
            with np.errstate(over="ignore"):
                for name in float_inputs:
                    axis, array = self._axes[name], arrays[name]
                    # an input without rows has the size of the first row
                    shape = [len(factors) if index == axis else 1 for index in range(array.ndim)]
                    scale = factors[0] if axis is None else factors.reshape(shape)
                    arrays[name] = (array * scale).astype(array.dtype)
            name = LARGE_VALUES if rows >= len(LARGE_FACTORS) else names[0]
            batches.append(replace(self._batch(name, arrays), row_names=names))
        return batches

    def _with_one_cell(self, arrays: dict[str, Array], name: str, value: float) -> dict[str, Array]:
        """Set one cell of the second row if there is one, so that the first row shows if it is affected."""
        changed = arrays[name].copy()
        index = [size // 2 for size in changed.shape]
        if (axis := self._axes[name]) is not None:
            index[axis] = min(1, changed.shape[axis] - 1)
        changed[tuple(index)] = value
        return arrays | {name: changed}

    def _other_neighbors(self) -> dict[str, Array]:
        """The first row of the nested batches among other rows."""
        arrays = self._draw("neighbours", self.few_rows)
        for spec in self.sizes.inputs:
            axis = 0 if self.sizes.batch is None else self.sizes.row_axis(spec)
            first_rows = self._max_rows_arrays[spec.name]
            if axis is not None and spec.dims:
                np.moveaxis(arrays[spec.name], axis, 0)[0] = np.moveaxis(first_rows, axis, 0)[0]
            else:
                arrays[spec.name] = first_rows
        return arrays

    def _range_ends(self) -> dict[str, Array]:
        """Integer inputs alternate between the lowest and the highest value."""
        arrays = self._draw("ends", self.few_rows)
        for spec in self.sizes.inputs:
            if self._is_integer(spec):
                flat = arrays[spec.name].reshape(-1)
                flat[0::2], flat[1::2] = self.domains[spec.name].low, self.domains[spec.name].high
        return arrays

    def _draw(self, name: str, rows: int, **sizes: int) -> dict[str, Array]:
        rng = np.random.default_rng([self.seed, *name.encode()])
        all_sizes = self.sizes.with_rows(rows, **sizes)
        return {spec.name: self.domains[spec.name].draw(spec, all_sizes, rng) for spec in self.sizes.inputs}

    def _batch(self, name: str, arrays: dict[str, Array]) -> ProofBatch:
        with_rows = ((arrays[key], axis) for key, axis in self._axes.items() if axis is not None)
        rows = next((array.shape[axis] for array, axis in with_rows), self.row_counts[0])
        arrays = {key: self.domains[key].clip(array) for key, array in arrays.items()}
        codes = {key: domain.codes for key, domain in self.domains.items()}
        return ProofBatch(name, rows, arrays, self._axes, usual=self._usual, codes=codes)

    @staticmethod
    def _is_integer(spec: InputSpec) -> bool:
        return np.dtype(spec.dtype).kind in "iu"


def _apply(
    arrays: dict[str, Array], names: list[str], function: Callable[[Array], Array]
) -> dict[str, Array]:
    with np.errstate(over="ignore", under="ignore"):
        return arrays | {name: function(arrays[name]).astype(arrays[name].dtype) for name in names}


def _denormal(array: Array) -> Array:
    return np.sign(array) * DENORMAL * (1 + np.abs(array) / 4)
