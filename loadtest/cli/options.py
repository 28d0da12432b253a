"""What can be asked of a load test, as words: read alike from our command line and from locust's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from loadtest.errors import UsageError
from loadtest.plan import FORMS, WIRES, Plan, option
from loadtest.slo import Slo

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class Option:
    """One field of a plan; a flag where there is no value to read."""

    field: str
    words: str
    metavar: str = ""
    read: Callable[[str, str], Any] | None = None
    typed: str = ""  # as it is typed, where that is not the field's name

    @property
    def name(self) -> str:
        return self.typed or option(self.field)


def whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name}: expected a whole number, got {text!r}") from None


def number(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise UsageError(f"{name}: expected a number, got {text!r}") from None
    if found != found or found in (float("inf"), float("-inf")):
        raise UsageError(f"{name}: expected a finite number, got {text!r}")
    return found


def seconds(name: str, text: str) -> float:
    """A time: `90`, `60s`, `5m`, `1h30m`, `500ms`."""
    parts = _PART.findall(text)
    if parts and "".join(amount + unit for amount, unit in parts) == text:
        return sum(float(amount) * UNITS[unit] for amount, unit in parts)
    try:
        return number(name, text)
    except UsageError:
        raise UsageError(f"{name}: expected a time such as 60s, 5m or 1h, got {text!r}") from None


def counts(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{name}: expected whole numbers with commas, such as 1,32, got {text!r}") from None


def key(name: str, text: str) -> str:
    """The first key of a file that holds one a line."""
    try:
        lines = Path(text).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{name}: expected a file that can be read, got {text!r} ({error})") from None
    for line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            return line.strip()
    raise UsageError(f"{name}: expected a key in {text!r}, got a file without one")


def word(name: str, text: str) -> str:
    return text


def path(name: str, text: str) -> Path:
    return Path(text)


def slo(name: str, text: str) -> Slo:
    return Slo.parse(text)


OPTIONS = (
    Option("model", "The model; may be left out where the server has one only.", "NAME", word),
    Option("version", "Its version; the one that the server chooses if left out.", "VERSION", word),
    Option("wire", "How requests are written.", "|".join(WIRES), word),
    Option("rows", "Rows of a request; of several numbers, each goes as often.", "N,N", counts),
    Option("users", "Closed loop: users, each of which waits for its answer and sends again.", "N", whole),
    Option("spawn_rate", "Users that come in a second.", "NUMBER", number),
    Option("duration", "How long, after the warm-up.", "TIME", seconds),
    Option("warmup", "Time at the start that figures leave out.", "TIME", seconds),
    Option("shape", "How users, or the rate, go up and down.", "|".join(FORMS), word),
    Option("rate", "Open loop: requests a second that leave on schedule, answered or not.", "NUMBER", number),
    Option("find_capacity", "Search for the highest rate that keeps --slo."),
    Option("step_seconds", "How long each rate of the search is tried.", "TIME", seconds),
    Option("slo", "Limits, such as 'p99<50ms, errors<0.1%'; one missed is exit status 1.", "LIMITS", slo),
    Option("processes", "Processes that send.", "N", whole),
    Option("samples", "Different requests of each kind.", "N", whole),
    Option("length", "Size of dimensions, other than the rows, that the model leaves free.", "N", whole),
    Option("data", "Rows of your own: .npy, or .npz with an array for each input.", "FILE", path),
    Option("seed", "What rows and times are drawn from.", "N", whole),
    Option("tolerance", "How far an answer may be from the reference answer.", "NUMBER", number),
    Option("timeout", "How long an answer may take.", "TIME", seconds),
    Option("api_key", "File of API keys, one a line; the first is used.", "FILE", key, "--api-key-file"),
    Option("insecure", "Accept any TLS certificate."),
    Option("report", "Write report.html and report.json into this folder.", "DIR", path),
)
_DEFAULTS = {field.name: field.default for field in fields(Plan)}


def default(chosen: Option) -> str:
    """An option's default as it would be typed; empty where there is none."""
    value = _DEFAULTS[chosen.field]
    if value is None or value is False:
        return ""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    suffix = "s" if chosen.read is seconds else ""
    return f"{value:g}{suffix}" if isinstance(value, float | int) else str(value)


def plan(url: str, given: Mapping[str, Any]) -> Plan:
    """What these words ask for, by field; those that are None are left out."""
    found = {}
    for chosen in OPTIONS:
        text = given.get(chosen.field)
        if text is None:
            continue
        if text == "":
            # more often a variable that is not set than a wish for the default
            raise UsageError(f"{chosen.name}: expected {chosen.metavar}, got nothing")
        found[chosen.field] = text if chosen.read is None else chosen.read(chosen.name, text)
    return Plan(url.rstrip("/"), **found)
