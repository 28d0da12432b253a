"""Options as words: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from loadtest.cli.options import OPTIONS, Option, default, plan, seconds
from loadtest.errors import UsageError
from loadtest.plan import Plan
from loadtest.slo import Slo

URL = "http://127.0.0.1:8000"


def test_nothing_asked_is_the_plan_as_it_is() -> None:
    """Left out or off, an option is the plan's default."""
    assert plan(URL, {}) == Plan(URL)
    assert plan(URL + "/", {chosen.field: None for chosen in OPTIONS}) == Plan(URL)
    assert plan(URL, {chosen.field: None if chosen.read else False for chosen in OPTIONS}) == Plan(URL)


@pytest.mark.parametrize(
    "chosen", [chosen for chosen in OPTIONS if chosen.read], ids=lambda chosen: chosen.field
)
def test_an_option_without_words_is_refused(chosen: Option) -> None:
    """A script whose variable is not set is not to pass for want of a limit."""
    with pytest.raises(UsageError, match=f"{chosen.name}: expected .*, got nothing"):
        plan(URL, {chosen.field: ""})


def test_every_field_of_a_plan_can_be_asked_for() -> None:
    """And the defaults that are shown are read as what they stand for."""
    assert {chosen.field for chosen in OPTIONS} | {"url"} == {field.name for field in fields(Plan)}
    assert plan(URL, {chosen.field: default(chosen) or None for chosen in OPTIONS}) == Plan(URL)


def test_words_become_a_plan(tmp_path: Path) -> None:
    """Each kind of value."""
    (tmp_path / "keys").write_text("\n  first-key  \nsecond\n")
    asked = plan(
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
    assert asked == Plan(
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
def test_times(text: str, expected: float) -> None:
    """With units, several of them, or as seconds."""
    assert seconds("--duration", text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("duration", "5x", "--duration: expected a time such as 60s, 5m or 1h, got '5x'"),
        ("duration", "s5", "--duration: expected a time such as 60s, 5m or 1h, got 's5'"),
        ("duration", "nan", "--duration: expected a time such as 60s, 5m or 1h, got 'nan'"),
        ("users", "many", "--users: expected a whole number, got 'many'"),
        ("users", "1.5", "--users: expected a whole number, got '1.5'"),
        ("rate", "inf", "--rate: expected a finite number, got 'inf'"),
        ("rate", "fast", "--rate: expected a number, got 'fast'"),
        ("rows", "1,x", "--rows: expected whole numbers with commas, such as 1,32, got '1,x'"),
        ("rows", "0", "--rows: expected whole numbers from 1"),
        ("wire", "grpc", "--wire: expected one of json, binary, v1, gates, lesion, mixed, got 'grpc'"),
        ("slo", "p99", "--slo: expected limits such as p99<50ms"),
        ("api_key", "/no/such/file", "--api-key-file: expected a file that can be read, got '/no/such/file'"),
    ],
)
def test_words_that_mean_nothing(field: str, text: str, said: str) -> None:
    """One sentence names the option, what was expected and what came."""
    with pytest.raises(UsageError) as error:
        plan(URL, {field: text})
    assert str(error.value).startswith(said)


def test_a_file_without_a_key(tmp_path: Path) -> None:
    """It is more often a secret that failed to arrive than a wish for none."""
    (tmp_path / "keys").write_text("\n# none\n")
    with pytest.raises(UsageError, match="without one"):
        plan(URL, {"api_key": str(tmp_path / "keys")})
