"""Rows that go into the file for people to try, and within what bounds the inputs lay."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence

import numpy as np

from export.errors import RequestError
from export.source import Array, Rows, Source
from service.artifact.manifest import (
    DTYPE_BYTES,
    MAX_SAMPLE_CHARACTERS,
    InputRange,
    Sample,
    SampleInput,
    StoredDtype,
)

# of public data, unless told otherwise
DEFAULT_SAMPLES = 10


def sample_count(samples: int | None, source: Source) -> int:
    """How many rows go into the file; a RequestError where so many cannot.

    Rows of a user's own go into it only when asked for: they may be nobody else's business.
    """
    why = _obstacle(source)
    if samples is None:
        return DEFAULT_SAMPLES if source.public and why is None else 0
    if samples and why is not None:
        raise RequestError(f"--samples: expected {why}")
    return samples


def choose_samples(rows: Rows | None, count: int, labels: Sequence[str] = ()) -> tuple[Sample, ...]:
    """The first row of each class, then the second of each, up to `count`: always the same ones.

    Where classes are not known they are the first rows. There are fewer where more would take too much room.
    """
    if rows is None:
        return ()
    found: list[Sample] = []
    room = MAX_SAMPLE_CHARACTERS
    for number in _alternate_classes(rows)[:count]:
        inputs = tuple(encode_row(name, array[number]) for name, array in rows.inputs.items())
        room -= sum(len(one.data) for one in inputs)
        if room < 0:
            break
        found.append(Sample(label=rows.label(number, labels), inputs=inputs))
    return tuple(found)


def input_ranges(rows: Rows | None) -> tuple[InputRange, ...]:
    """The least and the greatest value of each input."""
    if rows is None:
        return ()
    return tuple(
        InputRange(input=name, low=float(array.min()), high=float(array.max()))
        for name, array in rows.inputs.items()
    )


def encode_row(name: str, row: Array) -> SampleInput:
    """One row of an input in the smallest type that holds it to the bit."""
    kinds: tuple[StoredDtype, ...] = tuple(DTYPE_BYTES)
    for kind in kinds:
        with np.errstate(over="ignore", invalid="ignore"):
            values = row.astype(np.dtype(kind).newbyteorder("<"))
        # a zero that has lost its sign is as large as before, and other bits
        if np.array_equal(values, row) and values.astype(row.dtype).tobytes() == row.tobytes():
            break
    return SampleInput(
        name=name, shape=row.shape, dtype=kind, data=base64.b64encode(values.tobytes()).decode("ascii")
    )


def _obstacle(source: Source) -> str | None:
    """What is missing for one row to be posted by itself, as JSON."""
    if source.rows is None:
        return "rows to take them from, got none: --data"
    for one in source.inputs:
        if one.dtype == "float16":
            return f"an input that JSON has a form for, got {one}"
        if isinstance(one.dims[0], int) and one.dims[0] != 1:
            return f"an input that takes one row, got {one}"
    return None


def _alternate_classes(rows: Rows) -> list[int]:
    """The numbers of all rows, one of each class in turn."""
    if rows.classes is None or rows.classes.ndim != 1:
        return list(range(len(rows)))
    seen: Counter[int] = Counter()
    turns = []
    for number, place in enumerate(rows.classes.tolist()):
        turns.append((seen[place], place, number))
        seen[place] += 1
    return [number for _, _, number in sorted(turns)]
