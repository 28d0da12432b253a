"""How far the gates on live traffic have moved from the profile that was taken at export.

Now and then a run fetches its gates, too, and their values are counted in the profile's own bins. What is
kept is one histogram a gate, in which old rows fade; each worker has its own, and they add up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import gcd
from typing import Any, Literal

import numpy as np

from service.artifact.manifest import Gate, Profile
from service.errors import ModelFileError
from service.inference_types import Array

Level = Literal["ok", "watch", "alarm"]

# seconds between two sampled runs at least, and how many times a sampled run's own time has to pass
INTERVAL, REST = 0.1, 20
# values that are counted of one run, over all its gates, and of one gate at least
MOST_VALUES, FEWEST_VALUES = 2**14, 256
# rows without which nothing is said
FEWEST_ROWS = 200
# what each bin's share is lifted by, so that an empty bin does not make the index infinite
SMOOTHING = 1e-4
WATCH, ALARM = 0.1, 0.25


@dataclass(frozen=True, slots=True)
class LayerDrift:
    """One gate's population stability index and means; None where there are too few rows to tell."""

    gate: str
    layer: int
    psi: float | None
    level: Level | None
    mean: float | None
    baseline: float


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Where live traffic stands, told from `rows` of it; `reason` says why there is no index.

    `bias` is what the index comes to without any drift, on average and at most: so few are the rows.
    """

    rows: int
    needed: int
    baseline_rows: int
    window: int
    bias: float | None
    level: Level | None
    worst: str | None
    reason: str | None
    layers: tuple[LayerDrift, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class DriftMonitor:
    """The live histograms of one model's gates, in one worker."""

    def __init__(self, profile: Profile, gates: Sequence[Gate], rows: int) -> None:
        """`rows` of traffic are remembered; a ModelFileError says where the profile makes no sense."""
        self.gate_names = tuple(layer.gate for layer in profile.layers)
        self._layers = {gate.name: gate.layer for gate in gates}
        if strange := [name for name in self.gate_names if name not in self._layers]:
            raise _unfit(f"layers: expected gates of the model, got {strange[0]!r}")
        bins = {len(layer.histogram) for layer in profile.layers}
        if len(bins) != 1 or 0 in bins:
            raise _unfit(f"layers: expected histograms of one length, got lengths {sorted(bins)}")
        self._profile = profile
        self._bins = bins.pop()
        self._window = rows
        self._next = self._began = 0.0
        self._turn = 0
        self._lock = threading.Lock()
        self._rows = 0.0
        # of each gate the sum of T, then its shares by bin, both times the rows they came from
        self._seen: Array = np.zeros((len(self.gate_names), 1 + self._bins))

    def should_sample(self) -> bool:
        """Whether the run that begins now is to fetch the gates of `gate_names`, too."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._began, self._next = now, now + INTERVAL
        return True

    def observe(self, arrays: Sequence[Array], rows: int) -> None:
        """Count the gates of a run of so many rows, in the order of `gate_names`."""
        if rows == 0:
            return
        share = max(FEWEST_VALUES, MOST_VALUES // len(arrays))
        self._turn += 1
        parts = [_some(array, share, self._turn) for array in arrays]
        fresh = self._count(np.concatenate(parts), [len(part) for part in parts])
        with self._lock:
            kept = max(0.0, min(self._rows, self._window - rows))
            if kept < self._rows:
                self._seen *= kept / self._rows
            self._seen += fresh * min(rows, self._window)
            self._rows = min(kept + rows, self._window)
        now = time.monotonic()
        self._next = max(self._next, now + REST * (now - self._began))

    def _count(self, values: Array, sizes: Sequence[int]) -> Array:
        """Mean and shares by bin of each gate; zeros where all its values are NaN."""
        gates, width = len(sizes), 1 + self._bins
        values = values.astype(np.float64)
        owner = np.repeat(np.arange(gates), sizes)
        known = np.isfinite(values)
        if not known.all():
            values, owner = values[known], owner[known]
        bins = np.clip((values * self._bins).astype(np.int64), 0, self._bins - 1)
        counted = np.bincount(owner * width + 1 + bins, minlength=gates * width).reshape(gates, width)
        totals = np.bincount(owner, weights=values, minlength=gates)
        return np.column_stack((totals, counted[:, 1:])) / np.maximum(counted.sum(1, keepdims=True), 1)

    def snapshot(self) -> dict[str, Any]:
        """What this worker has seen, for `merge` in any worker that serves the same file."""
        with self._lock:
            seen = np.round(self._seen, 3).tolist()
        return {"profile": self._profile.digest, "seen": seen}

    def merge(self, snapshots: Iterable[Mapping[str, Any]]) -> DriftReport:
        """The drift of all workers together; snapshots of another profile are left out."""
        total = np.zeros_like(self._seen)
        for snapshot in snapshots:
            if snapshot["profile"] == self._profile.digest and np.shape(snapshot["seen"]) == total.shape:
                total += np.asarray(snapshot["seen"])
        return self._report(total)

    def _report(self, total: Array) -> DriftReport:
        each = total[:, 1:].sum(1)
        rows, needed = round(each.min()), min(FEWEST_ROWS, self._window)
        known = rows >= needed
        layers = tuple(
            LayerDrift(
                gate=layer.gate,
                layer=self._layers[layer.gate],
                psi=(psi := round(_psi(seen[1:] / count, np.asarray(layer.histogram)), 6) if known else None),
                level=None if psi is None else _level(psi),
                mean=round(float(seen[0] / count), 6) if known else None,
                baseline=layer.mean,
            )
            for layer, seen, count in zip(self._profile.layers, total, each, strict=True)
        )
        worst = max(layers, key=lambda layer: layer.psi or 0.0) if known else None
        # of n rows each bin's share varies by no more than p (1 - p) / n, however alike a row's units are
        bias = (self._bins - 1) * (1 / rows + 1 / max(1, self._profile.rows)) if known else None
        return DriftReport(
            rows=rows,
            needed=needed,
            baseline_rows=self._profile.rows,
            window=self._window,
            bias=None if bias is None else round(bias, 6),
            level=worst.level if worst else None,
            worst=worst.gate if worst else None,
            reason=None if known else f"expected {needed} rows of traffic or more to tell drift, got {rows}",
            layers=layers,
        )


def _some(array: Array, count: int, turn: int) -> Array:
    """About as many of its values as asked for, spread over rows and units alike, others at each turn."""
    values = array.reshape(-1)
    step = values.size // count
    if step < 2:
        return values
    # a step that divides the units' number would look at the same few units again and again
    while gcd(step, values.size) != 1:
        step += 1
    return values[turn % step :: step]


def _psi(live: Array, baseline: Array) -> float:
    """The population stability index: the sum of (p - q) ln(p / q) over bins, shares lifted a little."""
    p, q = ((share + SMOOTHING) / (share.sum() + SMOOTHING * share.size) for share in (live, baseline))
    return float(((p - q) * np.log(p / q)).sum())


def _level(psi: float) -> Level:
    return "alarm" if psi >= ALARM else "watch" if psi >= WATCH else "ok"


def _unfit(why: str) -> ModelFileError:
    return ModelFileError(f"manifest: profile: {why}", "its manifest's profile makes no sense")
