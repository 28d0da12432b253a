"""Formats numbers for people: three significant digits and a suitable unit."""

from __future__ import annotations

import math

NO_VALUE = "-"


def seconds(value: float | None) -> str:
    """A time: 0.12 ms, 12.3 ms, 1.23 s, 120 s."""
    if value is None or math.isnan(value):
        return NO_VALUE
    if value >= 0.9995:
        return f"{_three_digits(value)} s"
    return f"{_three_digits(value * 1e3)} ms"


def number(value: float | None) -> str:
    """A count or a rate: 0.25, 12.5, 1,250."""
    if value is None or math.isnan(value):
        return NO_VALUE
    return f"{value:,.0f}" if abs(value) >= 99.95 or value == int(value) else _three_digits(value)


def share(value: float | None) -> str:
    """A share as percent: 0 %, 0.02 %, 12.5 %."""
    if value is None or math.isnan(value):
        return NO_VALUE
    return f"{_three_digits(value * 100)} %"


def rows(counts: tuple[int, ...] | list[int]) -> str:
    """Numbers of rows per request: 1 row; 1 or 32 rows."""
    numbers = " or ".join(f"{count:,}" for count in counts)
    return f"{numbers} row" if tuple(counts) == (1,) else f"{numbers} rows"


def length(value: float) -> str:
    """A duration: 45 s, 2 min 30 s, 1 h 5 min."""
    whole = round(value)
    if whole < 120:
        return f"{_three_digits(value)} s"
    hours, minutes, left = whole // 3600, whole % 3600 // 60, whole % 60
    parts = ((hours, "h"), (minutes, "min"), (0 if hours else left, "s"))
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount)


def _three_digits(value: float) -> str:
    """At most three significant digits; all digits of whole thousands."""
    if value == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(value)) + 1e-9))
    text = f"{value:,.{min(digits, 6)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
