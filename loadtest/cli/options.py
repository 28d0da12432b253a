"""The options of a load test and how their texts are parsed, for `turnpike loadtest` and for locust."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from turnpike.loadtest.errors import UsageError
from turnpike.loadtest.plan import SHAPES, WIRES, LoadPlan, option_name
from turnpike.loadtest.slo import Slo

# seconds
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ms|s|m|h)")


@dataclass(frozen=True, slots=True)
class Option:
    """One option; it sets a field of the plan."""

    field: str
    help: str
    metavar: str = ""
    parse: Callable[[str, str], Any] | None = None  # takes flag and text; None for a flag without a value
    renamed: str = ""  # the flag, where it is not made from the name of the field

    @property
    def flag(self) -> str:
        return self.renamed or option_name(self.field)


def parse_int(flag: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{flag}: expected a whole number, got {text!r}") from None


def parse_number(flag: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"{flag}: expected a number, got {text!r}") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise UsageError(f"{flag}: expected a finite number, got {text!r}")
    return value


def parse_seconds(flag: str, text: str) -> float:
    """Parse a time: `90`, `60s`, `5m`, `1h30m`, `500ms`."""
    parts = _PART.findall(text)
    if parts and "".join(amount + unit for amount, unit in parts) == text:
        return sum(float(amount) * UNITS[unit] for amount, unit in parts)
    try:
        return parse_number(flag, text)
    except UsageError:
        raise UsageError(f"{flag}: expected a time such as 60s, 5m or 1h, got {text!r}") from None


def parse_ints(flag: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{flag}: expected whole numbers with commas, such as 1,32, got {text!r}") from None


def read_key(flag: str, path: str) -> str:
    """The first key in a file that holds one key per line."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{flag}: expected a readable file, got {path!r} ({error})") from None
    for line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            return line.strip()
    raise UsageError(f"{flag}: expected a key in {path!r}, got a file without one")


def parse_text(flag: str, text: str) -> str:
    return text


def parse_path(flag: str, text: str) -> Path:
    return Path(text)


def parse_slo(flag: str, text: str) -> Slo:
    return Slo.parse(text)


OPTIONS = (
    Option("model", "Model to load; needed if the server has more than one.", "NAME", parse_text),
    Option("version", "Version of the model; without it, the server chooses.", "VERSION", parse_text),
    Option("wire", "Format of the requests.", "|".join(WIRES), parse_text),
    Option("rows", "Rows per request; several sizes are sent equally often.", "N,N", parse_ints),
    Option(
        "users",
        "Closed loop: users; each waits for its answer, then sends again. Open loop: connections at first.",
        "N",
        parse_int,
    ),
    Option("spawn_rate", "Users started per second.", "NUMBER", parse_number),
    Option("duration", "Length of the test, after the warm-up.", "TIME", parse_seconds),
    Option("warmup", "Time at the start that is not measured.", "TIME", parse_seconds),
    Option("shape", "How the users, or the rate, change over the test.", "|".join(SHAPES), parse_text),
    Option(
        "rate", "Open loop: requests per second, sent without waiting for answers.", "NUMBER", parse_number
    ),
    Option("find_capacity", "Search for the highest rate that keeps --slo."),
    Option("step_seconds", "Time for each rate of --find-capacity.", "TIME", parse_seconds),
    Option("slo", "Limits, such as 'p99<50ms, errors<0.1%'; exit status 1 if missed.", "LIMITS", parse_slo),
    Option(
        "processes",
        "Processes that send; if left out, one per CPU, or per two CPUs if the server runs on this machine.",
        "N",
        parse_int,
    ),
    Option("samples", "Different requests of each kind.", "N", parse_int),
    Option("length", "Size of input dimensions that the model leaves free.", "N", parse_int),
    Option("data", "Your own rows: .npy, or .npz with one array per input.", "FILE", parse_path),
    Option("seed", "Seed of the random inputs and send times.", "N", parse_int),
    Option("tolerance", "Allowed difference from the reference answer.", "NUMBER", parse_number),
    Option("timeout", "Longest wait for an answer.", "TIME", parse_seconds),
    Option(
        "api_key", "File with API keys, one per line; the first is used.", "FILE", read_key, "--api-key-file"
    ),
    Option("insecure", "Accept any TLS certificate."),
    Option("report", "Folder for loadtest.html and loadtest.json.", "DIR", parse_path),
)
_DEFAULTS = {field.name: field.default for field in fields(LoadPlan)}


def default_text(option: Option) -> str:
    """The default of an option as it would be typed; empty if there is none."""
    value = _DEFAULTS[option.field]
    if value is None or value is False:
        return ""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    suffix = "s" if option.parse is parse_seconds else ""
    return f"{value:g}{suffix}" if isinstance(value, float | int) else str(value)


def parse_plan(url: str, options: Mapping[str, Any]) -> LoadPlan:
    """The plan for these texts, by field; fields that are None keep their defaults."""
    values = {}
    for option in OPTIONS:
        text = options.get(option.field)
        if text is None:
            continue
        if text == "":
            # an empty value is more likely an unset shell variable than meant as the default
            raise UsageError(f"{option.flag}: expected {option.metavar}, got nothing")
        values[option.field] = text if option.parse is None else option.parse(option.flag, text)
    return LoadPlan(url.rstrip("/"), **values)
