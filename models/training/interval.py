"""Split conformal prediction: how far predicted numbers are from the true ones in a share of rows.

The half-width of the interval is a quantile of the absolute errors on validation rows. For new rows that are
drawn like these, intervals hold the true number in at least this share of all rows, on average
(Lei et al., Distribution-Free Predictive Inference for Regression, 2018). Nothing is said of a single row.
The best epoch is chosen on the same rows, so the share is slightly lower than that if these are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from turnpike.models.data.dataset import Dataset, Split
from turnpike.models.errors import ConfigError
from turnpike.models.networks.base import Net
from turnpike.models.training.evaluate import predict_logits


def expect_interval(level: float, data: Dataset) -> None:
    """Raise a ConfigError unless intervals of this level can be computed for this data."""
    if not 0 < level < 1:
        raise ConfigError(f"interval: expected a share of rows between 0 and 1, such as 0.9, got {level:g}")
    if data.task != "number":
        raise ConfigError(
            f"interval: expected a number to predict, and {data.name} has classes; "
            "--task number predicts a number"
        )
    if _rank(len(data.valid), level) > len(data.valid):
        # n such that ceil((n + 1) * level) <= n
        least = math.ceil(_exact(level) / (1 - _exact(level)))
        raise ConfigError(
            f"interval: expected {least:,} validation rows or more for a share of {level:g}, got "
            f"{len(data.valid):,}; choose a smaller share, or use more rows"
        )


def interval_metrics(net: Net, data: Dataset, level: float) -> dict[str, float]:
    """The interval by the validation rows, and the share of test rows whose number it holds."""
    width = half_width(_absolute_errors(net, data.valid), level)
    test_errors = _absolute_errors(net, data.test)
    return {
        "interval_level": level,
        "interval_half_width": width,
        "interval_rows": len(data.valid),
        "test_interval_coverage": sum(error <= width for error in test_errors) / len(test_errors),
    }


def half_width(absolute_errors: Sequence[float], level: float) -> float:
    """The size below which the error of a further row is in at least the share `level` of cases."""
    return sorted(absolute_errors)[_rank(len(absolute_errors), level) - 1]


def _rank(rows: int, level: float) -> int:
    """Which of the errors of `rows` rows, from the smallest, is the half-width; above `rows`: none is."""
    return math.ceil((rows + 1) * _exact(level))


def _exact(level: float) -> Fraction:
    """The share that a user wrote: 0.9 is nine tenths, while the float is a little more or less."""
    return Fraction(str(level))


def _absolute_errors(net: Net, split: Split) -> list[float]:
    numbers = predict_logits(net, split.x)[:, 0]
    errors: list[float] = (numbers.double() - split.y.double()).abs().tolist()
    return errors
