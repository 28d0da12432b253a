"""Sample rows stored in the file for people to try, and the range of each input."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence

import numpy as np

from turnpike.export.errors import UsageError
from turnpike.export.network import Array, Network, Rows
from turnpike.service.artifact.manifest import (
    DTYPE_BYTES,
    MAX_SAMPLE_CHARACTERS,
    Sample,
    SampleInput,
    StoredDtype,
)
from turnpike.service.artifact.proof_records import InputRange

# rows of a public data set that go into the file if the user does not say how many
DEFAULT_SAMPLES = 10


def sample_count(samples: int | None, network: Network) -> int:
    """The number of rows to store; a UsageError if rows were requested and cannot be stored.

    A user's own rows are stored only on request, since they may be private.
    """
    expected = _missing_requirement(network)
    if samples is None:
        return DEFAULT_SAMPLES if network.public and expected is None else 0
    if samples and expected is not None:
        raise UsageError(f"--samples: expected {expected}")
    return samples


def choose_samples(
    rows: Rows | None, count: int, labels: Sequence[str] = (), flipped: int | None = None
) -> tuple[Sample, ...]:
    """The first row of each class, then the second of each, up to `count`; always the same rows.

    If the classes are not known, the first rows. Stops early at MAX_SAMPLE_CHARACTERS.

    Args:
        rows: The rows to choose from.
        count: The number of samples.
        labels: Names of the classes.
        flipped: The number of a row that stands before the others of its class, since its answer changes when
            a layer is closed.
    """
    if rows is None:
        return ()
    samples: list[Sample] = []
    space_left = MAX_SAMPLE_CHARACTERS
    for row in _alternate_classes(rows, flipped)[:count]:
        inputs = tuple(encode_row(name, array[row]) for name, array in rows.inputs.items())
        text = rows.texts[row] if rows.texts else ""
        space_left -= len(text) + sum(len(sample_input.data) for sample_input in inputs)
        if space_left < 0:
            break
        samples.append(Sample(label=rows.label(row, labels), text=text, inputs=inputs))
    return tuple(samples)


def equal_rows(sample: Sample, rows: Rows) -> list[int]:
    """The numbers of the rows that have the values of a sample."""
    stored = {row.name: row for row in sample.inputs}
    shapes = {name: array.shape[1:] for name, array in rows.inputs.items()}
    if {name: row.shape for name, row in stored.items()} != shapes:
        return []
    same = np.ones(len(rows), bool)
    for name, array in rows.inputs.items():
        values = np.frombuffer(stored[name].raw, np.dtype(stored[name].dtype).newbyteorder("<"))
        flat = array.reshape(len(rows), -1)
        both_blank = np.isnan(flat) & np.isnan(values) if flat.dtype.kind == "f" else False
        same &= ((flat == values) | both_blank).all(1)
    return np.flatnonzero(same).tolist()


def input_ranges(rows: Rows | None) -> tuple[InputRange, ...]:
    """The smallest and the largest value of each input, without blanks."""
    if rows is None:
        return ()
    known = {
        name: array[~np.isnan(array)] if array.dtype.kind == "f" else array
        for name, array in rows.inputs.items()
    }
    return tuple(
        InputRange(input=name, low=float(array.min()), high=float(array.max()))
        for name, array in known.items()
        if array.size
    )


def encode_row(name: str, row: Array) -> SampleInput:
    """Encode one row of an input in the smallest type that holds it bit for bit."""
    dtypes: tuple[StoredDtype, ...] = tuple(DTYPE_BYTES)
    for dtype in dtypes:
        with np.errstate(over="ignore", invalid="ignore"):
            values = row.astype(np.dtype(dtype).newbyteorder("<"))
        # compare bits too: -0.0 equals 0, but an integer type loses its sign
        if (
            np.array_equal(values, row, equal_nan=values.dtype.kind == "f")
            and values.astype(row.dtype).tobytes() == row.tobytes()
        ):
            break
    return SampleInput(
        name=name, shape=row.shape, dtype=dtype, data=base64.b64encode(values.tobytes()).decode("ascii")
    )


def _missing_requirement(network: Network) -> str | None:
    """What is needed, and missing, to send one row by itself as JSON; None if nothing is missing."""
    if network.rows is None:
        return "rows to store, got none: give some with --data"
    for spec in network.inputs:
        if spec.dtype == "float16":
            return f"inputs of a type that JSON requests can carry, got {spec}"
        if isinstance(spec.dims[0], int) and spec.dims[0] != 1:
            return f"inputs that take a single row, got {spec}"
    return None


def _alternate_classes(rows: Rows, first: int | None) -> list[int]:
    """The indices of all rows, one of each class in turn; `first` is the first of its class."""
    if rows.classes is None or rows.classes.ndim != 1:
        return list(range(len(rows)))
    rows_seen: Counter[int] = Counter()
    order = []
    numbers = range(len(rows)) if first is None else [first, *range(first), *range(first + 1, len(rows))]
    for row in numbers:
        row_class = int(rows.classes[row])
        order.append((rows_seen[row_class], row_class, row))
        rows_seen[row_class] += 1
    return [row for _, _, row in sorted(order)]
