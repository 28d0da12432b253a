"""Tests of the JSON of gates: numbers read back from the text of a template, alone and in batches."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from turnpike.service.codec.gates_response import JsonTemplate

Array = np.ndarray[Any, np.dtype[Any]]

# names of all lengths, one with a format code
NAMES = ("a", "bc", "100%b", "four", "füüf", 'a "quoted" one')


def template() -> JsonTemplate:
    quoted = [json.dumps(name, ensure_ascii=False).encode() for name in NAMES]
    return JsonTemplate([b"{%b:" % quoted[0], *[b",%b:" % name for name in quoted[1:]], b"}"])


def read(*lines: Any) -> list[Any]:
    """The numbers of each row, parsed from its text."""
    texts = template().render(np.array(lines, np.float32))
    return [None if text is None else [json.loads(text)[name] for name in NAMES] for text in texts]


def test_numbers_have_six_decimals() -> None:
    """They are in order and rounded to the nearest. 0 and 1 are exact."""
    numbers = read(
        [0, 1, 0.5, 0.25, 0.0000014, 0.9999996], [0.123456, 0.7654321, 0.01, 0.1, 0.009999, 0.0000006]
    )
    assert numbers[0] == [0, 1, 0.5, 0.25, 0.000001, 1]
    assert numbers[1] == [0.123456, 0.765432, 0.01, 0.1, 0.009999, 0.000001]


def test_every_millionth_is_rendered() -> None:
    """Numbers around the border between the two lookup tables."""
    every = np.random.default_rng(0).permutation(999_996 + 6)[:600_000].reshape(-1, 6) / 1e6
    every = np.minimum(every, 1)
    for text, line in zip(template().render(every.astype(np.float32))[::50], every[::50], strict=True):
        assert list(json.loads(text or b"").values()) == line.round(6).tolist()


@pytest.mark.parametrize("odd", [1.5, -0.25, 123456.0, -1e-9, 1.0000001])
def test_numbers_outside_of_the_tables_have_their_own_digits(odd: float) -> None:
    usual = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    numbers = read(usual, [*usual[:5], odd], usual)
    assert numbers[1] == pytest.approx([*usual[:5], odd], rel=1e-6)
    assert numbers[0] == numbers[2] == usual


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_have_no_text(odd: float) -> None:
    usual = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert read(usual, [odd, *usual[1:]], usual) == [usual, None, usual]


def test_a_line_is_rendered_alike_alone_and_with_others() -> None:
    lines = np.random.default_rng(1).random((50, 6), np.float32)
    lines[7, 3], lines[9, 0] = 2, np.nan
    assert template().render(lines) == [template().render(line[None])[0] for line in lines]


def test_values_that_are_already_text_are_inserted() -> None:
    """An example is null for an unknown number."""
    text = template().render_text([b"null"] * 6)
    assert json.loads(text) == dict.fromkeys(NAMES)
