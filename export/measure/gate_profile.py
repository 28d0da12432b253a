"""Gate profile: statistics of the gates over rows of data, with which live traffic is compared (drift)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turnpike.export.errors import SourceOptionError
from turnpike.export.measure.run_rows import round_figure, row_axes, rows_digest, run_rows, spread_rows
from turnpike.export.network import Array, Rows
from turnpike.service.artifact.manifest import Gate, LayerProfile, Profile
from turnpike.service.artifact.runtime import Runtime

EPSILON = 0.01  # T this near to 0 or 1 counts as closed or open
QUANTILE_LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
BINS = 20
# quantiles come from a histogram, whose memory does not grow with the rows; they are exact to 1 / FINE_BINS
FINE_BINS = 200 * BINS
# values of T over all gates and rows: convolutional gates have one per pixel, so they are measured on fewer
# rows, but never on fewer than MIN_ROWS
MAX_GATE_VALUES = 2**26
MIN_ROWS = 256


def profile_gates(
    runtime: Runtime,
    gates: Sequence[Gate],
    rows: Rows,
    labels: Sequence[str] = (),
    *,
    max_values: int = MAX_GATE_VALUES,
    min_rows: int = MIN_ROWS,
) -> Profile:
    """Statistics of each gate's T over the rows, and if the classes are known, the contrast between them.

    A gate with several positions per row (pixels, words) is measured over all of them. In the contrast a
    class without rows is 0.

    Args:
        runtime: The open model.
        gates: Its gates.
        rows: Rows of data.
        labels: Names of the classes; the contrast has at least as many columns.
        max_values: Values of T to measure, over all gates and rows; fewer rows are used if needed.
        min_rows: Rows that are used in any case.

    Returns:
        The statistics, as the manifest records them.

    Raises:
        SourceOptionError: A gate is NaN or infinite on some row.
    """
    rows = spread_rows(rows, max(min_rows, max_values // _values_per_row(runtime, gates, rows)))
    axes = row_axes(runtime)
    statistics = [_RunningStatistics() for _ in gates]
    for batch in run_rows(runtime, rows, [gate.name for gate in gates]):
        for gate, gate_statistics in zip(gates, statistics, strict=True):
            values = batch.by_unit(gate, gate.name, axes[gate.name])
            if not np.isfinite(values).all():
                raise SourceOptionError(
                    f"--data: rows {batch.rows.start} to {batch.rows.stop - 1}: expected rows on which every "
                    f"gate is a finite number, got NaN or infinity in {gate.name}"
                )
            gate_statistics.add(values)
    return Profile(
        rows=len(rows),
        digest=rows_digest(rows),
        epsilon=EPSILON,
        levels=QUANTILE_LEVELS,
        layers=tuple(
            gate_statistics.layer_profile(gate.name)
            for gate, gate_statistics in zip(gates, statistics, strict=True)
        ),
        contrast=_contrast(statistics, rows.classes, len(labels)),
    )


def _values_per_row(runtime: Runtime, gates: Sequence[Gate], rows: Rows) -> int:
    batch = next(run_rows(runtime, spread_rows(rows, 1), [gate.name for gate in gates]))
    return max(1, sum(array.size for array in batch.arrays.values()) // batch.batch_rows)


def _contrast(
    statistics: Sequence[_RunningStatistics], classes: Array | None, label_count: int
) -> tuple[tuple[float, ...], ...]:
    """For each gate and class: the mean of T over the class's rows, less the mean over all rows."""
    if classes is None or classes.ndim != 1:
        return ()
    count = max(label_count, int(classes.max()) + 1)
    sizes = np.bincount(classes, minlength=count)
    contrast = []
    for gate_statistics in statistics:
        means = np.concatenate(gate_statistics.row_means)
        class_means = np.bincount(classes, weights=means, minlength=count) / np.maximum(sizes, 1)
        contrast.append(
            tuple(map(round_figure, np.where(sizes > 0, class_means - means.mean(), 0.0).tolist()))
        )
    return tuple(contrast)


class _RunningStatistics:
    """Statistics of one gate over the batches so far, in double precision.

    Squared deviations are summed around each batch's own mean and merged as in Chan, Golub and LeVeque
    (1979). The difference of two large sums would lose the deviation of a gate that hardly varies.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean: Array = np.zeros(())
        self.squares: Array = np.zeros(())
        self.closed = self.open = 0
        self.low, self.high = np.inf, -np.inf
        self.fine_histogram = np.zeros(FINE_BINS, np.int64)
        self.row_means: list[Array] = []

    def add(self, values: Array) -> None:
        by_unit = values.astype(np.float64).reshape(-1, values.shape[-1])
        added = len(by_unit)
        mean = by_unit.mean(0)
        difference = mean - self.mean
        total = self.count + added
        self.squares = (
            self.squares + ((by_unit - mean) ** 2).sum(0) + difference**2 * (self.count * added / total)
        )
        self.mean = self.mean + difference * (added / total)
        self.count = total
        self.closed += int((by_unit < EPSILON).sum())
        self.open += int((by_unit > 1 - EPSILON).sum())
        self.low, self.high = min(self.low, float(by_unit.min())), max(self.high, float(by_unit.max()))
        bins = np.clip((by_unit * FINE_BINS).astype(np.int64), 0, FINE_BINS - 1)
        self.fine_histogram += np.bincount(bins.reshape(-1), minlength=FINE_BINS)
        self.row_means.append(values.mean((1, 2), dtype=np.float64))

    def layer_profile(self, name: str) -> LayerProfile:
        values = self.count * self.mean.size
        mean = float(self.mean.mean())
        # variance of the values around their unit's mean, plus variance of the units' means
        variance = float(self.squares.sum() + self.count * ((self.mean - mean) ** 2).sum()) / values
        return LayerProfile(
            gate=name,
            mean=round_figure(mean),
            sd=round_figure(variance**0.5),
            quantiles=tuple(round_figure(self._quantile(level)) for level in QUANTILE_LEVELS),
            closed=round_figure(self.closed / values),
            open=round_figure(self.open / values),
            histogram=tuple(
                map(round_figure, (self.fine_histogram.reshape(BINS, -1).sum(1) / values).tolist())
            ),
            units=tuple(map(round_figure, self.mean.tolist())),
            units_sd=tuple(map(round_figure, np.sqrt(self.squares / self.count).tolist())),
        )

    def _quantile(self, level: float) -> float:
        cumulative = np.cumsum(self.fine_histogram)
        middle = (np.searchsorted(cumulative, level * cumulative[-1]) + 0.5) / FINE_BINS
        return float(np.clip(middle, self.low, self.high))
