"""The parity data set."""

from __future__ import annotations

import pytest
import torch

from models.data.parity_bits import draw_rows, parse_parity_name, read_parity
from models.errors import DataError


def test_the_class_is_the_sum_modulo_2() -> None:
    """The expected class is counted here bit by bit."""
    split = draw_rows(5, 200, "any")
    assert split.x.shape == (200, 5)
    assert split.x.dtype == torch.float32
    assert split.y.dtype == torch.int64
    for bits, y in zip(split.x.tolist(), split.y.tolist(), strict=True):
        assert bits.count(1.0) % 2 == y
        assert bits.count(1.0) + bits.count(0.0) == 5


def test_bits_and_classes_are_balanced() -> None:
    """At every position, about half of the bits are ones, and about half of the rows are odd."""
    split = draw_rows(8, 20_000, "any")
    assert (split.x.mean(0) - 0.5).abs().max() < 0.02
    assert (split.y.double().mean() - 0.5).abs() < 0.02


def test_rows_depend_only_on_seed_and_epoch() -> None:
    """Equal seed and epoch give equal rows whatever was drawn before; others give others."""
    data = read_parity(16)
    first = data.training_rows(1, 2)
    torch.manual_seed(99)
    assert torch.equal(first.x, read_parity(16).training_rows(1, 2).x)
    assert len(first) == data.rows_per_epoch == 20_000
    others = [
        data.training_rows(1, 3),
        data.training_rows(2, 1),
        data.training_rows(2, 2),
        data.valid,
        data.test,
        data.train,
    ]
    for other in others:
        rows = min(len(first), len(other))
        assert not torch.equal(first.x[:rows], other.x[:rows])


def test_drawing_does_not_use_the_global_generator() -> None:
    """A network draws the same weights whether or not an epoch was drawn before."""
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    read_parity(4).training_rows(0, 0)
    assert torch.equal(torch.rand(3), expected)


def test_the_dataset_has_name_shape_and_classes() -> None:
    """K bits per row, two classes, and validation and test rows that never change."""
    data = read_parity(12)
    assert data.name == "parity-12"
    assert data.inputs == (12,)
    assert data.labels == ("even", "odd")
    assert torch.equal(data.valid.x, read_parity(12).valid.x)
    assert torch.equal(data.test.x, read_parity(12).test.x)


def test_parity_names_are_parsed() -> None:
    """parity-K gives K, any other name gives None."""
    assert parse_parity_name("parity-16") == 16
    assert [
        parse_parity_name(name)
        for name in ("parity", "parity-", "parity-x", "xparity-3", "parity--3", "mnist")
    ] == [None] * 6


@pytest.mark.parametrize("name", ["parity-0", "parity-1", "parity-1025", "parity-999999999"])
def test_an_invalid_number_of_bits_is_refused(name: str) -> None:
    """One bit has no sum, and there is a maximum."""
    with pytest.raises(DataError, match=rf"{name}: expected 2 to 1024 bits, got \d+"):
        parse_parity_name(name)
