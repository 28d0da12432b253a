"""Splitting a data set into training, validation and test rows."""

from __future__ import annotations

import pytest
import torch

from turnpike.models.data.dataset import RawDataset, Split, seeded_generator, split_dataset
from turnpike.models.errors import DataError


def numbered(rows: int, first: int = 0) -> Split:
    """Rows that contain their own number, to see which split each ends up in."""
    numbers = torch.arange(first, first + rows)
    return Split(numbers.float().unsqueeze(1), numbers % 2)


def source(rows: int = 100, test: int | None = None) -> RawDataset:
    official = None if test is None else numbered(test, first=rows)
    return RawDataset("numbered", numbered(rows), official, ("even", "odd"), "numbers")


def numbers(split: Split) -> list[int]:
    return split.x.flatten().int().tolist()


def test_every_row_is_in_exactly_one_split() -> None:
    """The three splits together are the rows, each once, in their order, with their own class."""
    data = split_dataset(source(100), test_fraction=None, valid_fraction=0.25, seed=0)
    assert (len(data.train), len(data.valid), len(data.test)) == (60, 20, 20)
    parts = (data.train, data.valid, data.test)
    assert sorted(number for part in parts for number in numbers(part)) == list(range(100))
    assert all(numbers(part) == sorted(numbers(part)) for part in parts)
    assert all(number % 2 == y for part in parts for number, y in zip(numbers(part), part.y, strict=True))


def test_the_official_test_rows_are_kept() -> None:
    data = split_dataset(source(50, test=10), test_fraction=None, valid_fraction=0.1, seed=3)
    assert numbers(data.test) == list(range(50, 60))
    assert (len(data.train), len(data.valid)) == (45, 5)


def test_a_test_fraction_shuffles_all_rows_together() -> None:
    """With a test fraction, official test rows and training rows are pooled before the split."""
    data = split_dataset(source(60, test=40), test_fraction=0.25, valid_fraction=0.2, seed=0)
    assert (len(data.train), len(data.valid), len(data.test)) == (60, 15, 25)
    official = set(range(60, 100))
    assert official & set(numbers(data.test))
    assert official & set(numbers(data.train))


def test_the_seed_determines_the_splits() -> None:
    """Another seed splits differently, except for the fixed test rows."""
    one, again, other = (
        split_dataset(source(), test_fraction=None, valid_fraction=0.2, seed=seed) for seed in (1, 1, 2)
    )
    assert numbers(one.valid) == numbers(again.valid)
    assert numbers(one.valid) != numbers(other.valid)
    assert numbers(one.test) == numbers(other.test)
    drawn = [split_dataset(source(), test_fraction=0.2, valid_fraction=0.2, seed=seed) for seed in (1, 2)]
    assert numbers(drawn[0].test) != numbers(drawn[1].test)


def test_held_out_rows_are_drawn_from_the_whole_data() -> None:
    """A held-out split is random and not the start or the end of the data."""
    held = numbers(split_dataset(source(1000), test_fraction=None, valid_fraction=0.1, seed=0).valid)
    assert min(held) < 100
    assert max(held) > 900


def test_small_data_has_a_row_in_each_split() -> None:
    """Three rows are enough: one per split."""
    data = split_dataset(source(3), test_fraction=None, valid_fraction=0.01, seed=0)
    assert (len(data.train), len(data.valid), len(data.test)) == (1, 1, 1)


@pytest.mark.parametrize("rows", [1, 2])
def test_too_few_rows_are_refused(rows: int) -> None:
    with pytest.raises(DataError, match=r"numbered: holding out .* of 1 rows leaves none"):
        split_dataset(source(rows), test_fraction=None, valid_fraction=0.5, seed=0)


def test_a_dataset_knows_its_shape_and_classes() -> None:
    """The row's shape and the number of classes come from the data; by default, every epoch has the same
    rows.
    """
    data = split_dataset(source(), test_fraction=None, valid_fraction=0.2, seed=0)
    assert data.inputs == (1,)
    assert data.classes == 2
    assert data.training_rows(5, 7) is data.train


def test_generators_of_similar_keys_differ() -> None:
    """(0, 1) and (1, 0) give different numbers, as do a number and its text; equal keys give equal ones."""
    keys: list[tuple[object, ...]] = [(0, 1), (1, 0), ("0", 1), (-1,)]
    draws = [torch.rand(4, generator=seeded_generator(*key)) for key in keys]
    assert len({tuple(draw.tolist()) for draw in draws}) == len(keys)
    assert torch.equal(draws[0], torch.rand(4, generator=seeded_generator(0, 1)))


def test_official_test_rows_are_pooled_with_their_texts() -> None:
    """A text stays with its row."""
    rows, test = (
        Split(part.x, part.y, tuple(map(str, numbers(part)))) for part in (numbered(6), numbered(4, first=6))
    )
    raw = RawDataset("numbered", rows, test, ("even", "odd"), "text")
    data = split_dataset(raw, test_fraction=0.5, valid_fraction=0.2, seed=0)
    for split in (data.train, data.valid, data.test):
        assert split.texts == tuple(map(str, numbers(split)))
