"""Answers for a stream of batches, in their order, while a bounded number of requests are under way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from turnpike.client.errors import InputError

Batch = TypeVar("Batch")
Answer = TypeVar("Answer")


def check_at_once(at_once: int) -> None:
    """Raise InputError unless this is a number of requests."""
    if isinstance(at_once, bool) or not isinstance(at_once, int) or at_once < 1:
        raise InputError("stream", f"at_once: expected a whole number from 1, got {at_once!r}")


async def async_stream(
    batches: Iterable[Batch] | AsyncIterable[Batch],
    send: Callable[[Batch], Awaitable[Answer]],
    at_once: int,
) -> AsyncIterator[Answer]:
    """Read a batch when there is room for its answer. The end of the iteration cancels what is under way."""
    tasks: deque[asyncio.Future[Answer]] = deque()
    try:
        async for batch in _each(batches):
            tasks.append(asyncio.ensure_future(send(batch)))
            if len(tasks) == at_once:
                yield await tasks.popleft()
        while tasks:
            yield await tasks.popleft()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _each(batches: Any) -> AsyncIterator[Any]:
    if isinstance(batches, AsyncIterable):
        async for batch in batches:
            yield batch
        return
    for batch in batches:
        yield batch
        # requests are sent while a generator makes its next batch
        await asyncio.sleep(0)


def blocking_stream(
    batches: Iterable[Batch], send: Callable[[Batch], Answer], at_once: int
) -> Iterator[Answer]:
    """The same in threads. The end of the iteration waits for what is under way."""
    futures: deque[Future[Answer]] = deque()
    with ThreadPoolExecutor(at_once, "turnpike stream") as threads:
        try:
            for batch in batches:
                futures.append(threads.submit(send, batch))
                if len(futures) == at_once:
                    yield futures.popleft().result()
            while futures:
                yield futures.popleft().result()
        finally:
            for future in futures:
                future.cancel()
