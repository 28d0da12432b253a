"""How the gates behave on rows of data: the statistics that live traffic will be compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from export.errors import SourceError
from export.measure.run_rows import first_rows, round_figure, row_axes, rows_digest, run_rows
from export.source import Rows
from service.artifact.manifest import Gate, LayerProfile, Profile
from service.artifact.runtime import Runtime

Array = np.ndarray[Any, np.dtype[Any]]

EPSILON = 0.01  # T this near to 0 or 1 counts as closed or open
QUANTILE_LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
BINS = 20
# quantiles are read off a histogram, in which any number of rows takes the same room: exact to 1 / FINE
FINE_BINS = 200 * BINS
# values of T, of all gates together: convolutional gates have one for every pixel, and get fewer rows for it
MAX_GATE_VALUES = 2**26
MIN_ROWS = 256


def profile_gates(runtime: Runtime, gates: Sequence[Gate], rows: Rows, labels: Sequence[str] = ()) -> Profile:
    """The statistics of each gate's T over rows; where their classes are known, the contrast between them.

    A gate that stands in several places for one row (pixels, words) is taken over all of them. In the
    contrast a class of which there are no rows stands at 0.
    """
    rows = _affordable(runtime, gates, rows)
    axes = row_axes(runtime)
    running = [_RunningStatistics() for _ in gates]
    for part in run_rows(runtime, rows, [gate.name for gate in gates]):
        for gate, so_far in zip(gates, running, strict=True):
            values = part.by_unit(gate, gate.name, axes[gate.name])
            if not np.isfinite(values).all():
                raise SourceError(
                    f"rows {part.rows.start} to {part.rows.stop - 1}: expected rows on which every gate is "
                    f"a number, got NaN in {gate.name}"
                )
            so_far.add(values)
    return Profile(
        rows=len(rows),
        digest=rows_digest(rows),
        epsilon=EPSILON,
        levels=QUANTILE_LEVELS,
        layers=tuple(so_far.layer(gate.name) for gate, so_far in zip(gates, running, strict=True)),
        contrast=_contrast(running, rows.classes, len(labels)),
    )


def _affordable(runtime: Runtime, gates: Sequence[Gate], rows: Rows) -> Rows:
    one = next(run_rows(runtime, first_rows(rows, 1), [gate.name for gate in gates]))
    values = sum(array.size for array in one.arrays.values()) // one.fed
    return first_rows(rows, max(MIN_ROWS, MAX_GATE_VALUES // max(1, values)))


def _contrast(
    running: Sequence[_RunningStatistics], classes: Array | None, labels: int
) -> tuple[tuple[float, ...], ...]:
    if classes is None or classes.ndim != 1:
        return ()
    count = max(labels, int(classes.max()) + 1)
    sizes = np.bincount(classes, minlength=count)
    contrast = []
    for so_far in running:
        means = np.concatenate(so_far.by_row)
        of_class = np.bincount(classes, weights=means, minlength=count) / np.maximum(sizes, 1)
        contrast.append(tuple(map(round_figure, np.where(sizes > 0, of_class - means.mean(), 0.0).tolist())))
    return tuple(contrast)


class _RunningStatistics:
    """The statistics of one gate so far, in double precision whatever the number of rows.

    Deviations are summed around each batch's own mean and joined as in Chan, Golub and LeVeque 1979:
    the difference of two large sums would drown the deviation of a gate that hardly varies.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean: Array = np.zeros(())
        self.squares: Array = np.zeros(())
        self.closed = self.open = 0
        self.low, self.high = np.inf, -np.inf
        self.fine = np.zeros(FINE_BINS, np.int64)
        self.by_row: list[Array] = []

    def add(self, values: Array) -> None:
        by_unit = values.astype(np.float64).reshape(-1, values.shape[-1])
        more = len(by_unit)
        mean = by_unit.mean(0)
        apart = mean - self.mean
        total = self.count + more
        self.squares = self.squares + ((by_unit - mean) ** 2).sum(0) + apart**2 * (self.count * more / total)
        self.mean = self.mean + apart * (more / total)
        self.count = total
        self.closed += int((by_unit < EPSILON).sum())
        self.open += int((by_unit > 1 - EPSILON).sum())
        self.low, self.high = min(self.low, float(by_unit.min())), max(self.high, float(by_unit.max()))
        bins = np.clip((by_unit * FINE_BINS).astype(np.int64), 0, FINE_BINS - 1)
        self.fine += np.bincount(bins.reshape(-1), minlength=FINE_BINS)
        self.by_row.append(values.mean((1, 2), dtype=np.float64))

    def layer(self, name: str) -> LayerProfile:
        values = self.count * self.mean.size
        mean = float(self.mean.mean())
        # what the units' values vary by, and what their means lie apart
        variance = float(self.squares.sum() + self.count * ((self.mean - mean) ** 2).sum()) / values
        return LayerProfile(
            gate=name,
            mean=round_figure(mean),
            sd=round_figure(variance**0.5),
            quantiles=tuple(round_figure(self._quantile(level)) for level in QUANTILE_LEVELS),
            closed=round_figure(self.closed / values),
            open=round_figure(self.open / values),
            histogram=tuple(map(round_figure, (self.fine.reshape(BINS, -1).sum(1) / values).tolist())),
            units=tuple(map(round_figure, self.mean.tolist())),
            units_sd=tuple(map(round_figure, np.sqrt(self.squares / self.count).tolist())),
        )

    def _quantile(self, level: float) -> float:
        reached = np.cumsum(self.fine)
        middle = (np.searchsorted(reached, level * reached[-1]) + 0.5) / FINE_BINS
        return float(np.clip(middle, self.low, self.high))
