"""What a model does with rows in company, found out by running it: which answers may be batched, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from service.artifact.manifest import Manifest
from service.artifact.runtime import Runtime, Tensor
from service.errors import ModelFileError, RunError
from service.inference_types import Array

# SplitMix64, by Steele, Lea and Flood: a counter's steps, and what mixes its bits
STEP = 0x9E3779B97F4A7C15
MIXED = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST = 31


class SeededRandom:
    """Draws the same numbers in the same order for the same seed."""

    def __init__(self, seed: int) -> None:
        self._drawn = seed << 32

    def uniform(self, *shape: int) -> Array:
        """Numbers above 0 and below 1, in float64."""
        count = int(np.prod(shape))
        bits = np.arange(self._drawn, self._drawn + count, dtype=np.uint64) * np.uint64(STEP)
        self._drawn += count
        for shift, factor in MIXED:
            bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
        bits ^= bits >> np.uint64(LAST)
        # of 64 bits a float64 has room for 53; the half keeps 0 out
        return (((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)

    def normal(self, *shape: int) -> Array:
        """Numbers of mean 0 and deviation 1, after Box and Muller."""
        return np.sqrt(-2 * np.log(self.uniform(*shape))) * np.cos(2 * np.pi * self.uniform(*shape))

    def whole(self, low: int, high: int, *shape: int) -> Array:
        """Whole numbers from low to below high, in int64."""
        return low + np.floor(self.uniform(*shape) * (high - low)).astype(np.int64)


Rows = dict[str, Array]

SEED = 20_150_503
# runs of so many rows are compared, beside one of the most there may be
SIZES = (2, 3, 5, 8, 17)
# runs in which hidden outputs are looked at as well, which may be large
FEW = 3
# what a dimension that callers choose may be, and the whole numbers in it: the first that the model takes
LENGTHS = (8, 16, 32, 64, 128, 224)
RANGES = ((0, 256), (1, 64), (1, 16), (1, 4), (1, 2), (0, 1))
# the same sums in another order lie no further apart than this, by the size of the largest
NEAR = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-9}


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """`ran` is False where the model took none of the rows that were tried, and nothing is known of it.

    `coupled`: a row's answer depends on the rows beside it. `steady`: it is the same to the last bit in any
    company. `lone_rows`: only a row by itself gets other last bits. `splittable` outputs fall into equal
    parts along axis 0, one a row. `distribution` is whether the first public output has probabilities or
    logits of classes, None where it has neither.
    """

    ran: bool
    coupled: bool = False
    steady: bool = False
    lone_rows: bool = False
    splittable: frozenset[str] = frozenset()
    distribution: bool | None = None


def probe(runtime: Runtime, batch: str | None, most: int) -> ProbeResult:
    """Run seeded rows, up to `most` at once, alone and in company; the first runs warm the model, too."""
    sets = list(row_sets(runtime, batch, max(most, *SIZES)))
    if not sets:
        return ProbeResult(ran=False)
    public = [tensor.name for tensor in runtime.outputs]
    distribution = _distribution(runtime.run(_part(sets[0], 0, FEW), public)[0]) if public else None
    if batch is None:
        return ProbeResult(ran=True, distribution=distribution)
    splittable, coupled = _splittable(runtime, sets[0], batch)
    names = [name for name in public if name in splittable]
    steady, lone_rows = True, False
    for rows in sets:
        alone, together = _compare(runtime, rows, names, most)
        steady, lone_rows = steady and together, lone_rows or not alone
    every = [tensor.name for tensor in (*runtime.outputs, *runtime.hidden) if tensor.name in splittable]
    alone, together = _compare(runtime, sets[0], every, FEW)
    return ProbeResult(
        ran=True,
        coupled=coupled,
        steady=steady and together,
        lone_rows=lone_rows or not alone,
        splittable=splittable,
        distribution=distribution,
    )


def row_sets(runtime: Runtime, batch: str | None, count: int) -> Iterator[Rows]:
    """So many seeded rows that the model takes; where rows may be of any length, some of one step as well."""
    lengths = (
        LENGTHS
        if any(isinstance(dim, str) and dim != batch for tensor in runtime.inputs for dim in tensor.dims)
        else LENGTHS[:1]
    )
    first = next(_that_run(runtime, batch, count, lengths), None)
    if first is not None:
        yield first
        if len(lengths) > 1:
            yield from _that_run(runtime, batch, count, (1,))


def _that_run(runtime: Runtime, batch: str | None, count: int, lengths: Sequence[int]) -> Iterator[Rows]:
    for length in lengths:
        for low, high in RANGES:
            rows = draw(runtime.inputs, batch, count, length, (low, high))
            try:
                runtime.run(rows)
            except RunError:
                continue
            yield rows
            break


def draw(
    inputs: Sequence[Tensor], batch: str | None, count: int, length: int, between: tuple[int, int]
) -> Rows:
    """Random rows, always the same: normal numbers, coin flips, or whole numbers from low to below high."""
    chance = SeededRandom(SEED)
    rows: Rows = {}
    for tensor in inputs:
        shape = [count if dim == batch else length if isinstance(dim, str) else dim for dim in tensor.dims]
        kind = np.dtype(tensor.dtype)
        if kind.kind == "f":
            rows[tensor.name] = chance.normal(*shape).astype(kind)
        elif kind.kind == "b":
            rows[tensor.name] = chance.uniform(*shape) < 0.5
        else:
            low, high = between
            top = min(high, int(np.iinfo(kind).max))
            rows[tensor.name] = chance.whole(low, top, *shape).astype(kind)
    return rows


def _splittable(runtime: Runtime, rows: Rows, batch: str) -> tuple[frozenset[str], bool]:
    """The outputs that fall into parts by row, and whether a row's part depends on the other rows."""
    names = [tensor.name for tensor in (*runtime.outputs, *runtime.hidden)]
    together = dict(zip(names, runtime.run(_part(rows, 0, FEW), names), strict=True))
    alone = [dict(zip(names, runtime.run(_part(rows, n, n + 1), names), strict=True)) for n in range(FEW)]
    led = {tensor.name for tensor in runtime.outputs if tensor.dims[:1] == (batch,)}
    splittable, coupled = set(), False
    for name in names:
        parts = _split(together[name], FEW)
        if parts is None or any(
            part.shape != one[name].shape for part, one in zip(parts, alone, strict=True)
        ):
            continue
        if all(_near(part, one[name]) for part, one in zip(parts, alone, strict=True)):
            splittable.add(name)
        elif name in led:
            coupled = True
    return frozenset(splittable), coupled


def _compare(runtime: Runtime, rows: Rows, names: Sequence[str], most: int) -> tuple[bool, bool]:
    """Whether a row alone, and rows in runs of other sizes and places, get the bits they get among most."""
    if not names or most < 2:
        return True, True
    among = [_split(array, most) for array in runtime.run(_part(rows, 0, most), names)]

    def same(start: int, stop: int) -> bool:
        made = runtime.run(_part(rows, start, stop), names)
        return all(
            expected is not None
            and (parts := _split(array, stop - start)) is not None
            and all(map(_identical, parts, expected[start:stop]))
            for array, expected in zip(made, among, strict=True)
        )

    sizes = [size for size in SIZES if size < most]
    alone = all(same(n, n + 1) for n in range(min(FEW, most)))
    return alone, all(same(0, size) and same(most - size, most) for size in sizes)


def _part(rows: Mapping[str, Array], start: int, stop: int) -> Rows:
    return {name: array[start:stop] for name, array in rows.items()}


def _split(array: Array, count: int) -> list[Array] | None:
    """Equal parts along axis 0, None where there are none."""
    if array.ndim == 0 or len(array) == 0 or len(array) % count:
        return None
    return np.split(array, count)


def _identical(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.tobytes() == other.tobytes()


def _near(one: Array, other: Array) -> bool:
    if one.dtype.name not in NEAR:
        return _identical(one, other)
    size = float(np.nanmax(np.abs(other), initial=1.0, where=np.isfinite(other)))
    return np.allclose(one, other, rtol=0, atol=NEAR[one.dtype.name] * size, equal_nan=True)


def _distribution(array: Array) -> bool | None:
    if array.ndim != 2 or array.shape[1] < 2 or array.dtype.kind != "f":
        return None
    sums = array.sum(1, dtype=np.float64)
    return bool((array >= 0).all() and np.allclose(sums, 1, atol=1e-2 if array.dtype.itemsize == 2 else 1e-4))


ROWS = 64
# as at export: a multiple of what PyTorch itself was off the truth by, and of the last bit
FACTOR, LAST_BIT = 8, 2.0**-23


def check_device_agreement(device: Runtime, cpu: Runtime, batch: str | None, where: str) -> None:
    """Stop with a ModelFileError where a device is further from the CPU than parity allows."""
    rows = next(row_sets(cpu, batch, ROWS), None)
    if rows is None:
        raise ModelFileError(
            f"{where}: expected rows to compare {device.provider} with the CPU on, and the model takes none "
            "of those that were tried",
            "its device could not be compared with the CPU",
        )
    names = [tensor.name for tensor in (*cpu.outputs, *cpu.hidden)]
    for name, got, expected in zip(names, device.run(rows, names), cpu.run(rows, names), strict=True):
        apart, allowed = _apart(got, expected), _allowed(cpu.manifest, name, expected)
        if apart > allowed:
            raise ModelFileError(
                f"{where}: {name}: expected {device.provider} within {allowed:.2g} of the CPU, "
                f"got {apart:.2g}",
                "its device does not answer as the CPU does",
            )


def _apart(got: Array, expected: Array) -> float:
    """The largest difference, infinite where shapes differ or only one side is NaN."""
    if got.shape != expected.shape:
        return float("inf")
    other = ~((got == expected) | (np.isnan(got) & np.isnan(expected)))
    apart = np.abs(got[other].astype(np.float64) - expected[other].astype(np.float64))
    return float(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).max(initial=0.0))


def _allowed(manifest: Manifest | None, name: str, expected: Array) -> float:
    """The bound of both together: each may be off the truth by as much as parity allows."""
    finite = expected[np.isfinite(expected)].astype(np.float64)
    size = max(1.0, float(np.sqrt(np.mean(finite**2)))) if finite.size else 1.0
    known = {tensor.name: tensor.max_torch for tensor in manifest.parity.tensors} if manifest else {}
    step = float(np.finfo(expected.dtype).eps) if expected.dtype.kind == "f" else 0.0
    return 2 * FACTOR * (known.get(name, 0.0) + max(step, LAST_BIT) * size)
