"""Differences between settings: the first by name, both sides said, tuples and lists alike."""

from __future__ import annotations

from models.training.run_plan import first_difference


def test_the_first_difference_by_name_is_said() -> None:
    """What was there before and what is asked for now, in an order that does not change."""
    now, then = {"width": 9, "lr": 1.0, "kind": "plain"}, {"width": 8, "lr": 1.0, "kind": "highway"}
    assert first_difference(now, then) == 'kind "highway", and "plain" is asked for now'
    assert first_difference(now, then, ignored=["kind"]) == "width 8, and 9 is asked for now"


def test_equal_settings_have_none() -> None:
    """JSON's lists are the tuples that they were made of."""
    assert first_difference({"stages": ((16, 2),)}, {"stages": [[16, 2]]}) is None


def test_a_setting_on_one_side_only_differs() -> None:
    """Missing and null are one to a reader: the setting was not there."""
    assert first_difference({"new": 1}, {}) == "new null, and 1 is asked for now"
    assert first_difference({}, {"old": 1}) == "old 1, and null is asked for now"


def test_long_values_are_cut() -> None:
    """A message stays a line."""
    said = first_difference({"labels": ["x" * 500]}, {"labels": []})
    assert said is not None
    assert len(said) < 120
    assert "..." in said
