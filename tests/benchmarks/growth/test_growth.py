"""The figures that each growth is compared with."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.contestants.contestants import FLOOR
from benchmarks.contestants.networks import NETWORK_S, BenchmarkNetwork
from benchmarks.growth import growth
from benchmarks.growth.plots import PLOTS
from benchmarks.growth.tables import REFERENCE_COLUMNS
from benchmarks.measurement import onnxruntime_ceiling


@pytest.mark.parametrize(("rows", "full_run"), [(1, 16), (3, 48), (5, 80), (40, 120), (64, 128), (128, 128)])
def test_the_fullest_run_has_whole_requests(
    rows: int, full_run: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many of the open requests as fit; a request's share of the run is its share of the rows."""
    measured: list[int] = []

    def measure_ceiling(
        network: BenchmarkNetwork, batches: Sequence[int], **options: Any
    ) -> dict[int, float]:
        measured.extend(batches)
        return dict.fromkeys(batches, 1000.0)

    monkeypatch.setattr(onnxruntime_ceiling, "measure_ceiling", measure_ceiling)
    expected = {"alone_us": 1000.0 * rows, "company_us": 1000.0 * rows}
    assert growth.run_times(NETWORK_S, rows) == expected
    assert measured == sorted({rows, full_run})


def test_the_floor_has_as_many_processes_as_what_is_measured() -> None:
    """One, as the CPU time of several would add up."""
    assert growth.ONE_WORKER.workers == growth.UNBATCHED.workers == growth.FLOOR_ONE_WORKER.workers == 1
    assert dataclasses.replace(growth.FLOOR_ONE_WORKER, workers=2) == FLOOR


def test_each_growth_has_a_table_and_a_plot() -> None:
    """The rows have two tables, for JSON and binary."""
    tables = {name.partition(",")[0] for name in REFERENCE_COLUMNS}
    assert tables == set(growth.GROWTHS) == set(PLOTS)
