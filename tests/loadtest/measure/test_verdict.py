"""What makes a load test fail, and what the reader is told beside the figures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from loadtest.ledger import Cell, Ledger, Summary
from loadtest.measure.notes import notes
from loadtest.measure.record import Capacity
from loadtest.measure.verdict import failures
from loadtest.plan import Plan
from loadtest.slo import Slo
from tests.support import loadtest_records as recording

SLO = Slo.parse("p99<50ms, errors<90%")


def ledger(**faults: float) -> Ledger:
    made = Ledger()
    recording.load(
        made,
        recording.BEGUN,
        10,
        60,
        faults={name.replace("_", " "): share for name, share in faults.items()},
    )
    return made


def test_a_test_that_is_passed() -> None:
    """Within the SLO, refusals included that it allows."""
    assert failures(recording.record()) == ()
    assert failures(recording.record(Plan(recording.URL, slo=SLO), ledger(busy=0.5), missed=())) == ()


def test_each_reason_is_a_sentence() -> None:
    """A missed limit, wrong answers however few, and no good answer at all."""
    record = recording.record(missed=SLO.limits)
    assert failures(record) == ("the SLO was missed: p99<50ms", "the SLO was missed: errors<90%")
    lying = Ledger()
    recording.load(lying, recording.BEGUN, 10, 60, faults={"wrong: shape of y": 0.1})
    (said,) = failures(recording.record(Plan(recording.URL), lying))
    assert said.startswith("wrong answers: ")
    assert failures(recording.record(Plan(recording.URL), ledger(busy=1))) == ("no answer was good",)


def test_many_errors_fail_a_test_without_limits() -> None:
    """What answers half of its requests has not passed; a few lost ones are left to who reads."""
    (said,) = failures(recording.record(Plan(recording.URL), ledger(busy=0.5), missed=()))
    assert said.startswith("errors: ")
    assert said.endswith("no --slo that allows so many")
    assert failures(recording.record(Plan(recording.URL), ledger(busy=0.002), missed=())) == ()


def test_a_capacity_that_was_not_found() -> None:
    """A search that ends without a rate has failed."""
    plan = Plan(recording.URL, find_capacity=True, slo=SLO)
    record = recording.record(plan, capacity=Capacity(None, "server"), missed=())
    assert failures(record) == ("no rate kept p99<50ms, errors<90%",)


def test_an_interrupted_test_need_not_have_answers() -> None:
    """Ended in the warm-up there are none, which is nobody's fault."""
    for missed in ((), SLO.limits):
        ended = recording.record(Plan(recording.URL), Ledger(), interrupted=True, missed=missed)
        assert failures(ended) == ()


def test_a_test_that_is_shorter_than_its_warmup_has_failed() -> None:
    """It says nothing of the server, neither good nor bad."""
    (said,) = failures(recording.record(Plan(recording.URL), Ledger(), missed=()))
    assert said == "no request was due after the warm-up"


def told(plan: Plan, *, late: float = 0.0, busy: tuple[float, ...] = (), alike: tuple[str, ...] = ()) -> str:
    """The notes on a load of one request."""
    cell = Cell()
    cell.late.add(late)
    load: Any = SimpleNamespace(target=recording.target(), judge=SimpleNamespace(alike=alike))
    return " ".join(notes(plan, load, Summary(1, cell), busy))


def test_nothing_to_note() -> None:
    """A quiet generator and a wire that is whole need no words."""
    assert told(Plan(recording.URL), busy=(0.5, 0.5, 0.6, 0.9, 0.4, 0.3)) == ""


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("busy for 97% of its time", {"busy": (0.2, 0.96, 0.97, 0.97)}),
        ("'json, 1 row' have the same answer", {"alike": ("json, 1 row",)}),
    ],
)
def test_what_clouds_the_figures_is_said(words: str, options: dict[str, Any]) -> None:
    """Each with what it means."""
    assert words in told(Plan(recording.URL), **options)


def test_a_late_schedule_is_said_of_an_open_loop() -> None:
    """In a closed loop nothing is due before it leaves."""
    assert "left 50 ms late or more" in told(Plan(recording.URL, rate=100), late=0.05)
    assert told(Plan(recording.URL), late=0.05) == ""


def test_a_mix_says_what_it_goes_without() -> None:
    """Of what this model or server has not."""
    assert "goes without gates, lesion" in told(Plan(recording.URL, wire="mixed"))
