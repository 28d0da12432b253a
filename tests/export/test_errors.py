"""Messages of other libraries inside of ours: one line, no colors, and never empty."""

from __future__ import annotations

import pytest

from turnpike.export.errors import error_with_type, one_line


@pytest.mark.parametrize(
    ("error", "text", "with_type"),
    [
        (ValueError("too  large\n  here"), "too large here", "ValueError: too large here"),
        (ValueError(), "ValueError", "ValueError"),
        (ValueError(" \n: "), "ValueError", "ValueError"),
        (ValueError("\x1b[31;1mred\x1b[0m cell"), "red cell", "ValueError: red cell"),
        (ValueError("\x1b[0m"), "ValueError", "ValueError"),
    ],
)
def test_a_message_is_one_line(error: Exception, text: str, with_type: str) -> None:
    assert one_line(error) == text
    assert error_with_type(error) == with_type


def test_a_long_message_is_cut() -> None:
    assert len(one_line(ValueError("x" * 900))) == 300
