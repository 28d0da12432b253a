"""The inputs of a network as a person writes them: `x:float32[batch,784]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from export.errors import RequestError

DTYPES = ("float32", "float64", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")

# a name that is a word, so that it can stand in a URL, a JSON key and a Python keyword argument
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
WRITTEN = re.compile(r"(?P<name>[^:\[\]]+):(?P<dtype>\w+)\[(?P<dims>[^\[\]]*)\]\Z")


@dataclass(frozen=True)
class Input:
    """One argument of `forward`: a dimension is a number (fixed) or a name (dynamic)."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name}:{self.dtype}[{','.join(map(str, self.dims))}]"

    def shape(self, **sizes: int) -> tuple[int, ...]:
        """The shape with a size for every name."""
        return tuple(dim if isinstance(dim, int) else sizes[dim] for dim in self.dims)


def parse(text: str) -> Input:
    """The input that a person wrote; a RequestError says how it is written."""
    found = WRITTEN.match("".join(text.split()))
    if found is None:
        raise RequestError(f"--input: expected NAME:DTYPE[DIM,...] as in x:float32[batch,784], got {text!r}")
    name, dtype = found["name"], found["dtype"]
    if not NAME.match(name):
        raise RequestError(f"--input: expected a name of letters, digits and _, got {name!r}")
    if dtype not in DTYPES:
        raise RequestError(f"--input {name}: expected a dtype of {', '.join(DTYPES)}, got {dtype!r}")
    words = found["dims"].split(",") if found["dims"] else []
    return Input(name, dtype, tuple(_dim(name, word) for word in words))


def parse_all(texts: Sequence[str]) -> tuple[Input, ...]:
    """Several inputs in the order of `forward`'s arguments, each with a name of its own."""
    inputs = tuple(parse(text) for text in texts)
    names = [one.name for one in inputs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise RequestError(f"--input: expected distinct names, got {twice[0]!r} more than once")
    return inputs


def _dim(name: str, word: str) -> int | str:
    if re.fullmatch(r"[0-9]{1,9}", word):
        if int(word) == 0:
            raise RequestError(f"--input {name}: expected dimensions of 1 or more, got 0")
        return int(word)
    if not NAME.match(word):
        raise RequestError(f"--input {name}: expected a number or a name as a dimension, got {word!r}")
    return word
