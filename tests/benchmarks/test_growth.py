"""What a growth is measured beside."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks import ceiling, growth
from benchmarks.contestants import FLOOR
from benchmarks.growth_picture import PICTURES
from benchmarks.growth_tables import BESIDE
from benchmarks.nets import Net, S


@pytest.mark.parametrize(("rows", "full"), [(1, 16), (3, 48), (5, 80), (40, 120), (64, 128), (128, 128)])
def test_the_fullest_run_has_whole_requests(rows: int, full: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that wait, as many as fit into a run; a request's part of it is what its rows are of all."""
    asked: list[int] = []

    def rates(net: Net, batches: Sequence[int], **of: Any) -> dict[int, float]:
        asked.extend(batches)
        return dict.fromkeys(batches, 1000.0)

    monkeypatch.setattr(ceiling, "rates", rates)
    assert growth.runs(S, rows) == {"alone_us": 1000.0 * rows, "company_us": 1000.0 * rows}
    assert asked == sorted({rows, full})


def test_the_floor_has_as_many_processes_as_what_is_measured() -> None:
    """One, as costs of several would add up."""
    assert growth.ONE.workers == growth.ALONE.workers == growth.FLOOR_OF_ONE.workers == 1
    assert dataclasses.replace(growth.FLOOR_OF_ONE, workers=2) == FLOOR


def test_each_growth_is_told_and_drawn() -> None:
    """Rows in two forms."""
    assert {what.partition(",")[0] for what in BESIDE} == set(growth.GROWTHS) == set(PICTURES)
