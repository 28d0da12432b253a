"""Tests of reading gates of several requests at once: byte for byte the same as one by one."""

from __future__ import annotations

import json
from gc import collect
from threading import Thread, current_thread
from typing import Any
from weakref import ref

import numpy as np
import pytest

from tests.support.gate_arrays import f32, gate, random_gates, signature
from turnpike.service.codec.gates_response import JsonSummaries
from turnpike.service.errors import NotFiniteError
from turnpike.service.gates import reader as reading
from turnpike.service.gates.reader import GateReader
from turnpike.service.gates.statistics import stack_gates


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("values", "threads"), [(1, 1), (150, 1), (2**18, 1), (150, 3), (2**18, 3)])
def test_requests_read_together_get_the_same_bytes_as_alone(rows: int, values: int, threads: int) -> None:
    """Gates have two widths, time steps or carry gates. A pass has few or many values."""
    gates = [
        gate("a", 0),
        gate("b", 1, kind="independent", carry_gate="c"),
        gate("wide", 2),
        gate("s0", 3, time=0),
        gate("s1", 3, time=1),
    ]
    widths = {"a": 2, "b": 2, "c": 1, "wide": 700, "s0": 9, "s1": 9}
    arrays = {
        name: random_gates(7 * rows, width, seed=n) ** 3 for n, (name, width) in enumerate(widths.items())
    }
    # a layer that is closed, and a figure that is more than 1
    arrays["a"][2 * rows :] *= 0.001
    arrays["c"][4 * rows] = 2.5
    reader = GateReader(
        gates,
        signature(dict.fromkeys(arrays, ("batch", "n"))),
        None,
        JsonSummaries,
        threads,
        max_values_per_pass=values,
        min_values_per_thread=100,
    )
    together = reader.process(arrays, rows, 7)
    for n, summary in enumerate(together):
        (alone,) = reader.process({k: v[n * rows : (n + 1) * rows] for k, v in arrays.items()}, rows)
        assert summary == alone
    assert len(set(together)) == 7
    assert not isinstance(together[4], NotFiniteError)
    summaries = json.loads(together[4][0])
    assert summaries[1]["carried"] == pytest.approx(arrays["c"][4 * rows : 5 * rows].mean(), rel=1e-6)


def test_nan_in_a_gate_fails_only_its_own_request() -> None:
    """The other requests get their summaries."""
    arrays = {"a": random_gates(3, 2), "b": f32([0.5, 0.1], [0.1, np.nan], [0.2, 0.3])}
    reader = GateReader(
        [gate("a", 0), gate("b", 1)], signature(dict.fromkeys(arrays, ("batch", 2))), None, JsonSummaries
    )
    first, second, third = reader.process(arrays, 1, 3)
    assert isinstance(second, NotFiniteError)
    assert "got NaN in 'b'" in str(second)
    assert [first] == reader.process({name: array[:1] for name, array in arrays.items()}, 1)
    assert [third] == reader.process({name: array[2:] for name, array in arrays.items()}, 1)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The threads that stacked T, and the number of values."""
    seen: list[tuple[str, int]] = []

    def recording_stack_gates(*arguments: Any) -> Any:
        stacked = stack_gates(*arguments)
        seen.append((current_thread().name, stacked.size))
        return stacked

    monkeypatch.setattr(reading, "stack_gates", recording_stack_gates)
    return seen


def test_a_pass_reads_a_limited_number_of_values(passes: list[tuple[str, int]]) -> None:
    """A single request is never split. One thread needs no pool."""
    reader = GateReader(
        [gate("a", 0)], signature({"a": ("batch", 9)}), None, JsonSummaries, max_values_per_pass=30
    )
    assert len(reader.process({"a": random_gates(8, 9)}, 1, 8)) == 8
    assert sorted(size for _, size in passes) == [18, 27, 27]
    passes.clear()
    assert len(reader.process({"a": random_gates(8, 9)}, 4, 2)) == 2
    assert [size for _, size in passes] == [36, 36]
    assert {name for name, _ in passes} == {current_thread().name}


def test_large_batches_are_read_by_several_threads(passes: list[tuple[str, int]]) -> None:
    reader = GateReader(
        [gate("a", 0)], signature({"a": ("batch", 9)}), None, JsonSummaries, 3, min_values_per_thread=20
    )
    for requests, sizes in ((8, [18, 27, 27]), (5, [18, 27]), (4, [36])):
        assert len(reader.process({"a": random_gates(requests, 9)}, 1, requests)) == requests
        assert sorted(size for _, size in passes) == sizes
        others = {name for name, _ in passes if name.startswith("gates")}
        assert bool(others) is (len(sizes) > 1)
        passes.clear()


def test_if_no_thread_is_free_the_result_is_the_same(
    monkeypatch: pytest.MonkeyPatch, passes: list[tuple[str, int]]
) -> None:
    """The pool keeps no reference to the arrays."""
    sig, given = signature({"a": ("batch", 9)}), random_gates(8, 9)
    expected = GateReader([gate("a", 0)], sig, None, JsonSummaries).process({"a": given}, 1, 8)
    passes.clear()

    def none(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", none)
    reader = GateReader([gate("a", 0)], sig, None, JsonSummaries, 3, min_values_per_thread=20)
    assert reader.process({"a": given}, 1, 8) == expected
    assert [size for _, size in passes] == [18, 27, 27]
    pool_input = ref(given)
    del given
    collect()
    assert pool_input() is None
