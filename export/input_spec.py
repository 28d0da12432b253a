"""The inputs of a network as a person writes them: `x:float32[batch,784]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from export.errors import RequestError, SourceError, warn_user

DTYPES = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")

# a name that is a word, so that it can stand in a URL, a JSON key and a Python keyword argument
NAME_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
INPUT_PATTERN = re.compile(r"(?P<name>[^:\[\]]+):(?P<dtype>\w+)\[(?P<dims>[^\[\]]*)\]\Z")


@dataclass(frozen=True)
class InputSpec:
    """One argument of `forward`: a dimension is a number (fixed) or a name (dynamic)."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name}:{self.dtype}[{','.join(map(str, self.dims))}]"

    def shape(self, **sizes: int) -> tuple[int, ...]:
        """The shape with a size for every name."""
        return tuple(dim if isinstance(dim, int) else sizes[dim] for dim in self.dims)


def parse_input(text: str) -> InputSpec:
    """The input that a person wrote; a RequestError says how it is written."""
    found = INPUT_PATTERN.match("".join(text.split()))
    if found is None:
        raise RequestError(f"--input: expected NAME:DTYPE[DIM,...] as in x:float32[batch,784], got {text!r}")
    name, dtype = found["name"], found["dtype"]
    if not NAME_PATTERN.match(name):
        raise RequestError(f"--input: expected a name of letters, digits and _, got {name!r}")
    if dtype not in DTYPES:
        raise RequestError(f"--input {name}: expected a dtype of {', '.join(DTYPES)}, got {dtype!r}")
    words = found["dims"].split(",") if found["dims"] else []
    return InputSpec(name, dtype, tuple(_dim(name, word) for word in words))


def parse_inputs(texts: Sequence[str]) -> tuple[InputSpec, ...]:
    """Several inputs in the order of `forward`'s arguments, each with a name of its own."""
    inputs = tuple(parse_input(text) for text in texts)
    names = [one.name for one in inputs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise RequestError(f"--input: expected distinct names, got {twice[0]!r} more than once")
    return inputs


def _dim(name: str, word: str) -> int | str:
    if re.fullmatch(r"[0-9]{1,9}", word):
        if int(word) == 0:
            raise RequestError(f"--input {name}: expected dimensions of 1 or more, got 0")
        return int(word)
    if not NAME_PATTERN.match(word):
        raise RequestError(f"--input {name}: expected a number or a name as a dimension, got {word!r}")
    return word


MODEL_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


def model_name(given: str | None, found: str) -> str:
    """The name given, which must do as a folder and in a URL, or one made of the source's."""
    if given is None:
        made = re.sub(r"[^A-Za-z0-9._-]+", "-", found).strip("-._")[:100]
        return made or "model"
    if not MODEL_NAME_PATTERN.match(given):
        raise RequestError(
            "--name: expected at most 100 letters, digits, '.', '_' and '-', a letter or digit first, "
            f"got {given!r}"
        )
    return given


def with_user_names(own: tuple[InputSpec, ...], inputs: tuple[InputSpec, ...]) -> tuple[InputSpec, ...]:
    """The user's own names, where there are any, for the same inputs and dimensions."""
    if not inputs:
        return own
    called: dict[int | str, int | str] = {}
    fits = len(inputs) == len(own)
    for mine, given in zip(own, inputs, strict=False):
        fits = fits and mine.dtype == given.dtype and len(mine.dims) == len(given.dims)
        for dim, name in zip(mine.dims, given.dims, strict=False):
            same = dim == name if isinstance(dim, int) else isinstance(name, str)
            fits = fits and same and called.setdefault(dim, name) == name
    names = [name for name in called.values() if isinstance(name, str)]
    if not fits or len(set(names)) < len(names):
        raise RequestError(
            f"--input: expected {' '.join(map(str, own))}, under any names, got {' '.join(map(str, inputs))}"
        )
    return inputs


def expect_batch_dimension(own: tuple[InputSpec, ...], where: str) -> None:
    """Stop with a SourceError unless the first dimension holds rows; say so where their number is fixed."""
    if not own or not own[0].dims:
        raise SourceError(f"{where}: expected an input whose first dimension is the batch")
    first = own[0]
    if isinstance(first.dims[0], str):
        return
    if any(isinstance(dim, str) for one in own for dim in one.dims):
        raise SourceError(
            f"{where}: {first}: the first dimension is the batch, and it is fixed while others vary: "
            "export it again with a dynamic batch"
        )
    warn_user(f"{where}: {first}: takes {first.dims[0]} rows at a time and no other number")
