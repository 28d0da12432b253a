"""Options as text: how they are parsed, and the errors for invalid ones."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from turnpike.loadtest.cli.options import OPTIONS, Option, default_text, parse_plan, parse_seconds
from turnpike.loadtest.errors import UsageError
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.slo import Slo

URL = "http://127.0.0.1:8000"


def test_options_that_are_not_set_are_the_defaults() -> None:
    assert parse_plan(URL, {}) == LoadPlan(URL)
    assert parse_plan(URL + "/", {option.field: None for option in OPTIONS}) == LoadPlan(URL)
    assert parse_plan(URL, {option.field: None if option.parse else False for option in OPTIONS}) == LoadPlan(
        URL
    )


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS if option.parse], ids=lambda option: option.field
)
def test_an_empty_option_is_rejected(option: Option) -> None:
    """A script whose shell variable is not set must not pass because a limit is missing."""
    with pytest.raises(UsageError, match=f"{option.flag}: expected .*, got nothing"):
        parse_plan(URL, {option.field: ""})


def test_every_field_of_a_plan_has_an_option() -> None:
    """The defaults that are shown parse to the same values."""
    assert {option.field for option in OPTIONS} | {"url"} == {field.name for field in fields(LoadPlan)}
    assert parse_plan(URL, {option.field: default_text(option) or None for option in OPTIONS}) == LoadPlan(
        URL
    )


def test_option_texts_are_parsed_into_a_plan(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("\n  first-key  \nsecond\n")
    plan = parse_plan(
        URL,
        {
            "rows": "1,32",
            "users": "7",
            "spawn_rate": "2.5",
            "duration": "5m",
            "slo": "p99<50ms",
            "api_key": str(tmp_path / "keys"),
            "report": "out",
            "insecure": True,
            "wire": "binary",
        },
    )
    assert plan == LoadPlan(
        URL,
        rows=(1, 32),
        users=7,
        spawn_rate=2.5,
        duration=300,
        slo=Slo.parse("p99<50ms"),
        api_key="first-key",
        report=Path("out"),
        insecure=True,
        wire="binary",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("60s", 60), ("5m", 300), ("1h30m", 5400), ("500ms", 0.5), ("1m30s", 90), ("90", 90), ("0.5", 0.5)],
)
def test_times_are_parsed_with_units(text: str, expected: float) -> None:
    assert parse_seconds("--duration", text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("duration", "5x", "--duration: expected a time such as 60s, 5m or 1h, got '5x'"),
        ("duration", "s5", "--duration: expected a time such as 60s, 5m or 1h, got 's5'"),
        ("duration", "nan", "--duration: expected a time such as 60s, 5m or 1h, got 'nan'"),
        ("users", "many", "--users: expected a whole number, got 'many'"),
        ("users", "1.5", "--users: expected a whole number, got '1.5'"),
        ("rate", "inf", "--rate: expected a finite number, got 'inf'"),
        ("rate", "fast", "--rate: expected a number, got 'fast'"),
        ("rows", "1,x", "--rows: expected whole numbers with commas, such as 1,32, got '1,x'"),
        ("rows", "0", "--rows: expected whole numbers of 1 or more"),
        ("wire", "grpc", "--wire: expected one of json, binary, v1, gates, lesion, mixed, got 'grpc'"),
        ("slo", "p99", "--slo: expected limits such as p99<50ms"),
        ("api_key", "/no/such/file", "--api-key-file: expected a readable file, got '/no/such/file'"),
    ],
)
def test_invalid_option_texts_are_rejected(field: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_plan(URL, {field: text})
    assert str(error.value).startswith(message)


def test_a_key_file_without_a_key_is_rejected(tmp_path: Path) -> None:
    """A secret that failed to arrive is more likely than a wish for no key."""
    (tmp_path / "keys").write_text("\n# none\n")
    with pytest.raises(UsageError, match="without one"):
        parse_plan(URL, {"api_key": str(tmp_path / "keys")})
