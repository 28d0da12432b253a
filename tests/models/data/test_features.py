"""Names, units and ranges of a table's columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from turnpike.models.data.features import describe_features, unit_of
from turnpike.models.data.load import load_dataset
from turnpike.models.errors import ConfigError, DataError


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("mass [kg]", "kg"),
        ("width (mm)", "mm"),
        ("alcohol[%]", "%"),
        ("ratio (a) of b", ""),
        ("proline", ""),
        ("empty []", ""),
    ],
)
def test_a_unit_stands_in_brackets_at_the_end(name: str, unit: str) -> None:
    assert unit_of(name) == unit


def test_columns_are_described_by_their_values() -> None:
    """The mean of equal values stays within their range."""
    rows = torch.tensor([[1.0, 0.1], [3.0, 0.1], [5.0, 0.1]])
    first, second = describe_features(("mass [kg]", "b"), rows)
    assert first == {
        "name": "mass [kg]",
        "unit": "kg",
        "low": 1,
        "high": 5,
        "mean": 3,
        "sd": pytest.approx((8 / 3) ** 0.5),
    }
    assert second["low"] == second["mean"] == second["high"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb\n", "--features: expected 3 names, one per column, got 2"),
        ("a\nb\na\n", "--features: expected distinct names, got 'a' twice"),
        (None, "--features: .* expected a text file with a name per line"),
    ],
)
def test_names_that_do_not_fit_are_refused(tmp_path: Path, text: str | None, message: str) -> None:
    rows, names = tmp_path / "mine.npz", tmp_path / "names.txt"
    np.savez(rows, x=np.zeros((20, 3)), y=np.arange(20) % 2)
    if text is not None:
        names.write_text(text)
    with pytest.raises(DataError, match=message):
        load_dataset(str(rows), features=names)


def test_names_of_an_npz_file_are_read(tmp_path: Path) -> None:
    """Empty lines do not count. Images have no columns, and a table has its own names."""
    rows, names = tmp_path / "mine.npz", tmp_path / "names.txt"
    names.write_text("mass [kg]\n\nage\n")
    np.savez(rows, x=np.zeros((20, 2)), y=np.arange(20) % 2)
    assert load_dataset(str(rows), features=names).features == ("mass [kg]", "age")
    np.savez(rows, x=np.zeros((20, 1, 2, 2)), y=np.arange(20) % 2)
    with pytest.raises(DataError, match="--features: expected rows of one axis, the columns, and mine has"):
        load_dataset(str(rows), features=names)
    with pytest.raises(ConfigError, match="--features: names the columns of an .npz file, and the data is"):
        load_dataset("digits", features=names)
