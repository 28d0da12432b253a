"""Gates of several requests read at once: each is told, byte by byte, what it would be told alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from service import reading
from service.errors import NotFinite
from service.figures import lay_out
from service.reading import GateReader
from tests.test_service_reading import f32, gate, random, signature


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("at_once", [1, 150, 2**18])
def test_requests_read_together_are_told_as_if_alone(
    monkeypatch: pytest.MonkeyPatch, rows: int, at_once: int
) -> None:
    """Byte by byte: gates of two widths, with steps, with carry gates, few or many values at once."""
    monkeypatch.setattr(reading, "AT_ONCE", at_once)
    gates = [
        gate("a", 0),
        gate("b", 1, kind="independent", carry_gate="c"),
        gate("wide", 2),
        gate("s0", 3, time=0),
        gate("s1", 3, time=1),
    ]
    widths = {"a": 2, "b": 2, "c": 1, "wide": 700, "s0": 9, "s1": 9}
    arrays = {name: random(7 * rows, width, seed=n) ** 3 for n, (name, width) in enumerate(widths.items())}
    # a layer that is closed, and a figure that is more than 1
    arrays["a"][2 * rows :] *= 0.001
    arrays["c"][4 * rows] = 2.5
    reader = GateReader(gates, signature(dict.fromkeys(arrays, ("batch", "n"))), None)
    together = reader.read(arrays, rows, 7)
    for n, told in enumerate(together):
        (alone,) = reader.read({k: v[n * rows : (n + 1) * rows] for k, v in arrays.items()}, rows)
        assert told == alone
    assert len(set(together)) == 7
    assert isinstance(together[4], bytes)
    answered = json.loads(b"{%b}" % together[4])
    assert answered["gates"][1]["carried"] == pytest.approx(arrays["c"][4 * rows : 5 * rows].mean(), rel=1e-6)


def test_a_gate_that_is_no_number_is_its_own_requests() -> None:
    """Others that are read with it are told what they are told alone."""
    arrays = {"a": random(3, 2), "b": f32([0.5, 0.1], [0.1, np.nan], [0.2, 0.3])}
    reader = GateReader([gate("a", 0), gate("b", 1)], signature(dict.fromkeys(arrays, ("batch", 2))), None)
    first, second, third = reader.read(arrays, 1, 3)
    assert isinstance(second, NotFinite)
    assert "got NaN in 'b'" in str(second)
    assert [first] == reader.read({name: array[:1] for name, array in arrays.items()}, 1)
    assert [third] == reader.read({name: array[2:] for name, array in arrays.items()}, 1)


def test_no_more_is_read_at_once_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many requests there are; one by itself is read whole."""
    sizes: list[int] = []

    def noted(*given: Any) -> Any:
        laid = lay_out(*given)
        sizes.append(laid.size)
        return laid

    monkeypatch.setattr(reading, "AT_ONCE", 30)
    monkeypatch.setattr(reading, "lay_out", noted)
    reader = GateReader([gate("a", 0)], signature({"a": ("batch", 9)}), None)
    assert len(reader.read({"a": random(8, 9)}, 1, 8)) == 8
    assert sizes == [27, 27, 18]
    assert len(reader.read({"a": random(8, 9)}, 4, 2)) == 2
    assert sizes[3:] == [36, 36]
