"""Why a load test fails, and the notes for the reader of its report."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.loadtest_records import START, URL, add_requests, sample_record, sample_target
from turnpike.loadtest.ledger import Ledger, OutcomeTotals, PeriodSummary
from turnpike.loadtest.measure.record import Capacity
from turnpike.loadtest.measure.summary import busiest_share, caveats, failures
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.slo import Slo

SLO = Slo.parse("p99<50ms, errors<90%")


def ledger(**faults: float) -> Ledger:
    result = Ledger()
    add_requests(
        result,
        START,
        10,
        60,
        faults={name.replace("_", " "): share for name, share in faults.items()},
    )
    return result


def test_a_passed_test_has_no_failures() -> None:
    assert failures(sample_record()) == ()
    assert failures(sample_record(LoadPlan(URL, slo=SLO), ledger(busy=0.5), missed_limits=())) == ()


def test_each_reason_is_a_sentence() -> None:
    record = sample_record(missed_limits=SLO.limits)
    assert failures(record) == ("the SLO was missed: p99<50ms", "the SLO was missed: errors<90%")
    wrong = Ledger()
    add_requests(wrong, START, 10, 60, faults={"wrong: shape of y": 0.1})
    (reason,) = failures(sample_record(LoadPlan(URL), wrong))
    assert reason.startswith("wrong answers: ")
    assert failures(sample_record(LoadPlan(URL), ledger(busy=1))) == ("no answer was good",)


def test_many_errors_fail_a_test_without_limits() -> None:
    """A few errors are left for the reader to judge."""
    (reason,) = failures(sample_record(LoadPlan(URL), ledger(busy=0.5), missed_limits=()))
    assert reason.startswith("errors: ")
    assert reason.endswith("and there is no --slo that allows this many")
    assert failures(sample_record(LoadPlan(URL), ledger(busy=0.002), missed_limits=())) == ()


def test_a_capacity_that_was_not_found_is_a_failure() -> None:
    plan = LoadPlan(URL, find_capacity=True, slo=SLO)
    record = sample_record(plan, capacity=Capacity(None, "server"), missed_limits=())
    assert failures(record) == ("no rate kept p99<50ms, errors<90%",)


def test_an_interrupted_test_need_not_have_answers() -> None:
    """A test that is stopped in the warm-up has none."""
    for missed in ((), SLO.limits):
        record = sample_record(LoadPlan(URL), Ledger(), interrupted=True, missed_limits=missed)
        assert failures(record) == ()


def test_a_test_that_is_shorter_than_its_warmup_has_failed() -> None:
    (reason,) = failures(sample_record(LoadPlan(URL), Ledger(), missed_limits=()))
    assert reason == "no request was due after the warm-up"


def notes(
    plan: LoadPlan, *, late: float = 0.0, busy: float | None = None, equal: tuple[str, ...] = ()
) -> str:
    """The notes for a load of one request, joined."""
    totals = OutcomeTotals()
    totals.late.add(late)
    workload: Any = SimpleNamespace(
        target=sample_target(), checker=SimpleNamespace(kinds_with_equal_answers=equal)
    )
    return " ".join(caveats(plan, workload, PeriodSummary(1, totals), busy))


def test_the_busiest_process_counts() -> None:
    """One of many processes may be saturated, but a few busy seconds of it do no harm."""
    assert busiest_share([[0.2] * 10] * 7 + [[0.99] * 10]) == 0.99
    assert busiest_share([[0.2] * 9 + [1.0], [0.3] * 9 + [1.0]]) == 0.3
    assert busiest_share([[], [0.2]]) == 0.2
    assert busiest_share([]) is busiest_share([[], []]) is None


def test_an_ordinary_test_has_no_notes() -> None:
    assert notes(LoadPlan(URL), busy=0.6) == ""


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a sending process used 97% of a CPU or more", {"busy": 0.97}),
        ("'json, 1 row' have the same answer", {"equal": ("json, 1 row",)}),
    ],
)
def test_unusual_figures_are_noted(text: str, options: dict[str, Any]) -> None:
    assert text in notes(LoadPlan(URL), **options)


def test_a_late_schedule_is_noted_in_an_open_loop() -> None:
    """In a closed loop nothing is due before it is sent."""
    assert "was sent 50 ms late or more" in notes(LoadPlan(URL, rate=100), late=0.05)
    assert notes(LoadPlan(URL), late=0.05) == ""


def test_a_mix_names_what_it_leaves_out() -> None:
    assert "leaves out gates, lesion" in notes(LoadPlan(URL, wire="mixed"))
