"""Streams of batches over both protocols: order, a bound on what is under way, errors, and early ends."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.cell_tables import ROWS
from tests.support.client_server import Kind
from tests.support.live_server import Server
from turnpike.client.client import AsyncClient, Client
from turnpike.client.errors import InputError, InputWarning
from turnpike.client.inputs import Array
from turnpike.client.stream import async_stream, blocking_stream


@pytest.fixture(params=["http", "grpc"])
def url(server: Server, request: pytest.FixtureRequest) -> str:
    return server.url if request.param == "http" else f"grpc://{server.grpc_address}"


def collected(kind: Kind, url: str, method: str, *arguments: Any, **more: Any) -> list[Any]:
    """All answers of a stream."""

    async def collect() -> list[Any]:
        async with AsyncClient(url) as client:
            return [answer async for answer in getattr(client, method)(*arguments, **more)]

    if kind == "async":
        return asyncio.run(collect())
    with Client(url) as client:
        return list(getattr(client, method)(*arguments, **more))


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_answers_have_the_order_of_the_batches(url: str, kind: Kind, digits: Array) -> None:
    """Whatever their sizes, and from a generator, which is read once."""
    sizes = [5, 1, 0, 3, 1, 4, 2]
    answers = collected(kind, url, "infer_stream", "digits-10", (digits[:size] for size in sizes), at_once=3)
    with Client(url) as client:
        for size, answer in zip(sizes, answers, strict=True):
            assert answer["output"].tobytes() == client.infer("digits-10", digits[:size])["output"].tobytes()


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_predictions_are_those_of_predict(url: str, kind: Kind) -> None:
    """In the form of the rows. A warning is that of the batch, and names the line of the loop."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame([ROWS[0], ROWS[3]])
    with Client(url) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        expected = client.predict("cells", frame)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answers = collected(kind, url, "predict_stream", "cells", [frame, frame[:1]])
    pandas.testing.assert_frame_equal(answers[0], expected)
    pandas.testing.assert_frame_equal(answers[1], expected[:1])
    (warning,) = [warning for warning in caught if issubclass(warning.category, InputWarning)]
    assert "row 1" in str(warning.message)
    assert warning.filename == __file__


@pytest.mark.parametrize("kind", ["blocking", "async"])
def test_an_error_comes_at_its_place(url: str, kind: Kind, digits: Array) -> None:
    """The answers before it are kept."""
    batches = [digits, digits[:2], digits[:, :, :3], digits]

    seen: list[int] = []

    def take() -> None:
        with Client(url) as client:
            seen.extend(len(answer["output"]) for answer in client.infer_stream("digits-10", batches))

    async def take_async() -> None:
        async with AsyncClient(url) as client:
            async for answer in client.infer_stream("digits-10", batches):
                seen.append(len(answer["output"]))  # noqa: PERF401

    with pytest.raises(InputError, match=r"expected the shape \[-1, 1, 8, 8\]"):
        asyncio.run(take_async()) if kind == "async" else take()
    assert seen == [5, 2]


@pytest.mark.parametrize("at_once", [0, True, 1.5])
def test_a_wrong_bound_is_refused(server: Server, at_once: Any) -> None:
    with Client(server.url) as client, pytest.raises(InputError, match="at_once: expected a whole number"):
        next(client.infer_stream("digits-10", [], at_once=at_once))


def test_asyncio_reads_a_batch_when_there_is_room() -> None:
    """As many batches are under way, or answered and not taken."""
    read: list[int] = []
    running = 0
    most = 0

    async def batches() -> AsyncIterator[int]:
        for number in range(20):
            read.append(number)
            yield number

    async def send(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (number % 3))
        running -= 1
        return number

    async def main() -> None:
        taken = 0
        async for number in async_stream(batches(), send, 4):
            assert number == taken
            taken += 1
            assert len(read) <= taken + 4
        assert taken == 20

    asyncio.run(main())
    assert most == 4


def test_threads_read_a_batch_when_there_is_room() -> None:
    read: list[int] = []
    # four threads meet here, so four batches run at the same time
    meeting = threading.Barrier(4, timeout=30)

    def batches() -> Iterator[int]:
        for number in range(20):
            read.append(number)
            yield number

    def send(number: int) -> int:
        meeting.wait()
        return number

    for taken, number in enumerate(blocking_stream(batches(), send, 4), 1):
        assert number == taken - 1
        assert len(read) <= taken + 4


def test_the_end_of_an_iteration_ends_what_is_under_way() -> None:
    """With asyncio, requests are cancelled."""
    cancelled: list[int] = []

    async def send(number: int) -> int:
        if number:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(number)
                raise
        return number

    async def main() -> None:
        stream = async_stream(range(10), send, 3)
        assert await anext(stream) == 0
        await asyncio.sleep(0)
        await stream.aclose()  # type: ignore[attr-defined]
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert cancelled == [1, 2]


def test_a_thread_starts_no_batch_after_the_end() -> None:
    started: list[int] = []
    gate = threading.Event()

    def send(number: int) -> int:
        started.append(number)
        if number:
            assert gate.wait(30)
        return number

    stream = blocking_stream(iter(range(10)), send, 3)
    assert next(stream) == 0
    gate.set()
    stream.close()  # type: ignore[attr-defined]
    assert set(started) <= {0, 1, 2}


def test_predictions_of_no_rows_have_the_columns_of_others(url: str, digits: Array) -> None:
    """And their types, so a table that is empty after a filter needs no care."""
    pandas = pytest.importorskip("pandas")
    with Client(url) as client:
        for model, rows in {
            "digits-10": digits,
            "net": np.zeros((2, 4)),
            "cells": pandas.DataFrame(ROWS[:1]),
            "same-float64": np.zeros((2, 3)),
        }.items():
            expected, got = client.predict(model, rows), client.predict(model, rows[:0])
            assert list(got) == list(expected)
            assert [len(got[name]) for name in got] == [0] * len(expected.keys())
            if isinstance(rows, np.ndarray):
                assert [got[name].dtype.kind for name in got] == [expected[name].dtype.kind for name in got]
        assert len(client.predict("digits-10", [])["label"]) == 0
