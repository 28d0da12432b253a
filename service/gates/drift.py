"""Drift: how far the gates on live traffic have moved from the gate profile of the export.

Now and then a run computes its gates as well, and their values are counted in the profile's own bins. Each
worker keeps one histogram per gate, in which old rows fade; the histograms of all workers add up.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import gcd
from typing import Any, Literal

import numpy as np

from turnpike.service.artifact.manifest import Gate, Profile
from turnpike.service.artifact.runtime import Runtime
from turnpike.service.errors import ModelFileError
from turnpike.service.inference_types import Array

log = logging.getLogger(__name__)

DriftLevel = Literal["ok", "watch", "alarm"]

# seconds between two sampled runs at least
MIN_INTERVAL = 0.1
# after a sampled run, this many times its own duration must pass: sampling takes up to 1/20 of the time
REST_FACTOR = 20
# values that are counted of one run: of all gates together at most, and of each gate at least
MAX_SAMPLED_VALUES, MIN_GATE_VALUES = 2**14, 256
# rows of traffic below which the report gives no index: too few to be meaningful
MIN_ROWS = 200
# added to every bin share so that an empty bin does not make PSI infinite
SMOOTHING = 1e-4
# values of PSI from which a gate's level is "watch" or "alarm", by the usual rule of thumb
WATCH, ALARM = 0.1, 0.25


@dataclass(frozen=True, slots=True)
class LayerDrift:
    """Population stability index (PSI) and means of one gate; None as long as there are too few rows."""

    gate: str
    layer: int
    psi: float | None
    level: DriftLevel | None
    mean: float | None
    baseline: float


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Drift of all gates, from `rows` rows of live traffic; `reason` says why there is no index yet.

    `bias` is the index that would be expected without any drift, because the rows are so few.
    """

    rows: int
    needed: int
    baseline_rows: int
    window: int
    bias: float | None
    level: DriftLevel | None
    worst: str | None
    reason: str | None
    layers: tuple[LayerDrift, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class DriftMonitor:
    """Live histograms of one model's gates, in one worker."""

    def __init__(self, profile: Profile, gates: Sequence[Gate], window: int) -> None:
        """`window` is the number of rows that are remembered. Raises ModelFileError for a bad profile."""
        self.gate_names = tuple(layer.gate for layer in profile.layers)
        self._layers = {gate.name: gate.layer for gate in gates}
        if unknown := [name for name in self.gate_names if name not in self._layers]:
            raise _profile_error(f"layers: expected gates of the model, got {unknown[0]!r}")
        bins = {len(layer.histogram) for layer in profile.layers}
        if len(bins) != 1 or 0 in bins:
            raise _profile_error(f"layers: expected histograms of one length, got lengths {sorted(bins)}")
        self._profile = profile
        self._bins = bins.pop()
        self._window = window
        self._sample_start = self._next_sample = 0.0
        # number of the sample, so that each takes other values
        self._turn = 0
        self._lock = threading.Lock()
        self._rows = 0.0
        # for each gate: the mean of T and the shares by bin, both times the number of rows
        self._totals: Array = np.zeros((len(self.gate_names), 1 + self._bins))

    def should_sample(self) -> bool:
        """Whether the run that begins now should compute the gates of `gate_names` as well."""
        now = time.monotonic()
        if now < self._next_sample:
            return False
        self._sample_start, self._next_sample = now, now + MIN_INTERVAL
        return True

    def observe(self, arrays: Sequence[Array], rows: int) -> None:
        """Count the gates of a run of `rows` rows, given in the order of `gate_names`."""
        if rows == 0:
            return
        values_each = max(MIN_GATE_VALUES, MAX_SAMPLED_VALUES // len(arrays))
        self._turn += 1
        samples = [_subsample(array, values_each, self._turn) for array in arrays]
        fresh = self._count(np.concatenate(samples), [len(sample) for sample in samples])
        with self._lock:
            # let old rows fade, so that the total never exceeds the window
            remaining = max(0.0, min(self._rows, self._window - rows))
            if remaining < self._rows:
                self._totals *= remaining / self._rows
            self._totals += fresh * min(rows, self._window)
            self._rows = min(remaining + rows, self._window)
        now = time.monotonic()
        self._next_sample = max(self._next_sample, now + REST_FACTOR * (now - self._sample_start))

    def _count(self, values: Array, sizes: Sequence[int]) -> Array:
        """Mean and shares by bin of each gate; zeros for a gate of which all values are NaN."""
        gates, width = len(sizes), 1 + self._bins
        values = values.astype(np.float64)
        gate_of_value = np.repeat(np.arange(gates), sizes)
        finite = np.isfinite(values)
        if not finite.all():
            values, gate_of_value = values[finite], gate_of_value[finite]
        bins = np.clip((values * self._bins).astype(np.int64), 0, self._bins - 1)
        # one histogram for all gates: gate g uses the cells from g * width + 1 on
        counts = np.bincount(gate_of_value * width + 1 + bins, minlength=gates * width).reshape(gates, width)
        sums = np.bincount(gate_of_value, weights=values, minlength=gates)
        return np.column_stack((sums, counts[:, 1:])) / np.maximum(counts.sum(1, keepdims=True), 1)

    def snapshot(self) -> dict[str, Any]:
        """The counts of this worker, for `merge` in any worker that serves the same file."""
        with self._lock:
            totals = np.round(self._totals, 3).tolist()
        return {"profile": self._profile.digest, "seen": totals}

    def merge(self, snapshots: Iterable[Mapping[str, Any]]) -> DriftReport:
        """The drift of all workers together; snapshots that belong to another profile are left out."""
        totals = np.zeros_like(self._totals)
        for snapshot in snapshots:
            if snapshot["profile"] == self._profile.digest and np.shape(snapshot["seen"]) == totals.shape:
                totals += np.asarray(snapshot["seen"])
        return self._report(totals)

    def _report(self, totals: Array) -> DriftReport:
        gate_rows = totals[:, 1:].sum(1)
        rows, needed = round(gate_rows.min()), min(MIN_ROWS, self._window)
        enough = rows >= needed
        layers = tuple(
            LayerDrift(
                gate=layer.gate,
                layer=self._layers[layer.gate],
                psi=(
                    psi := round(_psi(total[1:] / count, np.asarray(layer.histogram)), 6) if enough else None
                ),
                level=None if psi is None else _level(psi),
                mean=round(float(total[0] / count), 6) if enough else None,
                baseline=layer.mean,
            )
            for layer, total, count in zip(self._profile.layers, totals, gate_rows, strict=True)
        )
        worst = max(layers, key=lambda layer: layer.psi or 0.0) if enough else None
        # A bin's share p varies by at most p (1 - p) / n over n rows, however much a row's units resemble
        # each other. The sum over all bins and both histograms gives the index that chance alone can cause.
        bias = (self._bins - 1) * (1 / rows + 1 / max(1, self._profile.rows)) if enough else None
        return DriftReport(
            rows=rows,
            needed=needed,
            baseline_rows=self._profile.rows,
            window=self._window,
            bias=None if bias is None else round(bias, 6),
            level=worst.level if worst else None,
            worst=worst.gate if worst else None,
            reason=None
            if enough
            else f"expected at least {needed} rows of traffic to measure drift, got {rows}",
            layers=layers,
        )


def sampled_run(
    runtime: Runtime, drift: DriftMonitor | None, batch: str | None, *, pad_single_rows: bool
) -> Callable[[Mapping[str, Array], tuple[str, ...]], list[Array]]:
    """The model's `run`, which shows its gates to the drift monitor now and then.

    Args:
        runtime: The model.
        drift: The monitor; None to return the plain `run`.
        batch: The name of the batch dimension; None if the model has none.
        pad_single_rows: True if the batcher pads a single row with a copy of itself, which must not count
            twice.
    """
    if drift is None:
        return runtime.run
    input_count, first_input = len(runtime.inputs), runtime.inputs[0].name

    def run(feeds: Mapping[str, Array], names: tuple[str, ...]) -> list[Array]:
        # more feeds than inputs means that levers are moved: such gates say nothing about the traffic
        if len(feeds) != input_count or not drift.should_sample():
            return runtime.run(feeds, names)
        arrays = runtime.run(feeds, (*names, *drift.gate_names))
        rows = 1 if batch is None else len(feeds[first_input])
        if pad_single_rows and rows == 2 and all(bool((feed[0] == feed[1]).all()) for feed in feeds.values()):
            rows = 1
        try:
            drift.observe(arrays[len(names) :], rows)
        except Exception:  # a request must not fail because of monitoring
            log.exception("drift cannot be measured")
        return arrays[: len(names)]

    return run


def _subsample(array: Array, count: int, turn: int) -> Array:
    """About `count` of the array's values, spread evenly over rows and units, other ones at each turn."""
    values = array.reshape(-1)
    step = values.size // count
    if step < 2:
        return values
    # a step that divides the number of units would pick the same few units again and again
    while gcd(step, values.size) != 1:
        step += 1
    return values[turn % step :: step]


def _psi(live: Array, baseline: Array) -> float:
    """Population stability index: the sum of (p - q) ln(p / q) over the bins, with smoothed shares."""
    p, q = ((share + SMOOTHING) / (share.sum() + SMOOTHING * share.size) for share in (live, baseline))
    return float(((p - q) * np.log(p / q)).sum())


def _level(psi: float) -> DriftLevel:
    return "alarm" if psi >= ALARM else "watch" if psi >= WATCH else "ok"


def _profile_error(problem: str) -> ModelFileError:
    return ModelFileError(f"manifest: profile: {problem}", "its manifest's profile makes no sense")
