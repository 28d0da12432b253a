"""The values that are sent: made up from what the metadata says, or the user's own rows."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from loadtest.errors import TargetError, UsageError
from loadtest.plan import Plan
from loadtest.workload.target import Target
from loadtest.workload.tensors import DATATYPES, DTYPES, FREE, Array, Tensor

# what is made up has so many different values: six decimals keep a JSON body short
STEPS = 10**6
Sample = Mapping[str, Array]


class Samples:
    """Makes the inputs of requests, the same ones for the same plan."""

    def __init__(self, target: Target, plan: Plan) -> None:
        self._plan = plan
        self._own = None if plan.data is None else _read(plan.data, target.inputs)
        self.inputs = target.inputs or _inputs_of(self._own, target)
        self.by_row = any(tensor.by_row for tensor in self.inputs)
        for tensor in self.inputs:
            if tensor.datatype not in DTYPES:
                raise UsageError(
                    f"input {tensor.name!r}: expected one of {', '.join(DTYPES)}, which can be made, "
                    f"got {tensor.datatype}"
                )
        if self._own is not None:
            self._own = {tensor.name: _fitted(self._own[tensor.name], tensor) for tensor in self.inputs}
        if not self.by_row and plan.rows != (1,):
            raise UsageError(
                f"--rows: expected 1, since no input of {target.model!r} has rows that may vary, "
                f"got {', '.join(map(str, plan.rows))}"
            )

    def make(self, rows: int, number: int) -> Sample:
        """The inputs of the request of this number among those of so many rows."""
        if self._own is not None:
            return {
                tensor.name: _pick(self._own[tensor.name], tensor, rows, number) for tensor in self.inputs
            }
        random = np.random.default_rng([self._plan.seed, rows, number])
        return {tensor.name: self._made_up(tensor, rows, random) for tensor in self.inputs}

    def _made_up(self, tensor: Tensor, rows: int, random: np.random.Generator) -> Array:
        """Numbers from 0 until 1, or 0 and 1 where they are whole: metadata tells of no range."""
        inner = tensor.shape[1:] if tensor.by_row else tensor.shape
        shape = tuple(self._plan.length if size == FREE else size for size in inner)
        if tensor.by_row:
            shape = (rows, *shape)
        dtype = DTYPES[tensor.datatype]
        if dtype.kind == "f":
            return (random.integers(0, STEPS, shape) / STEPS).astype(dtype)
        return random.integers(0, 2, shape).astype(dtype)


def _pick(array: Array, tensor: Tensor, rows: int, number: int) -> Array:
    """The user's rows in their order, from the start again after the last."""
    if not tensor.by_row:
        picked: Array = array[number % len(array)]
        return picked
    return array[np.arange(number * rows, (number + 1) * rows) % len(array)]


def _read(path: Path, inputs: tuple[Tensor, ...]) -> dict[str, Array]:
    """The arrays of a file by the names of inputs."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {"": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it holds something else"
        raise UsageError(f"--data: expected arrays of numbers in {path} (.npy or .npz): {why}") from error
    if "" in arrays and len(inputs) == 1:
        arrays = {inputs[0].name: arrays[""]}
    names = [tensor.name for tensor in inputs]
    absent = [name for name in names if name not in arrays]
    if absent or "" in arrays:
        wanted = ", ".join(map(repr, names)) or "each input, since the server does not tell of them"
        found = "one without a name" if "" in arrays else ", ".join(map(repr, arrays)) or "none"
        raise UsageError(f"--data: expected {path} to be .npz with an array for {wanted}, got {found}")
    for name, array in arrays.items():
        if not array.ndim or not len(array):
            raise UsageError(f"--data: expected rows for {name!r}, got shape {list(array.shape)}")
    return {name: arrays[name] for name in names} if names else arrays


def _inputs_of(own: Mapping[str, Array] | None, target: Target) -> tuple[Tensor, ...]:
    """The inputs as the user's arrays have them, where the server tells nothing."""
    if own is None:
        raise TargetError(
            f"{target.url} does not tell what inputs {target.model!r} has: "
            "--data FILE.npz with an array for each makes up for it"
        )
    found = []
    for name, array in own.items():
        dtype = array.dtype.newbyteorder("<")
        if dtype not in DATATYPES:
            raise UsageError(f"--data: {name!r}: expected numbers, got {array.dtype}")
        found.append(Tensor(name, DATATYPES[dtype], (FREE, *array.shape[1:])))
    return tuple(found)


def _fitted(array: Array, tensor: Tensor) -> Array:
    """The user's array as the input takes it, where that loses no more than digits."""
    inner = tensor.shape[1:] if tensor.by_row else tensor.shape
    shape = array.shape[1:]
    if not Tensor(tensor.name, tensor.datatype, inner).fits(shape, shape[0] if shape else 0):
        raise UsageError(f"--data: {tensor.name!r}: expected rows of shape {list(inner)}, got {list(shape)}")
    dtype = DTYPES[tensor.datatype]
    with np.errstate(over="ignore"):
        cast = array.astype(dtype) if np.can_cast(array.dtype, dtype, "same_kind") else None
    if cast is None or not _kept(array, cast):
        raise UsageError(f"--data: {tensor.name!r}: expected values of {tensor.datatype}, got {array.dtype}")
    return cast


def _kept(before: Array, after: Array) -> bool:
    if after.dtype.kind == "f" and before.dtype.kind == "f":
        return bool((np.isfinite(before) == np.isfinite(after)).all())
    return bool((before == after).all()) if after.dtype.kind != "f" else bool(np.isfinite(after).all())
