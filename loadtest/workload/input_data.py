"""Input values to send: random values that fit the model's metadata, or the user's own rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from turnpike.common.datatypes import DATATYPE_BY_DTYPE, DTYPE_BY_DATATYPE
from turnpike.loadtest.errors import TargetError, UsageError
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.workload.target import Target
from turnpike.loadtest.workload.tensors import ANY_SIZE, Array, TensorSpec

# random numbers are multiples of one over this: six decimals keep a JSON body short
RANDOM_STEPS = 10**6
InputArrays = Mapping[str, Array]


class InputSource:
    """Makes the inputs of requests; the same plan always gives the same inputs."""

    def __init__(self, target: Target, plan: LoadPlan) -> None:
        self._plan = plan
        self._own_rows = None if plan.data is None else _read(plan.data, target.inputs)
        self.inputs = target.inputs or _inputs_of(self._own_rows, target)
        self.by_row = any(spec.by_row for spec in self.inputs)
        for spec in self.inputs:
            if spec.datatype not in DTYPE_BY_DATATYPE:
                raise UsageError(
                    f"input {spec.name!r}: expected one of {', '.join(DTYPE_BY_DATATYPE)}, "
                    f"which can be generated, got {spec.datatype}"
                )
        if self._own_rows is not None:
            self._own_rows = {spec.name: _converted(self._own_rows[spec.name], spec) for spec in self.inputs}
        if not self.by_row and plan.rows != (1,):
            raise UsageError(
                f"--rows: expected 1, because no input of {target.model!r} has a variable number of rows, "
                f"got {', '.join(map(str, plan.rows))}"
            )

    def make(self, rows: int, number: int) -> InputArrays:
        """The inputs of request `number` among those with this many rows."""
        if self._own_rows is not None:
            return {spec.name: _pick(self._own_rows[spec.name], spec, rows, number) for spec in self.inputs}
        random = np.random.default_rng([self._plan.seed, rows, number])
        return {spec.name: self._random_array(spec, rows, random) for spec in self.inputs}

    def _random_array(self, spec: TensorSpec, rows: int, random: np.random.Generator) -> Array:
        """Numbers from 0 to below 1, or whole numbers 0 and 1, because metadata does not give a range."""
        inner = spec.shape[1:] if spec.by_row else spec.shape
        shape = tuple(self._plan.length if size == ANY_SIZE else size for size in inner)
        if spec.by_row:
            shape = (rows, *shape)
        dtype = DTYPE_BY_DATATYPE[spec.datatype]
        if dtype.kind == "f":
            return (random.integers(0, RANDOM_STEPS, shape) / RANDOM_STEPS).astype(dtype)
        return random.integers(0, 2, shape).astype(dtype)


def _pick(array: Array, spec: TensorSpec, rows: int, number: int) -> Array:
    """The user's rows in order, from the start again after the last."""
    if not spec.by_row:
        picked: Array = array[number % len(array)]
        return picked
    return array[np.arange(number * rows, (number + 1) * rows) % len(array)]


def _read(path: Path, inputs: tuple[TensorSpec, ...]) -> dict[str, Array]:
    """The arrays of a .npy or .npz file, by the names of inputs."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {"": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except Exception as error:  # a damaged file makes zipfile, zlib, tokenize and NumPy raise almost anything
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it holds something else"
        raise UsageError(f"--data: expected arrays of numbers in {path} (.npy or .npz): {why}") from error
    # the array of a .npy file has no name: it belongs to the only input
    if "" in arrays and len(inputs) == 1:
        arrays = {inputs[0].name: arrays[""]}
    names = [spec.name for spec in inputs]
    missing = [name for name in names if name not in arrays]
    if missing or "" in arrays:
        expected = ", ".join(map(repr, names)) or "each input, because the server does not list its inputs"
        got = "one without a name" if "" in arrays else ", ".join(map(repr, arrays)) or "none"
        raise UsageError(f"--data: expected {path} to be .npz with an array for {expected}, got {got}")
    for name, array in arrays.items():
        if not array.ndim or not len(array):
            raise UsageError(f"--data: expected rows for {name!r}, got shape {list(array.shape)}")
    return {name: arrays[name] for name in names} if names else arrays


def _inputs_of(own_rows: Mapping[str, Array] | None, target: Target) -> tuple[TensorSpec, ...]:
    """Input specs made from the user's arrays, for a server that does not describe its inputs."""
    if own_rows is None:
        raise TargetError(
            f"{target.url} does not describe the inputs of {target.model!r}: "
            "pass --data FILE.npz with an array for each input"
        )
    specs = []
    for name, array in own_rows.items():
        dtype = array.dtype.newbyteorder("<")
        if dtype not in DATATYPE_BY_DTYPE:
            raise UsageError(f"--data: {name!r}: expected numbers, got {array.dtype}")
        specs.append(TensorSpec(name, DATATYPE_BY_DTYPE[dtype], (ANY_SIZE, *array.shape[1:])))
    return tuple(specs)


def _converted(array: Array, spec: TensorSpec) -> Array:
    """The user's array in the input's datatype; only digits may be lost."""
    inner = spec.shape[1:] if spec.by_row else spec.shape
    shape = array.shape[1:]
    if not TensorSpec(spec.name, spec.datatype, inner).fits(shape, shape[0] if shape else 0):
        raise UsageError(f"--data: {spec.name!r}: expected rows of shape {list(inner)}, got {list(shape)}")
    dtype = DTYPE_BY_DATATYPE[spec.datatype]
    with np.errstate(over="ignore"):
        converted = array.astype(dtype) if np.can_cast(array.dtype, dtype, "same_kind") else None
    if converted is None or not _same_values(array, converted):
        raise UsageError(f"--data: {spec.name!r}: expected values of {spec.datatype}, got {array.dtype}")
    return converted


def _same_values(before: Array, after: Array) -> bool:
    if after.dtype.kind == "f" and before.dtype.kind == "f":
        return bool((np.isfinite(before) == np.isfinite(after)).all())
    return bool((before == after).all()) if after.dtype.kind != "f" else bool(np.isfinite(after).all())
