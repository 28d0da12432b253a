"""Input specifications such as `x:float32[batch,784]`, and the names of models and inputs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from turnpike.export.errors import SourceError, UsageError

DTYPES = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
# for a module with parameters of bfloat16, a dtype that NumPy does not have
BFLOAT16_REMEDY = (
    "call float() on the module, which keeps the values of its parameters, and use float32 inputs"
)

# a word, so that the name works in a URL, as a JSON key and as a Python keyword argument
NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
INPUT_PATTERN = re.compile(r"(?P<name>[^:\[\]]+):(?P<dtype>\w+)\[(?P<dims>[^\[\]]*)\]\Z")
RANGE_PATTERN = re.compile(r"(?:(?P<name>[^=:]+)=)?(?P<low>[^=:]+):(?P<high>[^=:]+)\Z")
# works as the name of a folder and in a URL
MODEL_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


@dataclass(frozen=True)
class InputSpec:
    """One argument of `forward`. Each dimension is a number (fixed) or a name (dynamic)."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name}:{self.dtype}[{','.join(map(str, self.dims))}]"

    def shape(self, **sizes: int) -> tuple[int, ...]:
        """The shape, with the size given for each named dimension."""
        return tuple(dim if isinstance(dim, int) else sizes[dim] for dim in self.dims)


def parse_input(text: str) -> InputSpec:
    """Parse `NAME:DTYPE[DIM,...]`, or raise a UsageError that shows the expected form."""
    match = INPUT_PATTERN.match("".join(text.split()))
    if match is None:
        raise UsageError(f"--input: expected NAME:DTYPE[DIM,...] as in x:float32[batch,784], got {text!r}")
    name, dtype = match["name"], match["dtype"]
    if not NAME_PATTERN.match(name):
        raise UsageError(f"--input: expected a name of letters, digits and _, got {name!r}")
    if dtype not in DTYPES:
        remedy = f": {BFLOAT16_REMEDY}" if dtype == "bfloat16" else ""
        raise UsageError(f"--input {name}: expected a dtype of {', '.join(DTYPES)}, got {dtype!r}{remedy}")
    dims = match["dims"].split(",") if match["dims"] else []
    return InputSpec(name, dtype, tuple(_parse_dim(name, dim) for dim in dims))


def parse_inputs(texts: Sequence[str | InputSpec]) -> tuple[InputSpec, ...]:
    """Parse several inputs, in the order of `forward`'s arguments; their names must be distinct."""
    inputs = tuple(parse_input(str(text)) for text in texts)
    names = [spec.name for spec in inputs]
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"--input: expected distinct names, got {duplicates[0]!r} more than once")
    return inputs


def parse_ranges(texts: Sequence[str], inputs: tuple[InputSpec, ...]) -> dict[str, tuple[float, float]]:
    """Parse ranges of values such as `-5:5`, for all inputs of floating-point numbers, or `x=-5:5`, for one.

    Returns:
        The lowest and the highest value of each input that has a range.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, low, high = _parse_range(text)
        dtypes = {spec.name: spec.dtype for spec in inputs if spec.dtype != "bool"}
        names = [name for name, dtype in dtypes.items() if dtype.startswith("float")]
        if name is not None:
            names = [name] if name in dtypes else []
        if not names:
            valid = ", ".join(dtypes) or "none: no input takes numbers"
            raise UsageError(f"--input-range {text}: expected NAME=LOW:HIGH with one of the inputs {valid}")
        ranges |= dict.fromkeys(names, (low, high))
    return ranges


def _parse_range(text: str) -> tuple[str | None, float, float]:
    """The name, if there is one, and the two numbers of a range."""
    match = RANGE_PATTERN.match(text)
    try:
        low, high = map(float, match.group("low", "high") if match else ())
    except ValueError:
        match = None
    if match is None:
        raise UsageError(
            f"--input-range: expected LOW:HIGH or NAME=LOW:HIGH, as in -5:5 or x=-5:5, got {text!r}"
        )
    if not (low < high and isfinite(low) and isfinite(high)):
        raise UsageError(f"--input-range: expected two finite numbers, LOW below HIGH, got {text!r}")
    return match["name"], low, high


def _parse_dim(name: str, text: str) -> int | str:
    if re.fullmatch(r"[0-9]{1,9}", text):
        if int(text) == 0:
            raise UsageError(f"--input {name}: expected dimensions of 1 or more, got 0")
        return int(text)
    if not NAME_PATTERN.match(text):
        raise UsageError(f"--input {name}: expected a number or a name as a dimension, got {text!r}")
    return text


def model_name(requested: str | None, default: str) -> str:
    """The requested name if it is valid, or else one made from `default`, the source's own name."""
    if requested is None:
        return valid_name(default) or "model"
    if not MODEL_NAME_PATTERN.match(requested):
        raise UsageError(
            "--name: expected at most 100 letters, digits, '.', '_' and '-', a letter or digit first, "
            f"got {requested!r}"
        )
    return requested


def valid_name(text: str) -> str:
    """A text as the name of a model; "" if it has no letters and digits of ASCII."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:100]


def with_user_names(
    source_inputs: tuple[InputSpec, ...], user_inputs: tuple[InputSpec, ...]
) -> tuple[InputSpec, ...]:
    """The user's specifications, if any, which may only rename the source's inputs and dimensions."""
    if not user_inputs:
        return source_inputs
    new_names: dict[int | str, int | str] = {}  # the source's dimension -> the user's
    fits = len(user_inputs) == len(source_inputs)
    for theirs, ours in zip(source_inputs, user_inputs, strict=False):
        fits = fits and theirs.dtype == ours.dtype and len(theirs.dims) == len(ours.dims)
        for dim, new in zip(theirs.dims, ours.dims, strict=False):
            same_kind = dim == new if isinstance(dim, int) else isinstance(new, str)
            fits = fits and same_kind and new_names.setdefault(dim, new) == new
    names = [name for name in new_names.values() if isinstance(name, str)]
    if not fits or len(set(names)) < len(names):
        raise UsageError(
            f"--input: expected {' '.join(map(str, source_inputs))}, under any names, "
            f"got {' '.join(map(str, user_inputs))}"
        )
    return user_inputs


def batch_dimension(inputs: tuple[InputSpec, ...]) -> str | None:
    """The dimension called `batch`, or else the first dynamic one of the first input; None without one."""
    named = any("batch" in spec.dims for spec in inputs)
    return "batch" if named else next((dim for dim in inputs[0].dims if isinstance(dim, str)), None)


def check_batch_dimension(inputs: tuple[InputSpec, ...], where: str) -> tuple[str, ...]:
    """Raise a SourceError unless the first dimension is the batch; return a warning if its size is fixed."""
    if not inputs or not inputs[0].dims:
        raise SourceError(f"{where}: expected an input whose first dimension is the batch")
    first = inputs[0]
    if isinstance(first.dims[0], str):
        return ()
    if any(isinstance(dim, str) for spec in inputs for dim in spec.dims):
        raise SourceError(
            f"{where}: {first}: the first dimension is the batch, and it is fixed while others vary: "
            "export it again with a dynamic batch as the first dimension"
        )
    return (f"{where}: {first}: takes batches of exactly {first.dims[0]} rows",)
