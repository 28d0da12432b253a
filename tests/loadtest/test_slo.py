"""Limits of an SLO: how they are parsed, and when they hold."""

from __future__ import annotations

from collections import Counter

import pytest

from turnpike.loadtest.errors import UsageError
from turnpike.loadtest.ledger import OutcomeTotals, PeriodSummary
from turnpike.loadtest.slo import Slo


def summary(milliseconds: list[float], bad: int = 0, seconds: float = 1) -> PeriodSummary:
    totals = OutcomeTotals(faults=Counter({"503": bad}) if bad else Counter())
    for time in milliseconds:
        totals.latency.add(time / 1e3)
    return PeriodSummary(seconds, totals)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("p99<50ms", True),
        ("p99<40ms", False),
        ("p50<0.021s", True),
        ("p50<20000us", False),
        ("max<41ms", True),
        ("p99.9<41ms", True),
        ("mean<25.1ms", True),
        ("mean<25ms", False),
        ("rate>3", True),
        ("rate>4/s", False),
        ("errors<20.1%", True),
        ("errors<0.2", False),
        ("p99<50ms, errors<0.1%", False),
    ],
)
def test_limits_worked_out_by_hand(text: str, kept: bool) -> None:
    """Latencies of 10, 20, 30 and 40 ms in one second, and one error. Reaching a bound is a miss."""
    with_errors = text if "errors" in text else f"{text}, errors<100%"
    assert (not Slo.parse(with_errors).missed(summary([10, 20, 30, 40], bad=1))) == kept


def test_errors_have_a_default_limit() -> None:
    """A server that quickly refuses most requests must not pass."""
    slo = Slo.parse("p99<50ms")
    assert str(slo) == "p99<50ms, errors<1%"
    assert not slo.missed(summary([10] * 200, bad=1))
    assert [limit.text for limit in slo.missed(summary([10] * 99, bad=1))] == ["errors<1%"]
    assert not Slo.parse("p99<50ms, errors<5%").missed(summary([10] * 99, bad=1))


def test_missed_limits_are_named() -> None:
    slo = Slo.parse("p99 < 5ms,errors<0.1%")
    assert str(slo) == "p99<5ms, errors<0.1%"
    assert [limit.text for limit in slo.missed(summary([10]))] == ["p99<5ms"]


def test_without_requests_no_limit_is_kept() -> None:
    assert len(Slo.parse("p99<50ms, errors<1%, rate>0").missed(summary([]))) == 3


def test_without_good_answers_no_limit_on_times_is_kept() -> None:
    assert [limit.measure for limit in Slo.parse("p99<50ms, errors<100%").missed(summary([], bad=3))] == [
        "p99",
        "errors",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p99",
        "p98<5ms",
        "p99<5",
        "p99<5%",
        "p99>5ms",
        "errors<5ms",
        "errors>1%",
        "rate<5",
        "p99<-5ms",
        "p99<5ms,",
    ],
)
def test_an_invalid_limit_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="--slo: expected limits such as p99<50ms"):
        Slo.parse(text)


@pytest.mark.parametrize("text", ["errors<0", "p99<0ms", "p99<50ms, errors<0.0%"])
def test_a_limit_of_zero_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="expected a limit above 0, because nothing can keep 0, got"):
        Slo.parse(text)
