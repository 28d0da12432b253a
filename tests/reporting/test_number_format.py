"""Numbers and times as people read them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnpike.reporting import number_format as fmt


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0000123, "0.0123 ms"),
        (0.00123, "1.23 ms"),
        (0.0123456, "12.3 ms"),
        (0.1, "100 ms"),
        (0.9994, "999 ms"),
        (0.99951, "1 s"),
        (1.234, "1.23 s"),
        (123.4, "123 s"),
        (0.0, "0 ms"),
        (math.nan, "-"),
        (None, "-"),
    ],
)
def test_times_have_three_digits(value: float | None, text: str) -> None:
    assert fmt.seconds(value) == text


def test_numbers_have_three_digits_and_separators() -> None:
    assert [fmt.number(value) for value in (0, 0.256, 12.34, 99.96, 1234.5, None)] == [
        "0",
        "0.256",
        "12.3",
        "100",
        "1,234",
        "-",
    ]
    assert [fmt.share(value) for value in (0.0, 0.00012, 0.125, 1.0, None)] == [
        "0 %",
        "0.012 %",
        "12.5 %",
        "100 %",
        "-",
    ]
    assert [fmt.length(value) for value in (0.5, 45, 150, 3600, 3905)] == [
        "0.5 s",
        "45 s",
        "2 min 30 s",
        "1 h",
        "1 h 5 min",
    ]
    assert [fmt.rows(value) for value in ([1], [32], [1, 1000])] == [
        "1 row",
        "32 rows",
        "1 or 1,000 rows",
    ]


def test_small_numbers_keep_their_digits() -> None:
    """They would be zero with a fixed number of decimals."""
    assert [fmt.number(value, 4) for value in (1.2346e-8, 0.00012346, 0.98766, 12345.6)] == [
        "1.235e-08",
        "0.0001235",
        "0.9877",
        "12,346",
    ]
    assert [fmt.power_of_ten(power) for power in (-12, 0, 3)] == ["10⁻¹²", "10⁰", "10³"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (12, "12 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (5000, "5 kB"),
        (999_499, "999 kB"),
        (999_500, "1 MB"),
        (999_900, "1 MB"),
        (98_528_272, "98.5 MB"),
        (999_499_999, "999 MB"),
        (999_500_000, "1 GB"),
        (2_500_000_000, "2.5 GB"),
        (1_234_000_000_000, "1,234 GB"),
    ],
)
def test_sizes_have_three_digits_and_a_unit(count: int, text: str) -> None:
    assert fmt.size(count) == text


@settings(deadline=None, derandomize=True)
@given(
    st.integers(0, 10**12) | st.integers(-9, 9).map(lambda near: 10**6 + near) | st.integers(990_000, 10**6)
)
def test_a_size_is_a_number_below_1000_near_the_count(count: int) -> None:
    """In every unit but the largest, and without an exponent."""
    amount, unit = fmt.size(count).split(" ")
    value = float(amount.replace(",", ""))
    assert "e" not in amount
    assert value < 1000 or unit == "GB"
    assert value * 1000.0 ** ("B", "kB", "MB", "GB").index(unit) == pytest.approx(count, rel=0.005)


@settings(deadline=None, derandomize=True)
@given(st.floats(1e-9, 1e6))
def test_a_time_is_below_1000_ms(value: float) -> None:
    amount, unit = fmt.seconds(value).split(" ")
    number = float(amount.replace(",", ""))
    assert number < 1000 or unit == "s"
    assert number * (1e-3 if unit == "ms" else 1) == pytest.approx(value, rel=0.005)
