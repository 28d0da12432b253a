"""Which settings are tried, in which order, and which of them is best."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.tune_results import BASE, FakeMachine, sample_trial
from turnpike.tune.errors import ServeError
from turnpike.tune.search.candidates import Candidate, batch_variants, cpu_splits
from turnpike.tune.search.measurements import LoadFigures, gain, keeps_slo, median_trial
from turnpike.tune.search.settings_search import (
    MIN_NOISE,
    ComparisonRound,
    SettingsSearch,
    count_trials,
    decide,
)


def pairs(cpus: int, base: Candidate = BASE) -> list[tuple[int, int]]:
    return [(candidate.workers, candidate.threads) for candidate in cpu_splits(base, cpus)]


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
def test_ways_to_split_the_cpus(cpus: int, expected: list[tuple[int, int]]) -> None:
    assert pairs(cpus, replace(BASE, threads=cpus)) == expected


def test_the_base_is_tried_first() -> None:
    own = Candidate(3, 5, 32, 1.0)
    assert cpu_splits(own, 2) == [own, Candidate(1, 2, 32, 1.0), Candidate(2, 1, 32, 1.0)]
    assert max(candidate.workers for candidate in cpu_splits(own, 1024)) == 256


def test_batches_and_delays_are_tried_where_they_matter() -> None:
    assert [(candidate.max_batch, candidate.max_delay_ms) for candidate in batch_variants(BASE, 64)] == [
        (128, 0.0),
        (16, 0.0),
        (32, 0.0),
        (128, 0.5),
        (128, 2.0),
    ]
    assert [candidate.max_batch for candidate in batch_variants(BASE, 1000)] == [128, 16, 32, 64, 128, 128]
    assert [(candidate.max_batch, candidate.max_delay_ms) for candidate in batch_variants(BASE, 8)] == [
        (128, 0.0),
        (128, 0.5),
        (128, 2.0),
    ]
    assert batch_variants(BASE, 1) == [BASE]
    slow = replace(BASE, max_delay_ms=2.0)
    assert [candidate.max_delay_ms for candidate in batch_variants(slow, 8)] == [2.0, 0.0, 0.5]


def test_name_and_options_of_a_candidate() -> None:
    candidate = Candidate(2, 1, 32, 0.5)
    assert candidate.name == "2 x 1, batch 32, delay 0.5 ms"
    assert BASE.name == "1 x 2"
    assert candidate.options == [
        "--workers",
        "2",
        "--threads",
        "1",
        "--max-batch",
        "32",
        "--max-delay-ms",
        "0.5",
    ]
    bf16 = replace(candidate, openvino="bf16")
    assert bf16.name == "2 x 1, batch 32, delay 0.5 ms, bf16 on OpenVINO"
    assert bf16.options == [*candidate.options, "--device", "openvino", "--precision", "bf16"]


def test_every_number_of_users_counts_equally() -> None:
    """Twice the throughput with one user and half of it with 64 cancel out, whatever the rates are."""
    assert gain(sample_trial(200, 100, 5000), sample_trial(100, 100, 10000)) == pytest.approx(1)
    assert gain(sample_trial(200, 200, 200), sample_trial(100, 100, 100)) == pytest.approx(2)
    assert gain(sample_trial(0, 200, 200), sample_trial(100, 100, 100)) == 0
    assert gain(sample_trial(5, 200, 200), sample_trial(0, 200, 200)) > 1


def test_the_majority_of_trials_decides() -> None:
    """One miss in three trials may be a stall; a miss in half of them is not."""
    good, bad = sample_trial(1, 1, 1), sample_trial(1, 1, 1, missed=(16,))
    assert keeps_slo([good, bad, good]) == (True, True, True)
    assert keeps_slo([good, bad]) == (True, False, True)
    assert keeps_slo([bad]) == (True, False, True)


def test_figures_are_medians() -> None:
    trial = median_trial(
        [sample_trial(10, 1, 1, missed=(16,)), sample_trial(30, 1, 1, missed=(16,)), sample_trial(20, 1, 1)]
    )
    assert trial[0].rate == 20
    assert trial[0].p99 == pytest.approx(0.1)
    assert [figures.failures for figures in trial] == [(), ("the SLO was missed",), ()]
    assert median_trial([(LoadFigures(1, 0.0, None, None),)])[0].p99 is None


def best_of(
    gains: dict[Candidate, float], drift: float = 0.0, missed: tuple[Candidate, ...] = ()
) -> Candidate:
    """The best, if each candidate has this gain over the base."""

    def of(candidate: Candidate, rate: float) -> tuple[LoadFigures, ...]:
        return sample_trial(rate, rate, rate, missed=(64,) if candidate in missed else ())

    before, after = of(BASE, 100), of(BASE, 100 * (1 + drift))
    # compared with the base in the middle of its drift
    others = {
        candidate: of(candidate, 100 * times * (1 + drift) ** 0.5) for candidate, times in gains.items()
    }
    trials = {BASE: [before, after]} | {candidate: [trial] for candidate, trial in others.items()}
    return decide(BASE, [ComparisonRound(before, others, after)], trials).best


FAST, SMALLER, BOTH = Candidate(2, 1, 128, 0.0), Candidate(1, 2, 64, 0.0), Candidate(2, 1, 128, 0.5)


def test_the_fastest_is_best() -> None:
    assert best_of({FAST: 1.3, SMALLER: 1.1}) == FAST
    assert best_of({FAST: 0.7, SMALLER: 1.1}) == SMALLER


def test_a_gain_within_the_noise_changes_nothing() -> None:
    assert best_of({FAST: 1.1}, drift=0.15) == BASE
    assert best_of({FAST: 1.1}, drift=0.05) == FAST
    assert best_of({FAST: 1 + MIN_NOISE / 2}) == BASE


def test_of_two_equal_candidates_the_one_closer_to_the_base_is_best() -> None:
    assert best_of({BOTH: 1.31, FAST: 1.3}) == FAST
    assert best_of({BOTH: 1.4, FAST: 1.3}) == BOTH
    # the difference between them is noise, but only one of them is better than the base beyond noise
    assert best_of({BOTH: 1.22, FAST: 1.12}, drift=0.15) == BOTH


def test_of_two_equally_close_candidates_the_faster_is_best() -> None:
    """The difference is noise, but there is nothing else to choose by."""
    tiny = Candidate(1, 2, 32, 0.0)
    assert SMALLER.distance(BASE) == tiny.distance(BASE) == 1
    assert best_of({SMALLER: 1.3, tiny: 1.31}) == best_of({tiny: 1.31, SMALLER: 1.3}) == tiny
    assert best_of({SMALLER: 1.31, tiny: 1.3}) == best_of({tiny: 1.3, SMALLER: 1.31}) == SMALLER


def test_the_slo_comes_before_speed() -> None:
    assert best_of({FAST: 2.0, SMALLER: 1.1}, missed=(FAST,)) == SMALLER
    assert best_of({FAST: 0.5}, missed=(BASE,)) == FAST
    assert best_of({FAST: 1.5}, missed=(BASE, FAST)) == FAST


def test_the_decision_says_whether_the_slo_is_kept() -> None:
    assert not FakeMachine(lambda candidate: 1, missed=lambda candidate: True).search().run().keeps_slo
    assert FakeMachine(lambda candidate: 1).search().run().keeps_slo


def test_the_search_finds_workers_and_batches_together() -> None:
    def speed(candidate: Candidate) -> float:
        return (
            {1: 1.0, 2: 1.4, 4: 1.2}[candidate.workers]
            * (1.2 if candidate.max_batch == 16 else 1)
            / (1 + candidate.max_delay_ms)
        )

    machine = FakeMachine(speed)
    decision = machine.search().run()
    assert decision.best == Candidate(2, 2, 16, 0.0)
    assert decision.gains[decision.best] == pytest.approx(1.68)
    assert decision.noise == MIN_NOISE
    assert machine.best[-1] == decision.best


def test_candidates_that_miss_the_slo_are_not_refined() -> None:
    machine = FakeMachine(
        lambda candidate: candidate.workers, missed=lambda candidate: candidate.workers == 4
    )
    assert machine.search().run().best == Candidate(2, 2, 128, 0.0)
    assert machine.measured.count(Candidate(4, 1, 128, 0.0)) == 1


def test_the_base_is_measured_before_and_after_the_best() -> None:
    machine = FakeMachine(lambda candidate: candidate.workers)
    machine.search(cpus=4, max_rows=1).run()
    four, two = Candidate(4, 1, 128, 0.0), Candidate(2, 2, 128, 0.0)
    assert machine.measured[-8:] == [BASE, four, two, BASE] * 2


def test_a_machine_that_slows_down_does_not_make_the_base_best() -> None:
    """Each step measures a candidate of the step before again, and compares with that."""
    machine = FakeMachine(
        lambda candidate: 1.5 if candidate.workers == 4 else 1.0, drift=[1.0] * 4 + [0.4] * 30
    )
    search = machine.search(max_rows=64)
    search.run()
    assert search.gains[Candidate(4, 1, 16, 0.0)] == pytest.approx(1.5)


def test_an_unsteady_machine_keeps_the_base() -> None:
    machine = FakeMachine(lambda candidate: 1.0, drift=[1.0, 1.3, 0.8, 1.1, 0.9, 1.25, 0.7])
    decision = machine.search().run()
    assert decision.noise > 0.1
    assert decision.best == BASE


def test_candidates_that_do_not_start_are_left_out() -> None:
    machine = FakeMachine(
        lambda candidate: candidate.workers, absent=lambda candidate: candidate.workers == 4
    )
    search = machine.search()
    assert search.run().best.workers == 2
    assert search.start_errors == {Candidate(4, 1, 128, 0.0): "no room"}
    with pytest.raises(ServeError, match="no room"):
        FakeMachine(lambda candidate: 1, absent=lambda candidate: candidate == BASE).search().run()


@pytest.mark.parametrize("cpus", [1, 2, 8])
@pytest.mark.parametrize("max_rows", [1, 8, 64, 500])
def test_the_number_of_trials_is_known_in_advance(cpus: int, max_rows: int) -> None:
    machine = FakeMachine(lambda candidate: candidate.workers)
    base = Candidate(1, cpus, 64, 0.0)
    machine.search(base, cpus, max_rows).run()
    assert len(machine.measured) == count_trials(base, cpus, max_rows)


def test_without_a_choice_only_the_base_is_measured() -> None:
    machine = FakeMachine(lambda candidate: 1)
    base = Candidate(1, 1, 128, 0.0)
    search: SettingsSearch = machine.search(base, 1, 1)
    decision = search.run()
    assert (decision.best, machine.measured) == (base, [base])
