"""Tests of drift: live gates counted in the profile's bins, and the index computed from them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from turnpike.service.artifact.manifest import Gate, LayerProfile, Profile
from turnpike.service.artifact.runtime import Runtime
from turnpike.service.errors import ModelFileError
from turnpike.service.gates import drift as module
from turnpike.service.gates.drift import MAX_SAMPLED_VALUES, MIN_ROWS, DriftMonitor, DriftReport, sampled_run

Array = np.ndarray[Any, np.dtype[Any]]
UNITS = 16


def profile(*histograms: list[float], digest: str = "rows", rows: int = 100_000) -> Profile:
    return Profile(
        rows=rows,
        digest=digest,
        epsilon=0.01,
        levels=(0.5,),
        layers=tuple(
            LayerProfile(
                gate=f"g{n}",
                mean=0.5,
                sd=0.1,
                quantiles=(0.5,),
                closed=0,
                open=0,
                histogram=tuple(histogram),
                units=(),
                units_sd=(),
            )
            for n, histogram in enumerate(histograms)
        ),
    )


def gates(count: int) -> list[Gate]:
    return [
        Gate(name=f"g{n}", layer=10 + n, kind="coupled", carry="identity", unit_axis=-1, units=UNITS)
        for n in range(count)
    ]


EVEN = [0.25] * 4


def monitor_of(*histograms: list[float], rows: int = 10_000) -> DriftMonitor:
    return DriftMonitor(profile(*histograms), gates(len(histograms)), rows)


def even_values(rows: int, low: float = 0.0, high: float = 1.0, seed: int = 0) -> Array:
    values = np.random.default_rng(seed).uniform(low, high, size=(rows, UNITS))
    return values.astype(np.float32)


def report(drift: DriftMonitor) -> DriftReport:
    return drift.merge([drift.snapshot()])


def test_psi_worked_out_by_hand() -> None:
    drift = monitor_of(EVEN)
    drift.observe([np.repeat(np.array([[0.1], [0.9]], np.float32), 500, axis=0)], 1000)
    (layer,) = report(drift).layers
    # the empty bins are lifted to about 0.0001
    lifted = [(share + 1e-4) / (1 + 4e-4) for share in (0.5, 0, 0, 0.5)]
    assert layer.psi == pytest.approx(sum((p - 0.25) * math.log(p / 0.25) for p in lifted), abs=1e-6)
    assert (layer.gate, layer.layer, layer.level, layer.baseline) == ("g0", 10, "alarm", 0.5)
    assert layer.mean == pytest.approx(0.5, abs=1e-6)


def test_traffic_like_the_profile_is_no_drift() -> None:
    """The index stays below the report's bias."""
    drift = monitor_of([0.05] * 20)
    drift.observe([even_values(400)], 400)
    drift_report = report(drift)
    assert drift_report.level == "ok"
    assert drift_report.bias == pytest.approx(19 * (1 / 400 + 1e-5))
    assert drift_report.layers[0].psi is not None
    assert drift_report.layers[0].psi < drift_report.bias


@pytest.mark.parametrize(("high", "level"), [(0.98, "ok"), (0.75, "alarm")])
def test_the_worst_gate_gives_the_level(high: float, level: str) -> None:
    drift = monitor_of([0.05] * 20, [0.05] * 20, [0.05] * 20)
    drift.observe([even_values(900), even_values(900, high=high, seed=1), even_values(900, seed=2)], 900)
    drift_report = report(drift)
    assert drift_report.level == level
    if level == "alarm":
        assert drift_report.worst == "g1"
        assert [layer.level for layer in drift_report.layers] == ["ok", "alarm", "ok"]


@pytest.mark.parametrize(("low", "level"), [(630, "ok"), (700, "watch"), (760, "alarm")])
def test_levels_worked_out_by_hand(low: int, level: str) -> None:
    """1,000 rows in two bins of equal shares."""
    drift = monitor_of([0.5, 0.5])
    drift.observe([np.repeat(np.array([[0.2], [0.8]], np.float32), [low, 1000 - low], axis=0)], 1000)
    (layer,) = report(drift).layers
    p = low / 1000
    assert layer.psi == pytest.approx((p - 0.5) * math.log(p / (1 - p)), abs=1e-3)
    assert layer.level == report(drift).level == level


def test_too_few_rows_give_a_reason_instead_of_a_level() -> None:
    drift = monitor_of(EVEN)
    drift.observe([even_values(MIN_ROWS - 1)], MIN_ROWS - 1)
    drift_report = report(drift)
    assert drift_report.reason == "expected at least 200 rows of traffic to measure drift, got 199"
    assert (
        drift_report.level
        is drift_report.worst
        is drift_report.bias
        is drift_report.layers[0].psi
        is drift_report.layers[0].mean
        is None
    )
    drift.observe([even_values(1)], 1)
    assert report(drift).reason is None


def test_without_traffic_there_is_no_level() -> None:
    drift_report = monitor_of(EVEN).merge([])
    assert (drift_report.rows, drift_report.level) == (0, None)
    json.dumps(drift_report.to_json())


def test_old_traffic_is_forgotten() -> None:
    """After some windows of other traffic the old one is forgotten; the total never exceeds the window."""
    drift = monitor_of(EVEN, rows=1000)
    for seed in range(20):
        drift.observe([even_values(100, high=0.25, seed=seed)], 100)
    assert report(drift).level == "alarm"
    for seed in range(100):
        drift.observe([even_values(100, seed=seed)], 100)
    drift_report = report(drift)
    assert drift_report.level == "ok"
    assert drift_report.rows == drift_report.window == 1000


def test_counts_are_exact_until_the_window_is_full() -> None:
    drift = monitor_of(EVEN, rows=1000)
    drift.observe([np.full((600, 1), 0.1, np.float32)], 600)
    drift.observe([np.full((400, 1), 0.9, np.float32)], 400)
    assert drift.snapshot()["seen"][0][1:] == [600, 0, 0, 400]
    drift.observe([np.full((500, 1), 0.4, np.float32)], 500)
    assert drift.snapshot()["seen"][0][1:] == [300, 500, 0, 200]


def test_a_run_larger_than_the_window_counts_as_a_window() -> None:
    drift = monitor_of(EVEN, rows=100)
    drift.observe([even_values(100, high=0.25)], 100)
    drift.observe([even_values(128)], 128)
    assert report(drift).rows == 100
    assert report(drift).level == "ok"


def test_reports_of_workers_are_merged() -> None:
    """Two workers with half of the values each give the same report as one worker with all."""
    low, high = monitor_of(EVEN), monitor_of(EVEN)
    low.observe([even_values(500, high=0.5)], 500)
    high.observe([even_values(500, low=0.5)], 500)
    assert report(low).level == report(high).level == "alarm"
    drift_report = low.merge([json.loads(json.dumps(monitor.snapshot())) for monitor in (low, high)])
    assert (drift_report.level, drift_report.rows) == ("ok", 1000)


def test_snapshots_of_another_file_are_left_out() -> None:
    """During a reload, workers may report two files under one version, with other bins."""
    drift = monitor_of(EVEN)
    drift.observe([even_values(300)], 300)
    other = DriftMonitor(profile(EVEN, digest="others"), gates(1), 1000)
    other.observe([even_values(300, high=0.25)], 300)
    longer = {"profile": "rows", "seen": [[0.0] * 9]}
    drift_report = drift.merge([drift.snapshot(), other.snapshot(), longer])
    assert (drift_report.rows, drift_report.level) == (300, "ok")


def test_zero_and_one_fall_into_the_outer_bins() -> None:
    drift = monitor_of(EVEN)
    drift.observe([np.repeat(np.array([[0.0], [1.0]], np.float32), 150, axis=0)], 300)
    assert drift.snapshot()["seen"] == [[150, 150, 0, 0, 150]]


def test_nan_values_are_left_out() -> None:
    drift = monitor_of(EVEN, EVEN)
    some = even_values(300)
    some[::2] = np.nan
    drift.observe([some, np.full((300, UNITS), np.nan, np.float32)], 300)
    seen = np.array(drift.snapshot()["seen"])
    assert seen[0, 1:].sum() == pytest.approx(300)
    assert seen[1].sum() == 0
    assert report(drift).reason == "expected at least 200 rows of traffic to measure drift, got 0"


def test_a_run_without_rows_counts_no_rows() -> None:
    drift = monitor_of(EVEN)
    drift.observe([np.zeros((0, UNITS), np.float32)], 0)
    assert report(drift).rows == 0


def test_sampling_covers_all_parts_of_large_gates() -> None:
    """Sampling covers units, pixels and rows evenly, whatever their numbers."""
    t = np.zeros((64, 8, 32, 32), np.float32)
    t[:, 3] = 0.3  # an eighth of all values, every eighth stretch of 1024
    drift = monitor_of(EVEN)
    for _ in range(8):
        drift.observe([t], 64)
    seen = np.array(drift.snapshot()["seen"])[0, 1:]
    assert (seen / seen.sum()).tolist() == pytest.approx([7 / 8, 1 / 8, 0, 0], abs=0.005)
    assert t.size > 10 * MAX_SAMPLED_VALUES


@pytest.mark.parametrize("gates", [1, 8])
def test_each_sample_takes_other_values(gates: int) -> None:
    """A value that is missing in one sample is in another one, also where half of the values fit."""
    t = np.zeros((1, 2 * MAX_SAMPLED_VALUES), np.float32)
    t[0, 0] = 1.0
    drift = monitor_of(*[EVEN] * gates, rows=10**6)
    rises = []
    for _ in range(20):
        before = drift.snapshot()["seen"][0][4]
        drift.observe([t] * gates, 10_000)
        rises.append(drift.snapshot()["seen"][0][4] > before)
    assert any(rises)
    assert not all(rises)


def test_runs_are_sampled_at_a_limited_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most ten runs per second are sampled. After a slow sample, twenty times its duration passes."""
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    drift = monitor_of(EVEN)
    assert drift.should_sample()
    assert not drift.should_sample()
    now += 0.05
    assert not drift.should_sample()
    now += 0.06
    assert drift.should_sample()
    now += 1.0
    drift.observe([even_values(1)], 1)
    now += 19.0
    assert not drift.should_sample()
    now += 1.1
    assert drift.should_sample()


def test_an_unobserved_sample_does_not_delay_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run may have failed."""
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    drift = monitor_of(EVEN)
    assert drift.should_sample()
    now += 0.2
    assert drift.should_sample()


@pytest.mark.parametrize(
    ("inconsistent", "count", "message"),
    [
        (profile(EVEN, EVEN), 1, "expected gates of the model, got 'g1'"),
        (profile(EVEN, [0.5, 0.5]), 2, "expected histograms of one length"),
        (profile([]), 1, "expected histograms of one length"),
        (profile(), 1, "expected histograms of one length"),
    ],
)
def test_an_inconsistent_profile_is_refused(inconsistent: Profile, count: int, message: str) -> None:
    """The public message has no detail."""
    with pytest.raises(ModelFileError, match=message) as error:
        DriftMonitor(inconsistent, gates(count), 1000)
    assert error.value.public_message == "its manifest's profile makes no sense"


class FakeRuntime:
    """A model with one input, whose outputs are as long as that. Records which outputs a run computed."""

    def __init__(self) -> None:
        self.inputs = (SimpleNamespace(name="x"),)
        self.computed: list[tuple[str, ...]] = []

    def run(self, feeds: dict[str, Array], names: tuple[str, ...]) -> list[Array]:
        self.computed.append(names)
        return [even_values(len(feeds["x"])) for _ in names]


SAME, DIFFERENT = np.zeros((2, 3), np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("x", "batch", "padded", "rows"),
    [
        (DIFFERENT, "batch", True, 2),
        (SAME, "batch", False, 2),
        # the copy that the batcher puts next to a single row
        (SAME, "batch", True, 1),
        (np.zeros((3, 3), np.float32), "batch", True, 3),
        (DIFFERENT, None, False, 1),
    ],
)
def test_the_rows_of_a_sampled_run_are_counted(x: Array, batch: str | None, padded: bool, rows: int) -> None:
    """Gates are computed beside the requested outputs, which are all that the caller gets."""
    runtime, drift = FakeRuntime(), monitor_of(EVEN)
    run = sampled_run(cast("Runtime", runtime), drift, batch, pad_single_rows=padded)
    assert len(run({"x": x}, ("y", "z"))) == 2
    assert runtime.computed == [("y", "z", "g0")]
    assert report(drift).rows == rows


def test_runs_with_moved_levers_are_not_sampled() -> None:
    """Their gates say nothing about the traffic. Nor is a run sampled right after another."""
    runtime, drift = FakeRuntime(), monitor_of(EVEN)
    run = sampled_run(cast("Runtime", runtime), drift, "batch", pad_single_rows=False)
    run({"x": SAME, "bias": SAME}, ("y",))
    assert report(drift).rows == 0
    for _ in range(2):
        run({"x": SAME}, ("y",))
    assert runtime.computed == [("y",), ("y", "g0"), ("y",)]
    assert report(drift).rows == 2


def test_a_failing_monitor_fails_no_run(caplog: pytest.LogCaptureFixture) -> None:
    class FailingMonitor(DriftMonitor):
        def observe(self, arrays: Sequence[Array], rows: int) -> None:
            raise ArithmeticError("no")

    drift = FailingMonitor(profile(EVEN), gates(1), 10_000)
    run = sampled_run(cast("Runtime", FakeRuntime()), drift, "batch", pad_single_rows=False)
    assert len(run({"x": SAME}, ("y",))) == 1
    assert "drift cannot be measured" in caplog.text
