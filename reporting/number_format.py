"""Formats numbers for people: three significant digits and a suitable unit."""

from __future__ import annotations

import math

NO_VALUE = "-"
DIGITS = 3
# a smaller number is written with an exponent
SMALLEST = 1e-6
# from here on a number is rounded to 1,000, so the next larger unit reads better
ROUNDED_UP = 999.5


def seconds(value: float | None) -> str:
    """A time: 0.12 ms, 12.3 ms, 1.23 s, 120 s."""
    if value is None or math.isnan(value):
        return NO_VALUE
    return f"{number(value)} s" if value * 1e3 >= ROUNDED_UP else f"{number(value * 1e3)} ms"


def number(value: float | None, digits: int = DIGITS) -> str:
    """A count or a rate: 0.25, 12.5, 1,250. All digits before the point are shown."""
    if value is None or math.isnan(value):
        return NO_VALUE
    if value == 0:
        return "0"
    if abs(value) < SMALLEST:
        return f"{value:.{digits}g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)) + 1e-9))
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def share(value: float | None) -> str:
    """A share as percent: 0 %, 0.02 %, 12.5 %."""
    return NO_VALUE if value is None or math.isnan(value) else f"{number(value * 100)} %"


def size(count: int) -> str:
    """A number of bytes: 12 B, 5 kB, 98.5 MB."""
    if count < 1000:
        return f"{count} B"
    amount, unit = count / 1000, "kB"
    for larger in ("MB", "GB"):
        if amount < ROUNDED_UP:
            break
        amount, unit = amount / 1000, larger
    return f"{number(amount)} {unit}"


def rows(counts: tuple[int, ...] | list[int]) -> str:
    """Numbers of rows per request: 1 row; 1 or 32 rows."""
    numbers = " or ".join(f"{count:,}" for count in counts)
    return f"{numbers} row" if tuple(counts) == (1,) else f"{numbers} rows"


def length(value: float) -> str:
    """A duration: 45 s, 2 min 30 s, 1 h 5 min."""
    whole = round(value)
    if whole < 120:
        return f"{number(value)} s"
    hours, minutes, left = whole // 3600, whole % 3600 // 60, whole % 60
    parts = ((hours, "h"), (minutes, "min"), (0 if hours else left, "s"))
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount)


def power_of_ten(power: int) -> str:
    """10⁻⁸, for the ticks of an axis."""
    return f"10{str(power).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
