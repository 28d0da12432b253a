"""`first_difference`: the first setting by name that differs, with both values."""

from __future__ import annotations

from turnpike.models.training.run_plan import first_difference


def test_the_first_difference_by_name_is_reported() -> None:
    current, recorded = (
        {"width": 9, "lr": 1.0, "kind": "plain"},
        {"width": 8, "lr": 1.0, "kind": "highway"},
    )
    assert first_difference(current, recorded) == 'expected kind "highway", got "plain"'
    assert first_difference(current, recorded, ignored=["kind"]) == "expected width 8, got 9"


def test_equal_settings_have_no_difference() -> None:
    """Tuples equal the lists that JSON makes of them."""
    assert first_difference({"stages": ((16, 2),)}, {"stages": [[16, 2]]}) is None


def test_a_setting_on_one_side_only_differs() -> None:
    """A missing setting is shown as null."""
    assert first_difference({"new": 1}, {}) == "expected new null, got 1"
    assert first_difference({}, {"old": 1}) == "expected old 1, got null"


def test_long_values_are_truncated() -> None:
    """A message stays short."""
    message = first_difference({"labels": ["x" * 500]}, {"labels": []})
    assert message is not None
    assert len(message) < 120
    assert "..." in message
