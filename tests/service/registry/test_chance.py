"""Numbers that look random: the same every time, and spread as they are to be."""

from __future__ import annotations

import numpy as np

from service.registry.probe import SeededRandom

GAMMA, MASK = 0x9E3779B97F4A7C15, 2**64 - 1


def splitmix(counter: int) -> int:
    """SplitMix64 in whole numbers without end, as its authors print it."""
    bits = counter * GAMMA & MASK
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & MASK
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & MASK
    return bits ^ bits >> 31


def test_they_are_those_of_splitmix() -> None:
    """Worked out in Python's own numbers; the next draw goes on where the last one ended."""
    chance = SeededRandom(7)
    drawn = np.concatenate((chance.uniform(3), chance.uniform(2, 2).ravel()))
    expected = [((splitmix((7 << 32) + n) >> 12) + 0.5) / 2**52 for n in range(7)]
    assert drawn.tolist() == expected


def test_a_seed_gives_the_same_again_and_another_seed_others() -> None:
    """What was found out about a model is found out again."""
    assert SeededRandom(1).normal(4, 5).tolist() == SeededRandom(1).normal(4, 5).tolist()
    assert not set(SeededRandom(1).uniform(100)) & set(SeededRandom(2).uniform(100))


def test_they_are_spread_as_they_are_to_be() -> None:
    """Uniform, normal and whole numbers, by their means, deviations and ends."""
    many = 100_000
    uniform = SeededRandom(3).uniform(many)
    assert 0 < uniform.min() < 0.001 < 0.999 < uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.005
    normal = SeededRandom(3).normal(many)
    assert abs(normal.mean()) < 0.02
    assert abs(normal.std() - 1) < 0.02
    assert abs(np.corrcoef(normal[:-1], normal[1:])[0, 1]) < 0.02
    whole = SeededRandom(3).whole(-1, 3, many)
    assert whole.dtype == np.int64
    assert (np.abs(np.bincount(whole + 1) / many - 0.25) < 0.01).all()


def test_there_may_be_none() -> None:
    """Of no rows there are no numbers."""
    assert SeededRandom(3).normal(0, 4).shape == (0, 4)
