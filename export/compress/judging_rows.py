"""Checks the rows of a compression: that there are enough, and that they are like those of training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from turnpike.export.compress.whole_network import WholeNetwork
from turnpike.export.errors import SourceOptionError
from turnpike.export.network import Array
from turnpike.export.sources.data.rows import SplitRows

# With fewer rows, "same answers: 100 %" says little: of 100 rows to judge on, it says 96 % or more.
MIN_ROWS = 200
# share of rows with a value outside of training's range from which they seem to be other data
MAX_FAR_SHARE = 0.1


def expect_enough_rows(rows: SplitRows) -> None:
    """Raise a SourceOptionError if there are too few rows to choose units on and to judge the choice on."""
    count = len(rows.calibration) + len(rows.test)
    if count < MIN_ROWS:
        raise SourceOptionError(
            f"--data: expected {MIN_ROWS} rows or more, to choose units on half of them and to judge the "
            f"choice on the others, got {count}"
        )


def warnings_of_far_rows(whole: WholeNetwork, rows: SplitRows) -> Iterator[str]:
    """Says which values of many rows are outside of the range of the rows that training or export had."""
    for name, low, high, values in _ranges(whole, rows):
        with np.errstate(invalid="ignore"):
            # a blank is no value
            is_far = (values < low) | (values > high)
        share = float(is_far.reshape(len(values), -1).any(1).mean())
        if share > MAX_FAR_SHARE:
            yield (
                f"--data: {share:.0%} of the rows have values of {name} outside of the {low:g} to {high:g} "
                f"that are known from real rows: {np.nanmin(values):g} to {np.nanmax(values):g}. What is "
                "measured on such rows says little about others"
            )


def _ranges(whole: WholeNetwork, rows: SplitRows) -> Iterator[tuple[str, float, float, Array]]:
    """Each column of a table, or each input, with its known range and all values of the rows."""
    parts = (rows.calibration, rows.test)
    if features := whole.network.features:
        (name,) = rows.test.inputs
        table = np.concatenate([part.inputs[name] for part in parts])
        for column, feature in enumerate(features):
            # places of categories are in range, or are those of words that training has not seen
            if feature.kind == "number":
                yield feature.name, feature.low, feature.high, table[:, column]
        return
    for known in () if whole.manifest is None else whole.manifest.ranges:
        values = np.concatenate([part.inputs[known.input] for part in parts])
        if values.dtype.kind == "f":
            yield known.input, known.low, known.high, values
