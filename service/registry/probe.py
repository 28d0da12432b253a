"""Probes a model with random rows: may requests share its runs?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turnpike.service.artifact.runtime import Runtime
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.errors import RunError
from turnpike.service.inference_types import Array

Rows = dict[str, Array]

SEED = 20_150_503
# batches of these sizes are compared with the largest one: kernels often change at small and at odd sizes
BATCH_SIZES = (2, 3, 5, 8, 17)
# rows that run one by one, and rows for which hidden outputs, which may be large, are compared as well
FEW_ROWS = 3
# Sizes for dimensions that clients choose, and ranges for whole numbers. The first that the model accepts is
# used.
LENGTHS = (8, 16, 32, 64, 128, 224)
INTEGER_RANGES = ((0, 256), (1, 64), (1, 16), (1, 4), (1, 2), (0, 1))
# differences up to this, relative to the largest value, come from adding the same numbers in another order
ROUNDING_TOLERANCE = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-9}


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What the probe found out about a model.

    Attributes:
        ran: False if the model accepted none of the rows; the other attributes then mean nothing.
        coupled: The output of a row depends on the other rows of its batch.
        bit_stable: The output of a row has the same bits in all batches of two and more rows.
        single_row_differs: A row that runs alone gets other bits than in a batch.
        splittable: The outputs that can be cut along axis 0 into equal parts, one for each row.
        distribution: True if the first public output has class probabilities, False for logits, None for
            neither.
    """

    ran: bool
    coupled: bool = False
    bit_stable: bool = False
    single_row_differs: bool = False
    splittable: frozenset[str] = frozenset()
    distribution: bool | None = None


def probe(runtime: Runtime, batch: str | None, max_rows: int) -> ProbeResult:
    """Run random rows alone and in batches of up to `max_rows`, and compare. This also warms up the model."""
    row_sets = list(find_rows(runtime, batch, max(max_rows, *BATCH_SIZES)))
    if not row_sets:
        return ProbeResult(ran=False)
    public = [tensor.name for tensor in runtime.outputs]
    # a model with a fixed number of rows takes all of them
    few_rows = row_sets[0] if batch is None else _slice(row_sets[0], 0, FEW_ROWS)
    distribution = _is_distribution(runtime.run(few_rows, public)[0]) if public else None
    if batch is None:
        return ProbeResult(ran=True, distribution=distribution)

    # Do the outputs consist of rows, and do these stay the same up to rounding?
    splittable, coupled = _splittable(runtime, row_sets[0], batch)

    # Do they stay the same to the last bit? Public outputs at all sizes, all outputs at a few.
    names = [name for name in public if name in splittable]
    bit_stable, single_row_differs = True, False
    for rows in row_sets:
        same_alone, same_in_batches = _compare_bits(runtime, rows, names, max_rows)
        bit_stable = bit_stable and same_in_batches
        single_row_differs = single_row_differs or not same_alone
    every = [tensor.name for tensor in (*runtime.outputs, *runtime.hidden) if tensor.name in splittable]
    same_alone, same_in_batches = _compare_bits(runtime, row_sets[0], every, FEW_ROWS)
    return ProbeResult(
        ran=True,
        coupled=coupled,
        bit_stable=bit_stable and same_in_batches,
        single_row_differs=single_row_differs or not same_alone,
        splittable=splittable,
        distribution=distribution,
    )


def find_rows(runtime: Runtime, batch: str | None, count: int) -> Iterator[Rows]:
    """Yield `count` random rows that the model accepts; if their length may vary, also rows of length 1."""
    has_lengths = any(
        isinstance(dim, str) and dim != batch for tensor in runtime.inputs for dim in tensor.dims
    )
    lengths = LENGTHS if has_lengths else LENGTHS[:1]
    accepted = next(_accepted_rows(runtime, batch, count, lengths), None)
    if accepted is not None:
        yield accepted
        if has_lengths:
            yield from _accepted_rows(runtime, batch, count, (1,))


def _accepted_rows(runtime: Runtime, batch: str | None, count: int, lengths: Sequence[int]) -> Iterator[Rows]:
    """For each length, the first rows that the model runs on."""
    for length in lengths:
        for integer_range in INTEGER_RANGES:
            rows = random_rows(runtime.inputs, batch, count, length, integer_range)
            try:
                runtime.run(rows)
            except RunError:
                continue
            yield rows
            break


def random_rows(
    inputs: Sequence[Tensor], batch: str | None, count: int, length: int, integer_range: tuple[int, int]
) -> Rows:
    """The same random rows at each call: normally distributed numbers, coin flips, or whole numbers.

    Args:
        inputs: The model's inputs.
        batch: The name of the batch dimension, which gets `count` rows.
        count: The number of rows.
        length: The size of every other named dimension.
        integer_range: The lowest whole number, and the one after the highest.
    """
    random = np.random.default_rng(SEED)
    rows: Rows = {}
    for tensor in inputs:
        shape = [count if dim == batch else length if isinstance(dim, str) else dim for dim in tensor.dims]
        dtype = np.dtype(tensor.dtype)
        if dtype.kind == "f":
            rows[tensor.name] = random.normal(size=shape).astype(dtype)
        elif dtype.kind == "b":
            rows[tensor.name] = random.random(size=shape) < 0.5
        else:
            low, high = integer_range
            high = min(high, int(np.iinfo(dtype).max))
            rows[tensor.name] = random.integers(low, high, size=shape).astype(dtype)
    return rows


def _splittable(runtime: Runtime, rows: Rows, batch: str) -> tuple[frozenset[str], bool]:
    """The outputs that can be cut into rows, and whether a row of one of them depends on the other rows."""
    names = [tensor.name for tensor in (*runtime.outputs, *runtime.hidden)]
    together = dict(zip(names, runtime.run(_slice(rows, 0, FEW_ROWS), names), strict=True))
    alone = [
        dict(zip(names, runtime.run(_slice(rows, index, index + 1), names), strict=True))
        for index in range(FEW_ROWS)
    ]
    batch_led = {tensor.name for tensor in runtime.outputs if tensor.dims[:1] == (batch,)}
    splittable, coupled = set(), False
    for name in names:
        parts = _split(together[name], FEW_ROWS)
        if parts is None or any(
            part.shape != single[name].shape for part, single in zip(parts, alone, strict=True)
        ):
            continue
        if all(_equal_up_to_rounding(part, single[name]) for part, single in zip(parts, alone, strict=True)):
            splittable.add(name)
        elif name in batch_led:
            coupled = True
    return frozenset(splittable), coupled


def _compare_bits(runtime: Runtime, rows: Rows, names: Sequence[str], max_rows: int) -> tuple[bool, bool]:
    """Whether rows get the same bits alone, and in batches of other sizes, as in a batch of `max_rows`."""
    if not names or max_rows < 2:
        return True, True
    expected = [_split(array, max_rows) for array in runtime.run(_slice(rows, 0, max_rows), names)]

    def same_bits(start: int, stop: int) -> bool:
        arrays = runtime.run(_slice(rows, start, stop), names)
        return all(
            expected_parts is not None
            and (parts := _split(array, stop - start)) is not None
            and all(map(_identical, parts, expected_parts[start:stop]))
            for array, expected_parts in zip(arrays, expected, strict=True)
        )

    sizes = [size for size in BATCH_SIZES if size < max_rows]
    alone = all(same_bits(index, index + 1) for index in range(min(FEW_ROWS, max_rows)))
    # the first and the last rows, since a row's place in the batch may matter, too
    return alone, all(same_bits(0, size) and same_bits(max_rows - size, max_rows) for size in sizes)


def _slice(rows: Mapping[str, Array], start: int, stop: int) -> Rows:
    return {name: array[start:stop] for name, array in rows.items()}


def _split(array: Array, count: int) -> list[Array] | None:
    """Equal parts along axis 0; None if the array has none."""
    if array.ndim == 0 or len(array) == 0 or len(array) % count:
        return None
    return np.split(array, count)


def _identical(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def _equal_up_to_rounding(a: Array, b: Array) -> bool:
    if a.dtype.name not in ROUNDING_TOLERANCE:
        return _identical(a, b)
    size = float(np.nanmax(np.abs(b), initial=1.0, where=np.isfinite(b)))
    return np.allclose(a, b, rtol=0, atol=ROUNDING_TOLERANCE[a.dtype.name] * size, equal_nan=True)


def _is_distribution(array: Array) -> bool | None:
    """True if each row sums to 1, False if it has logits, None if it has no classes."""
    if array.ndim != 2 or array.shape[1] < 2 or array.dtype.kind != "f":
        return None
    sums = array.sum(1, dtype=np.float64)
    return bool((array >= 0).all() and np.allclose(sums, 1, atol=1e-2 if array.dtype.itemsize == 2 else 1e-4))
