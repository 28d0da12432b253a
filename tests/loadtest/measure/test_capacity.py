"""The search for the capacity, with made-up results of steps, and with a simulated server."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.simulated_server import SearchRun, SimulatedServer, between, in_bursts, run_search
from turnpike.loadtest.ledger import OutcomeTotals, PeriodSummary
from turnpike.loadtest.measure.capacity import (
    BACK_OFF,
    LONG,
    MAX_CONFIRMATIONS,
    MAX_STARVED,
    MAX_STEPS,
    CapacitySearch,
    RateResult,
    Step,
)
from turnpike.loadtest.slo import Slo

SECONDS = 10
LIMITS = "p99<50ms, errors<1%"
Server = Callable[[Step], PeriodSummary]


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


def server_with(capacity: float, lasting: float | None = None) -> Server:
    """A server that is fast up to its capacity, which may be another in long steps, and slow beyond it."""

    def run(step: Step) -> PeriodSummary:
        limit = capacity if lasting is None or step.length < LONG else lasting
        return period(step.rate, 0.01 if step.rate <= limit else 2.0)

    return run


def record(
    search: CapacitySearch, step: Step, summary: PeriodSummary, late: float = 0.0, waiting: int = 0
) -> RateResult:
    """Record a step; `waiting` answers arrived only after its time."""
    return search.record(step, summary, late, summary.good - waiting)


def first_step(search: CapacitySearch) -> Step:
    step = search.next_step()
    assert step is not None
    return step


def search_with(server: Server, start: float, limits: str = LIMITS, late: float = 0.0) -> SearchRun:
    """Run a search to its end."""
    search, steps = CapacitySearch(Slo.parse(limits), start), []
    while (step := search.next_step()) is not None:
        steps.append((step, record(search, step, server(step), late)))
    return SearchRun(search, tuple(steps))


def rates(run: SearchRun) -> list[float]:
    return [step.rate for step, _ in run.steps]


def in_third(begin: float, **server: object) -> SearchRun:
    """Run a search while other programs have the CPUs for a third of it, from this share of its time on."""
    seconds = 100.0
    # the disturbance makes the search longer: approach the length of which it is a third
    for _ in range(12):
        disturbed = between(begin * seconds, (begin + 1 / 3) * seconds)
        run = run_search(SimulatedServer(30_000, disturbed=disturbed, **server))  # type: ignore[arg-type]
        seconds = (seconds + run.seconds) / 2
    return run


@pytest.mark.parametrize("capacity", [30, 100, 333, 777])
@pytest.mark.parametrize("start", [20, 100])
def test_the_search_approaches_the_capacity_from_below(capacity: float, start: float) -> None:
    """The result kept the limits, and a rate three percent higher did not."""
    run = search_with(server_with(capacity), start)
    assert run.search.rate is not None
    assert capacity / 1.03 <= run.search.rate <= capacity
    assert run.search.limited_by == "server"
    assert len(run.steps) < 20


@pytest.mark.parametrize("step_seconds", [1, 2, 10])
@pytest.mark.parametrize("capacity", [50, 3000, 30_000])
def test_the_length_of_steps_does_not_change_the_result(capacity: float, step_seconds: int) -> None:
    run = run_search(SimulatedServer(capacity), start=capacity / 50, step_seconds=step_seconds)
    assert run.search.rate == pytest.approx(capacity, rel=0.02)
    assert run.search.limited_by == "server"
    assert len(run.steps) < 20


def test_the_rate_that_is_found_was_confirmed() -> None:
    run = search_with(server_with(250), 100)
    confirming = [step for step, _ in run.steps if step.purpose == "confirming"]
    assert confirming == [Step(run.search.rate or 0.0, LONG, "confirming")]


def test_the_lowest_miss_is_checked_by_a_long_step() -> None:
    run = search_with(server_with(250), 100)
    (check, result) = run.steps[-1]
    assert check == Step(min(step.rate for step, result in run.steps if not result.kept), LONG, "checking")
    assert not result.kept


def test_a_rate_that_does_not_last_is_lowered() -> None:
    """A rate that keeps the SLO only for a short time is not the capacity; a lower one is tried as long."""
    run = search_with(server_with(200, lasting=120), 100)
    assert run.search.rate is not None
    assert 120 / 1.03 <= run.search.rate <= 120
    long = [step.rate for step, _ in run.steps if step.length == LONG]
    # the second try of the first is because it contradicts a shorter step
    assert long[0] == long[1]
    assert long[2:4] == pytest.approx([long[0] * BACK_OFF, long[0] * BACK_OFF**3])


def test_the_number_of_confirmations_is_limited() -> None:
    run = search_with(server_with(200, lasting=0), 100)
    assert run.search.rate is None
    assert len({step.rate for step, _ in run.steps if step.length == LONG}) == MAX_CONFIRMATIONS


def test_a_server_that_never_keeps_the_limits_has_no_rate() -> None:
    run = search_with(server_with(0), 64)
    assert run.search.rate is None
    assert run.search.limited_by == "server"
    assert rates(run) == sorted(rates(run), reverse=True)


def test_one_disturbance_is_ignored() -> None:
    """The same rate is tried once more if most requests were quick."""
    disturbed = iter([True])

    def server(step: Step) -> PeriodSummary:
        if step.rate > 100 and next(disturbed, False):
            return period(step.rate, 0.01, slow=0.05)
        return server_with(400)(step)

    run = search_with(server, 100)
    assert run.search.rate is not None
    assert run.search.rate > 380
    assert rates(run)[:3] == [100, 200, 200]


def test_a_lasting_disturbance_counts() -> None:
    run = search_with(lambda step: period(step.rate, 0.01, slow=0.05 if step.rate > 100 else 0), 100)
    assert run.search.rate is not None
    assert run.search.rate <= 100
    assert rates(run)[:3] == [100, 200, 200]


def test_a_clear_miss_is_not_repeated() -> None:
    assert rates(search_with(server_with(150), 100))[:3] == [100, 200, 150]


def test_errors_limit_the_rate() -> None:
    run = search_with(lambda step: period(step.rate, 0.01, faults=0.3 if step.rate > 120 else 0), 100)
    assert run.search.rate is not None
    assert 110 < run.search.rate <= 120


@pytest.mark.parametrize("begin", [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 2 / 3])
@pytest.mark.parametrize("sees_starvation", [True, False])
def test_cpus_taken_for_a_third_of_the_search_change_little(begin: float, sees_starvation: bool) -> None:
    run = in_third(begin, sees_starvation=sees_starvation)
    assert run.search.rate is not None
    assert 0.9 * 30_000 < run.search.rate < 1.02 * 30_000


def test_the_search_climbs_again_when_a_disturbance_ends() -> None:
    """Other programs leave next to nothing at first, so the search goes far down."""
    run = run_search(SimulatedServer(30_000, disturbed=between(0, 60), left=0.001))
    assert min(rates(run)) < 40
    assert run.search.rate == pytest.approx(30_000, rel=0.03)


def test_a_lower_result_than_a_step_that_was_kept_is_a_lower_bound() -> None:
    """The disturbance begins after the first climb and never ends: nothing says what the server can do."""
    run = run_search(SimulatedServer(30_000, disturbed=lambda time: time > 22, sees_starvation=False))
    highest = max(step.rate for step, result in run.steps if result.kept)
    assert run.search.rate is not None
    assert highest > 1.1 * run.search.rate
    assert run.search.limited_by == "contradiction"
    # the highest rate was tried once more, by a long step
    assert run.steps[-1][0] == Step(highest, LONG, "checking")


def test_a_contradicted_rate_that_is_kept_in_a_long_step_counts() -> None:
    """The same, but the disturbance ends before the highest rate is tried once more."""
    forever = run_search(SimulatedServer(30_000, disturbed=lambda time: time > 22, sees_starvation=False))
    highest = max(step.rate for step, result in forever.steps if result.kept)
    recheck = forever.steps.index((Step(highest, LONG, "checking"), RateResult(highest, LONG, False, False)))
    run = run_search(
        SimulatedServer(30_000, disturbed=between(22, forever.begun[recheck]), sees_starvation=False)
    )
    assert run.search.rate == pytest.approx(30_000, rel=0.03)
    assert run.search.limited_by == "server"


def test_a_starved_generator_says_nothing_about_the_server() -> None:
    """Other programs run all the time; the result is firm only if the load generator does not notice them."""
    for sees_starvation, limited_by in ((True, "generator"), (False, "server")):
        server = SimulatedServer(30_000, disturbed=lambda time: True, sees_starvation=sees_starvation)
        run = run_search(server)
        assert run.search.rate == pytest.approx(0.45 * 30_000, rel=0.03)
        assert run.search.limited_by == limited_by


@pytest.mark.parametrize("mean_seconds", [3, 10, 30])
@pytest.mark.parametrize("seed", range(12))
def test_bursts_of_other_programs_give_no_low_firm_result(mean_seconds: float, seed: int) -> None:
    """Other programs run for a third of the time, again and again."""
    source, bursts, time = random.Random(seed), [], 0.0
    while time < 1000:
        begin = time + source.expovariate(1 / (2 * mean_seconds))
        time = begin + source.expovariate(1 / mean_seconds)
        bursts.append((begin, time))
    run = run_search(SimulatedServer(30_000, disturbed=in_bursts(bursts)))
    assert run.search.rate is not None
    assert run.search.limited_by != "server" or run.search.rate > 0.9 * 30_000
    assert run.search.rate < 1.02 * 30_000


@pytest.mark.parametrize("limit", [1.05, 1.3, 1.8])
def test_a_higher_rate_that_the_generator_could_not_send_makes_a_lower_bound(limit: float) -> None:
    """Even if the server missed a rate in between."""
    run = run_search(SimulatedServer(30_000, generator_limit=limit * 30_000), start=29_000)
    assert run.search.rate == pytest.approx(30_000, rel=0.03)
    assert run.search.limited_by == "generator"


def test_a_slow_generator_limits_the_search() -> None:
    assert search_with(server_with(150), 100, late=0.02).search.limited_by == "generator"
    few = search_with(lambda step: period(step.rate, 0.01, sent=min(1, 150 / step.rate)), 100).search
    assert few.limited_by == "generator"
    assert few.rate is not None
    assert few.rate < 180


def test_a_generator_limit_below_a_rate_that_was_kept_does_not_count() -> None:
    """The generator was late once; then it sent a higher rate in time, which the server kept."""
    late = iter([True])

    def measure(step: Step) -> tuple[PeriodSummary, float]:
        if step.rate == 150 and next(late, False):
            return period(step.rate, 1.0), 0.5
        return server_with(190)(step), 0.0

    search = CapacitySearch(Slo.parse(LIMITS), 100)
    while (step := search.next_step()) is not None:
        record(search, step, *measure(step))
    assert search.rate is not None
    assert search.rate > 184
    assert search.limited_by == "server"


def test_a_rate_that_kept_the_slo_is_not_limited_by_the_generator() -> None:
    search = CapacitySearch(Slo.parse(LIMITS), 100)
    result = record(search, first_step(search), server_with(200)(first_step(search)), late=0.04)
    assert result.kept
    assert not result.generator_limited


def test_a_starved_miss_is_tried_once_more() -> None:
    """It is the load generator's, whatever its lateness; the other programs may be gone at the next try."""
    search = CapacitySearch(Slo.parse(LIMITS), 100)
    summary = period(100, 1.0)
    result = search.record(first_step(search), summary, 0.0, summary.good, MAX_STARVED + 0.01)
    assert result.generator_limited
    assert first_step(search).rate == 100
    result = search.record(first_step(search), summary, 0.0, summary.good, MAX_STARVED)
    assert not result.generator_limited
    assert first_step(search).rate == 50


@pytest.mark.parametrize("tries", [(0.04, 0.0), (0.0, 0.04)])
def test_a_late_generator_in_either_try_is_recorded(tries: tuple[float, float]) -> None:
    """A rate that missed twice, once because the generator was late, says nothing about the server."""
    search = CapacitySearch(Slo.parse(LIMITS), 100)
    for late in tries:
        record(search, first_step(search), period(100, 0.01, slow=0.1), late=late)
    assert first_step(search).rate == 50
    assert search.limited_by == "generator"


def test_steps_that_never_agree_end_the_search() -> None:
    """Short steps miss the SLO at all rates but the first, and long ones keep it at all."""
    run = search_with(
        lambda step: period(step.rate, 0.01 if step.length == LONG or step.rate == 10 else 1.0), 10
    )
    assert len(run.steps) == MAX_STEPS
    assert run.search.rate == max(step.rate for step, result in run.steps if result.kept)
    assert run.search.limited_by == "contradiction"


def test_random_variation_is_not_a_miss() -> None:
    """A random schedule may send somewhat fewer requests than expected."""
    search = CapacitySearch(Slo.parse(LIMITS), 100)
    assert record(search, first_step(search), period(100, 0.01, sent=0.95)).kept


def test_a_queue_that_grows_is_a_miss() -> None:
    """If answers do not keep pace with requests, any limit on times will be missed later."""
    for waiting, kept in ((40, True), (60, False)):
        search = CapacitySearch(Slo.parse("p99<5s"), 100)
        assert record(search, first_step(search), period(100, 0.5), waiting=waiting).kept is kept


def test_a_few_waiting_requests_are_not_a_queue() -> None:
    """At a low rate, one or two requests are in flight at any time."""
    search = CapacitySearch(Slo.parse(LIMITS), 1)
    assert record(search, first_step(search), period(1, 0.01), waiting=2).kept


def test_a_limit_on_the_rate_does_not_end_the_search() -> None:
    """A required rate cannot be kept while the search is still below it."""
    run = search_with(server_with(300), 50, limits="p99<50ms, rate>200")
    assert run.search.rate is not None
    assert run.search.rate > 280
