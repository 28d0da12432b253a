"""The search for a capacity, with servers and generators made up."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from loadtest.ledger import Cell, Summary
from loadtest.measure.capacity import CONFIRMATIONS, LOWER, Search, Tried
from loadtest.slo import Slo

SECONDS = 10
LIMITS = "p99<50ms, errors<1%"
Server = Callable[[float], Summary]


def answered(
    rate: float,
    latency: float,
    *,
    slow: float = 0.0,
    slower: float = 1.0,
    faults: float = 0.0,
    sent: float = 1.0,
) -> Summary:
    """Requests at a rate, a share of which took longer, or have no good answer, or were never sent."""
    cell = Cell()
    count = round(rate * SECONDS * sent)
    for number in range(count):
        if number < faults * count:
            cell.faults["503"] += 1
        else:
            cell.latency.add(slower if number >= (1 - slow) * count else latency)
    return Summary(SECONDS, cell)


def bearing(capacity: float) -> Server:
    """A server that is quick up to its capacity, and ever slower beyond."""
    return lambda rate: answered(rate, 0.01 if rate <= capacity else 2.0)


def told(search: Search, rate: float, summary: Summary, late: float = 0.0, waiting: int = 0) -> Tried:
    """Tell it; so many answers came only after the rate's time."""
    return search.tell(rate, summary, late, summary.good - waiting)


def searched(
    server: Server, start: float, limits: str = LIMITS, late: float = 0.0
) -> tuple[Search, list[float]]:
    """Search until it is over; gives the rates that were tried, too."""
    search, rates = Search(Slo.parse(limits), start), []
    while (rate := search.next()) is not None:
        rates.append(rate)
        assert len(rates) < 100
        told(search, rate, server(rate), late)
    return search, rates


@pytest.mark.parametrize("capacity", [30, 100, 333, 777])
@pytest.mark.parametrize("start", [20, 100])
def test_it_comes_close_from_below(capacity: float, start: float) -> None:
    """The rate that is found kept the limits, and one five percent higher did not."""
    search, rates = searched(bearing(capacity), start)
    assert search.rate is not None
    assert capacity / 1.05 <= search.rate <= capacity
    assert search.limited_by == "server"
    assert len(rates) < 20


def test_the_rate_that_is_found_was_confirmed() -> None:
    """The last rate of the search is tried once more, for longer, and only then is it over."""
    search = Search(Slo.parse(LIMITS), 100)
    server, confirmed = bearing(250), []
    while (rate := search.next()) is not None:
        if search.confirming:
            confirmed.append(rate)
        told(search, rate, server(rate))
    assert confirmed == [search.rate]


def test_a_rate_that_does_not_last_is_lowered() -> None:
    """What holds for a short time only is no capacity: the next lower rate is tried for as long."""
    search = Search(Slo.parse(LIMITS), 100)
    confirmed = []
    while (rate := search.next()) is not None:
        if search.confirming:
            confirmed.append(rate)
        told(search, rate, bearing(120 if search.confirming else 200)(rate))
    assert search.rate is not None
    assert search.rate <= 120
    assert len(confirmed) >= 4
    assert [lower / upper for upper, lower in itertools.pairwise(confirmed)] == pytest.approx(
        [LOWER**number for number in range(1, len(confirmed))]
    )


def test_nothing_lasts() -> None:
    """After some confirmations in vain there is no capacity to tell."""
    search = Search(Slo.parse(LIMITS), 100)
    tried = 0
    while (rate := search.next()) is not None:
        tried += search.confirming
        told(search, rate, bearing(0 if search.confirming else 200)(rate))
    assert search.rate is None
    assert tried == CONFIRMATIONS


def test_a_server_that_never_keeps_the_limits() -> None:
    """The search goes down to almost nothing, and ends without a rate."""
    search, rates = searched(bearing(0), 64)
    assert search.rate is None
    assert rates == sorted(rates, reverse=True)


def test_one_disturbance_is_no_limit() -> None:
    """A rate that missed for few of its requests is tried once more before that counts."""
    disturbed = iter([True])

    def server(rate: float) -> Summary:
        if rate > 100 and next(disturbed, False):
            return answered(rate, 0.01, slow=0.05)
        return bearing(400)(rate)

    search, rates = searched(server, 100)
    assert search.rate is not None
    assert search.rate > 380
    assert rates[:3] == [100, 200, 200]


def test_a_lasting_disturbance_is_one() -> None:
    """What misses twice has missed, for however few of its requests."""
    search, rates = searched(lambda rate: answered(rate, 0.01, slow=0.05 if rate > 100 else 0), 100)
    assert search.rate is not None
    assert search.rate <= 100
    assert rates[:3] == [100, 200, 200]


def test_too_much_by_far_is_not_tried_again() -> None:
    """Where half of all requests are too late there is no doubt."""
    _, rates = searched(bearing(150), 100)
    assert rates[:3] == [100, 200, 150]


def test_errors_are_a_limit_too() -> None:
    """Requests that are refused quickly keep no limit on errors."""
    search, _ = searched(lambda rate: answered(rate, 0.01, faults=0.3 if rate > 120 else 0), 100)
    assert search.rate is not None
    assert 110 < search.rate <= 120


def test_a_generator_at_its_limit_proves_nothing() -> None:
    """Requests that left late, or never, are the generator's doing, and it is said so."""
    late, _ = searched(bearing(150), 100, late=0.02)
    assert late.limited_by == "generator"
    few, _ = searched(lambda rate: answered(rate, 0.01, sent=min(1, 150 / rate)), 100)
    assert few.limited_by == "generator"
    assert few.rate is not None
    assert few.rate < 180


def test_what_held_was_not_limited() -> None:
    """A rate that kept the limits did so, however late requests left."""
    search = Search(Slo.parse(LIMITS), 100)
    tried = told(search, 100, bearing(200)(100), late=0.04)
    assert tried.held
    assert not tried.limited


@pytest.mark.parametrize("tries", [(0.04, 0.0), (0.0, 0.04)])
def test_a_generator_that_was_late_in_either_try_leaves_it_open(tries: tuple[float, float]) -> None:
    """A rate that missed twice, and once for want of a generator, is no proof of what the server can do."""
    search = Search(Slo.parse(LIMITS), 100)
    for late in tries:
        told(search, 100, answered(100, 0.01, slow=0.1), late=late)
    assert search.next() == 50
    assert search.limited_by == "generator"


def test_chance_is_no_reason() -> None:
    """Some fewer requests than expected, as a random schedule has them, are enough."""
    search = Search(Slo.parse(LIMITS), 100)
    assert told(search, 100, answered(100, 0.01, sent=0.95)).held


def test_a_queue_that_grows_is_a_miss() -> None:
    """Answers that do not keep pace with requests will miss any limit on times, though not yet."""
    for waiting, held in ((40, True), (60, False)):
        search = Search(Slo.parse("p99<5s"), 100)
        assert told(search, 100, answered(100, 0.5), waiting=waiting).held is held


def test_few_requests_that_wait_are_no_queue() -> None:
    """At a low rate one or two are under way at any time."""
    search = Search(Slo.parse(LIMITS), 1)
    assert told(search, 1, answered(1, 0.01), waiting=2).held


def test_a_limit_on_the_rate_does_not_end_it() -> None:
    """A rate that is asked for cannot be kept while the search is still below it."""
    search, _ = searched(bearing(300), 50, limits="p99<50ms, rate>200")
    assert search.rate is not None
    assert search.rate > 280
