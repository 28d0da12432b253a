"""Misspelled names and those that were probably meant."""

from __future__ import annotations

import time

import pytest

from turnpike.common.similar_names import misspelled, misspelled_text, similar_name


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("creatinine", "creatinin"),
        ("creatinine", "Creatinine"),
        ("heart rate", "HeartRate"),
        ("heart_rate", "heart-rate "),
        ("weight", "wieght"),
        ("age", "Age"),
        ("sensor_1", "sensor1"),
        ("sensor_1", "sensr_1"),
    ],
)
def test_misspelled_columns_are_found(name: str, other: str) -> None:
    assert misspelled([name], ["id", "note", other]) == {name: other}


@pytest.mark.parametrize(
    ("name", "other"),
    [("glucose", "glucagon"), ("sensor_1", "sensor_2"), ("age", "sex"), ("size", "id"), ("hba1c", "hba2c")],
)
def test_other_columns_are_not_misspelled_ones(name: str, other: str) -> None:
    assert misspelled([name], [other]) == {}
    assert misspelled_text([name], [other]) == ""


def test_names_of_separators_are_compared_as_they_are() -> None:
    assert similar_name("_", ["-", "_"]) == "_"
    assert similar_name("color", []) is None


def test_many_names_take_little_time() -> None:
    """Those that differ in case alone are found among any number, and others among the first few."""
    others = [f"{letter * 50}{number}" for number in range(1000) for letter in "abcdefghij"]
    start = time.monotonic()
    assert misspelled([*["z" * 50] * 1000, f"{'E' * 50}999"], others) == {f"{'E' * 50}999": f"{'e' * 50}999"}
    assert time.monotonic() - start < 5  # about 0.1 s, and minutes if each is compared with each
