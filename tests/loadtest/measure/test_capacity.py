"""The search for the capacity, with made-up servers and load generators."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from turnpike.loadtest.ledger import OutcomeTotals, PeriodSummary
from turnpike.loadtest.measure.capacity import BACK_OFF, MAX_CONFIRMATIONS, CapacitySearch, RateResult
from turnpike.loadtest.slo import Slo

SECONDS = 10
LIMITS = "p99<50ms, errors<1%"
Server = Callable[[float], PeriodSummary]


def period(
    rate: float,
    latency: float,
    *,
    slow: float = 0.0,
    slower: float = 1.0,
    faults: float = 0.0,
    sent: float = 1.0,
) -> PeriodSummary:
    """Requests at a rate; shares of them are slow, have faults, or were not sent at all."""
    totals = OutcomeTotals()
    count = round(rate * SECONDS * sent)
    for number in range(count):
        if number < faults * count:
            totals.faults["503"] += 1
        else:
            totals.latency.add(slower if number >= (1 - slow) * count else latency)
    return PeriodSummary(SECONDS, totals)


def server_with(capacity: float) -> Server:
    """A server that is fast up to its capacity, and slow beyond it."""
    return lambda rate: period(rate, 0.01 if rate <= capacity else 2.0)


def record(
    search: CapacitySearch, rate: float, summary: PeriodSummary, late: float = 0.0, waiting: int = 0
) -> RateResult:
    """Record a rate; `waiting` answers arrived only after its time."""
    return search.record(rate, summary, late, summary.good - waiting)


def run_search(
    server: Server, start: float, limits: str = LIMITS, late: float = 0.0
) -> tuple[CapacitySearch, list[float]]:
    """Run a search to its end; returns it and the rates that it tried."""
    search, rates = CapacitySearch(Slo.parse(limits), start), []
    while (rate := search.next_rate()) is not None:
        rates.append(rate)
        assert len(rates) < 100
        record(search, rate, server(rate), late)
    return search, rates


@pytest.mark.parametrize("capacity", [30, 100, 333, 777])
@pytest.mark.parametrize("start", [20, 100])
def test_the_search_approaches_the_capacity_from_below(capacity: float, start: float) -> None:
    """The result kept the limits, and a rate three percent higher did not."""
    search, rates = run_search(server_with(capacity), start)
    assert search.rate is not None
    assert capacity / 1.03 <= search.rate <= capacity
    assert search.limited_by == "server"
    assert len(rates) < 20


def test_the_rate_that_is_found_was_confirmed() -> None:
    search = CapacitySearch(Slo.parse(LIMITS), 100)
    server, confirmed = server_with(250), []
    while (rate := search.next_rate()) is not None:
        if search.confirming:
            confirmed.append(rate)
        record(search, rate, server(rate))
    assert confirmed == [search.rate]


def test_a_rate_that_does_not_last_is_lowered() -> None:
    """A rate that keeps the SLO only for a short time is not the capacity; a lower one is tried as long."""
    search = CapacitySearch(Slo.parse(LIMITS), 100)
    confirmed = []
    while (rate := search.next_rate()) is not None:
        if search.confirming:
            confirmed.append(rate)
        record(search, rate, server_with(120 if search.confirming else 200)(rate))
    assert search.rate is not None
    assert search.rate <= 120
    assert len(confirmed) >= 4
    assert [lower / upper for upper, lower in itertools.pairwise(confirmed)] == pytest.approx(
        [BACK_OFF**number for number in range(1, len(confirmed))]
    )


def test_the_number_of_confirmations_is_limited() -> None:
    search = CapacitySearch(Slo.parse(LIMITS), 100)
    confirmations = 0
    while (rate := search.next_rate()) is not None:
        confirmations += search.confirming
        record(search, rate, server_with(0 if search.confirming else 200)(rate))
    assert search.rate is None
    assert confirmations == MAX_CONFIRMATIONS


def test_a_server_that_never_keeps_the_limits_has_no_rate() -> None:
    search, rates = run_search(server_with(0), 64)
    assert search.rate is None
    assert rates == sorted(rates, reverse=True)


def test_one_disturbance_is_ignored() -> None:
    """The same rate is tried once more if most requests were quick."""
    disturbed = iter([True])

    def server(rate: float) -> PeriodSummary:
        if rate > 100 and next(disturbed, False):
            return period(rate, 0.01, slow=0.05)
        return server_with(400)(rate)

    search, rates = run_search(server, 100)
    assert search.rate is not None
    assert search.rate > 380
    assert rates[:3] == [100, 200, 200]


def test_a_lasting_disturbance_counts() -> None:
    search, rates = run_search(lambda rate: period(rate, 0.01, slow=0.05 if rate > 100 else 0), 100)
    assert search.rate is not None
    assert search.rate <= 100
    assert rates[:3] == [100, 200, 200]


def test_a_clear_miss_is_not_repeated() -> None:
    _, rates = run_search(server_with(150), 100)
    assert rates[:3] == [100, 200, 150]


def test_errors_limit_the_rate() -> None:
    search, _ = run_search(lambda rate: period(rate, 0.01, faults=0.3 if rate > 120 else 0), 100)
    assert search.rate is not None
    assert 110 < search.rate <= 120


def test_a_slow_generator_limits_the_search() -> None:
    late, _ = run_search(server_with(150), 100, late=0.02)
    assert late.limited_by == "generator"
    few, _ = run_search(lambda rate: period(rate, 0.01, sent=min(1, 150 / rate)), 100)
    assert few.limited_by == "generator"
    assert few.rate is not None
    assert few.rate < 180


def test_a_rate_that_kept_the_slo_is_not_limited_by_the_generator() -> None:
    search = CapacitySearch(Slo.parse(LIMITS), 100)
    result = record(search, 100, server_with(200)(100), late=0.04)
    assert result.kept
    assert not result.generator_limited


@pytest.mark.parametrize("tries", [(0.04, 0.0), (0.0, 0.04)])
def test_a_late_generator_in_either_try_is_recorded(tries: tuple[float, float]) -> None:
    """A rate that missed twice, once because the generator was late, says nothing about the server."""
    search = CapacitySearch(Slo.parse(LIMITS), 100)
    for late in tries:
        record(search, 100, period(100, 0.01, slow=0.1), late=late)
    assert search.next_rate() == 50
    assert search.limited_by == "generator"


def test_random_variation_is_not_a_miss() -> None:
    """A random schedule may send somewhat fewer requests than expected."""
    search = CapacitySearch(Slo.parse(LIMITS), 100)
    assert record(search, 100, period(100, 0.01, sent=0.95)).kept


def test_a_queue_that_grows_is_a_miss() -> None:
    """If answers do not keep pace with requests, any limit on times will be missed later."""
    for waiting, kept in ((40, True), (60, False)):
        search = CapacitySearch(Slo.parse("p99<5s"), 100)
        assert record(search, 100, period(100, 0.5), waiting=waiting).kept is kept


def test_a_few_waiting_requests_are_not_a_queue() -> None:
    """At a low rate, one or two requests are in flight at any time."""
    search = CapacitySearch(Slo.parse(LIMITS), 1)
    assert record(search, 1, period(1, 0.01), waiting=2).kept


def test_a_limit_on_the_rate_does_not_end_the_search() -> None:
    """A required rate cannot be kept while the search is still below it."""
    search, _ = run_search(server_with(300), 50, limits="p99<50ms, rate>200")
    assert search.rate is not None
    assert search.rate > 280
