"""Which settings are tried, in which order, and which of them is best: by figures alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.tune_results import BASE, Machine, trial
from tune.candidates import Candidate, around, shapes
from tune.decision import LEAST_NOISE, Round, decide
from tune.errors import ServeError
from tune.measurements import Figures, gain, kept, middle
from tune.search import Search, planned


def pairs(cpus: int, base: Candidate = BASE) -> list[tuple[int, int]]:
    return [(one.workers, one.threads) for one in shapes(base, cpus)]


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        (1, [(1, 1)]),
        (2, [(1, 2), (2, 1)]),
        (3, [(1, 3), (3, 1)]),
        (4, [(1, 4), (2, 2), (4, 1)]),
        (6, [(1, 6), (2, 3), (6, 1)]),
        (7, [(1, 7), (2, 3), (7, 1)]),
        (12, [(1, 12), (2, 6), (4, 3), (12, 1)]),
        (16, [(1, 16), (2, 8), (4, 4), (8, 2), (16, 1)]),
    ],
)
def test_the_cpus_are_shared_in_every_way_there_is_reason_for(
    cpus: int, expected: list[tuple[int, int]]
) -> None:
    """One worker with all of them, a worker for each, and doubles between that leave few idle."""
    assert pairs(cpus, replace(BASE, threads=cpus)) == expected


def test_the_base_is_tried_first_whatever_it_is() -> None:
    """A user's own settings are what the others are compared with; batch and wait stay as they are."""
    own = Candidate(3, 5, 32, 1.0)
    assert shapes(own, 2) == [own, Candidate(1, 2, 32, 1.0), Candidate(2, 1, 32, 1.0)]
    assert max(one.workers for one in shapes(own, 1024)) == 256


def test_batches_and_waits_are_tried_where_they_can_matter() -> None:
    """No larger batch than there are rows in flight, no wait for others who never come, nothing twice."""
    assert [(one.max_batch, one.max_delay_ms) for one in around(BASE, 64)] == [
        (128, 0.0),
        (16, 0.0),
        (32, 0.0),
        (128, 0.5),
        (128, 2.0),
    ]
    assert [one.max_batch for one in around(BASE, 1000)] == [128, 16, 32, 64, 128, 128]
    assert [(one.max_batch, one.max_delay_ms) for one in around(BASE, 8)] == [
        (128, 0.0),
        (128, 0.5),
        (128, 2.0),
    ]
    assert around(BASE, 1) == [BASE]
    slow = replace(BASE, max_delay_ms=2.0)
    assert [one.max_delay_ms for one in around(slow, 8)] == [2.0, 0.0, 0.5]


def test_a_candidate_has_a_name_and_words() -> None:
    """Short in tables; on the command line as serve takes it."""
    one = Candidate(2, 1, 32, 0.5)
    assert one.name == "2 x 1, batch 32, wait 0.5 ms"
    assert BASE.name == "1 x 2"
    assert one.words == ["--workers", "2", "--threads", "1", "--max-batch", "32", "--max-delay-ms", "0.5"]


def test_every_number_of_users_weighs_alike() -> None:
    """Twice as much for one user and half as much for 64 is no gain, whatever their rates are."""
    assert gain(trial(200, 100, 5000), trial(100, 100, 10000)) == pytest.approx(1)
    assert gain(trial(200, 200, 200), trial(100, 100, 100)) == pytest.approx(2)
    assert gain(trial(0, 200, 200), trial(100, 100, 100)) == 0
    assert gain(trial(5, 200, 200), trial(0, 200, 200)) > 1


def test_most_of_the_trials_decide_what_is_kept() -> None:
    """One trial of three that misses is a stall; half of them are not."""
    good, bad = trial(1, 1, 1), trial(1, 1, 1, missed=(16,))
    assert kept([good, bad, good]) == (True, True, True)
    assert kept([good, bad]) == (True, False, True)
    assert kept([bad]) == (True, False, True)


def test_figures_are_medians() -> None:
    """And what failed in most of the trials is said, once."""
    one = middle([trial(10, 1, 1, missed=(16,)), trial(30, 1, 1, missed=(16,)), trial(20, 1, 1)])
    assert one[0].rate == 20
    assert one[0].p99 == pytest.approx(0.1)
    assert [figures.failures for figures in one] == [(), ("the SLO was missed",), ()]
    assert middle([(Figures(1, 0.0, None, None),)])[0].p99 is None


def decided(
    gains: dict[Candidate, float], drift: float = 0.0, missed: tuple[Candidate, ...] = ()
) -> Candidate:
    """The best, where each candidate does so many times as much as the base."""

    def of(candidate: Candidate, rate: float) -> tuple[Figures, ...]:
        return trial(rate, rate, rate, missed=(64,) if candidate in missed else ())

    before, after = of(BASE, 100), of(BASE, 100 * (1 + drift))
    # beside the base as it is in the middle
    others = {one: of(one, 100 * times * (1 + drift) ** 0.5) for one, times in gains.items()}
    trials = {BASE: [before, after]} | {one: [figures] for one, figures in others.items()}
    return decide(BASE, [Round(before, others, after)], trials).best


FAST, SMALLER, BOTH = Candidate(2, 1, 128, 0.0), Candidate(1, 2, 64, 0.0), Candidate(2, 1, 128, 0.5)


def test_the_fastest_is_best() -> None:
    """Where nothing else tells them apart."""
    assert decided({FAST: 1.3, SMALLER: 1.1}) == FAST
    assert decided({FAST: 0.7, SMALLER: 1.1}) == SMALLER


def test_what_is_within_the_noise_is_no_reason_to_change() -> None:
    """The base stays; the same gain on a machine that is less noisy is one."""
    assert decided({FAST: 1.1}, drift=0.15) == BASE
    assert decided({FAST: 1.1}, drift=0.05) == FAST
    assert decided({FAST: 1 + LEAST_NOISE / 2}) == BASE


def test_of_two_that_are_alike_the_one_nearer_to_the_base_is_best() -> None:
    """Fewer changes for the same; a change that brings more than noise is taken."""
    assert decided({BOTH: 1.31, FAST: 1.3}) == FAST
    assert decided({BOTH: 1.4, FAST: 1.3}) == BOTH
    # which of them is better is noise, but only one of them is better than the base for sure
    assert decided({BOTH: 1.22, FAST: 1.12}, drift=0.15) == BOTH


def test_the_slo_goes_before_speed() -> None:
    """What misses it is not best, be it the base; where all miss it, the fastest comes nearest."""
    assert decided({FAST: 2.0, SMALLER: 1.1}, missed=(FAST,)) == SMALLER
    assert decided({FAST: 0.5}, missed=(BASE,)) == FAST
    assert decided({FAST: 1.5}, missed=(BASE, FAST)) == FAST


def test_it_is_said_when_nothing_keeps_the_slo() -> None:
    """What is best then is told as what it is."""
    assert not Machine(lambda one: 1, missed=lambda one: True).search().run().kept
    assert Machine(lambda one: 1).search().run().kept


def test_the_search_finds_workers_and_batches_together() -> None:
    """First the ways to share the CPUs, then batches and waits around the best of them."""

    def speed(one: Candidate) -> float:
        return (
            {1: 1.0, 2: 1.4, 4: 1.2}[one.workers]
            * (1.2 if one.max_batch == 16 else 1)
            / (1 + one.max_delay_ms)
        )

    machine = Machine(speed)
    decision = machine.search().run()
    assert decision.best == Candidate(2, 2, 16, 0.0)
    assert decision.gains[decision.best] == pytest.approx(1.68)
    assert decision.noise == LEAST_NOISE
    assert machine.best[-1] == decision.best


def test_what_misses_the_slo_leads_nowhere() -> None:
    """Batches and waits are tried around what keeps it, however much faster another is."""
    machine = Machine(lambda one: one.workers, missed=lambda one: one.workers == 4)
    assert machine.search().run().best == Candidate(2, 2, 128, 0.0)
    assert machine.measured.count(Candidate(4, 1, 128, 0.0)) == 1


def test_the_base_is_measured_before_and_after_the_best() -> None:
    """What is close is compared in turn, twice, as machines drift."""
    machine = Machine(lambda one: one.workers)
    machine.search(cpus=4, most_rows=1).run()
    four, two = Candidate(4, 1, 128, 0.0), Candidate(2, 2, 128, 0.0)
    assert machine.measured[-8:] == [BASE, four, two, BASE] * 2


def test_a_machine_that_slows_down_does_not_make_the_base_best() -> None:
    """Each step has something that was measured before, and is compared with that."""
    machine = Machine(lambda one: 1.5 if one.workers == 4 else 1.0, drift=[1.0] * 4 + [0.4] * 30)
    search = machine.search(most_rows=64)
    search.run()
    assert search.standing[Candidate(4, 1, 16, 0.0)] == pytest.approx(1.5)


def test_a_machine_that_wavers_has_no_best() -> None:
    """Gains of chance are called noise."""
    machine = Machine(lambda one: 1.0, drift=[1.0, 1.3, 0.8, 1.1, 0.9, 1.25, 0.7])
    decision = machine.search().run()
    assert decision.noise > 0.1
    assert decision.best == BASE


def test_what_does_not_start_is_left_out() -> None:
    """As where there is not memory enough for so many workers; the reason is kept."""
    machine = Machine(lambda one: one.workers, absent=lambda one: one.workers == 4)
    search = machine.search()
    assert search.run().best.workers == 2
    assert search.failed == {Candidate(4, 1, 128, 0.0): "no room"}
    with pytest.raises(ServeError, match="no room"):
        Machine(lambda one: 1, absent=lambda one: one == BASE).search().run()


@pytest.mark.parametrize("cpus", [1, 2, 8])
@pytest.mark.parametrize("most_rows", [1, 8, 64, 500])
def test_the_number_of_trials_is_known_beforehand(cpus: int, most_rows: int) -> None:
    """The bar ends where the search does."""
    machine = Machine(lambda one: one.workers)
    base = Candidate(1, cpus, 64, 0.0)
    machine.search(base, cpus, most_rows).run()
    assert len(machine.measured) == planned(base, cpus, most_rows)


def test_where_there_is_no_choice_nothing_is_measured_twice() -> None:
    """One CPU and one caller: the base it is."""
    machine = Machine(lambda one: 1)
    base = Candidate(1, 1, 128, 0.0)
    search: Search = machine.search(base, 1, 1)
    decision = search.run()
    assert (decision.best, machine.measured) == (base, [base])
