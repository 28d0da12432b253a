"""What a model, its inputs and their dimensions are called."""

from __future__ import annotations

import re

from export.errors import RequestError, SourceError
from export.note import note
from export.signature import Input

MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


def model_name(given: str | None, found: str) -> str:
    """The name given, which must do as a folder and in a URL, or one made of the source's."""
    if given is None:
        made = re.sub(r"[^A-Za-z0-9._-]+", "-", found).strip("-._")[:100]
        return made or "model"
    if not MODEL.match(given):
        raise RequestError(
            "--name: expected at most 100 letters, digits, '.', '_' and '-', a letter or digit first, "
            f"got {given!r}"
        )
    return given


def renamed(own: tuple[Input, ...], inputs: tuple[Input, ...]) -> tuple[Input, ...]:
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


def expect_rows(own: tuple[Input, ...], where: str) -> None:
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
    note(f"{where}: {first}: takes {first.dims[0]} rows at a time and no other number")
