"""The encoder of a table's columns, against values worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from turnpike.models.layers.columns import ColumnEncoder, ColumnSpec

NAN = math.nan


def fitted(specs: list[ColumnSpec], rows: torch.Tensor) -> ColumnEncoder:
    encoder = ColumnEncoder(specs)
    encoder.fit(rows)
    return encoder


def test_blanks_are_the_median_and_have_a_value_of_their_own() -> None:
    """1, 2, 6 and a blank: the median is 2, the mean of the filled column 2.75."""
    rows = torch.tensor([[1.0], [2.0], [6.0], [NAN]])
    encoded = fitted([ColumnSpec("number", blanks=True)], rows)(rows)
    filled = torch.tensor([1.0, 2.0, 6.0, 2.0])
    expected = (filled - 2.75) / filled.std(correction=0)
    torch.testing.assert_close(encoded[:, 0], expected)
    assert encoded[:, 1].tolist() == [0, 0, 0, 1]


def test_words_that_were_never_seen_are_the_average() -> None:
    """Shares 1/2, 1/4, and a quarter of blanks, which are 0 everywhere, too."""
    rows = torch.tensor([[0.0], [0.0], [1.0], [NAN]])
    encoder = fitted([ColumnSpec("category", categories=2, blanks=True)], rows)
    encoded = encoder(torch.tensor([[0.0], [1.0], [2.0], [NAN]]))
    assert encoded.tolist() == [[0.5, -0.25, 0], [-0.5, 0.75, 0], [0, 0, 0], [0, 0, 1]]


def test_dates_are_numbers_with_their_place_in_year_and_week() -> None:
    """Seven days later, only the place in the week is the same."""
    rows = torch.tensor([[0.0], [7.0], [182.62125]])
    encoded = fitted([ColumnSpec("date")], rows)(rows)
    assert encoded.shape == (3, ColumnEncoder.size([ColumnSpec("date")]))
    torch.testing.assert_close(encoded[:, 0], (rows[:, 0] - rows.mean()) / rows.std(correction=0))
    torch.testing.assert_close(encoded[0, 3:], encoded[1, 3:])
    # half a year later the cosine is -1
    torch.testing.assert_close(encoded[:1, 1:3], torch.tensor([[0.0, 1.0]]))
    torch.testing.assert_close(encoded[2:, 1:3], torch.tensor([[0.0, -1.0]]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("value", [3.0, 0.1])
def test_a_constant_column_is_ignored(value: float) -> None:
    rows = torch.tensor([[value, 1.0], [value, 2.0], [value, 4.0]])
    encoder = fitted([ColumnSpec("number"), ColumnSpec("number")], rows)
    assert encoder(torch.tensor([[77.0, 1.0]]))[0, 0] == 0


def test_columns_without_numbers_or_values_are_fitted() -> None:
    """Words alone need no scale; a column that is blank in all training rows is 0."""
    words = torch.tensor([[0.0], [1.0]])
    assert fitted([ColumnSpec("category", categories=2)], words)(words).tolist() == [[0.5, -0.5], [-0.5, 0.5]]
    rows = torch.tensor([[NAN], [NAN]])
    assert fitted([ColumnSpec("number", blanks=True)], rows)(rows).tolist() == [[0, 1], [0, 1]]
