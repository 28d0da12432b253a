"""The queue of work on files: order, slow files, results and cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from turnpike.service.repository.file_queue import MAX_AT_ONCE, FileQueue
from turnpike.service.repository.scan import ModelFile

FILES = [ModelFile(f"net{number}", 1, Path("model.onnx"), (number, 0, 0)) for number in range(6)]
# seconds; longer than any test, or over at once
NEVER_SLOW, AT_ONCE = 60.0, 0.0


class Works:
    """Work that takes until its event is set, and records what has begun, ended and been cancelled."""

    def __init__(self) -> None:
        self.events = {file: asyncio.Event() for file in FILES}
        self.begun: list[ModelFile] = []
        self.cancelled: list[ModelFile] = []

    async def __call__(self, file: ModelFile) -> str:
        self.begun.append(file)
        try:
            await self.events[file].wait()
        except asyncio.CancelledError:
            self.cancelled.append(file)
            raise
        return file.name


async def turns() -> None:
    """Let the event loop work for some turns."""
    for _ in range(10):
        await asyncio.sleep(0.001)


Play = Callable[[Works, FileQueue[str]], Awaitable[None]]


def run(play: Play, slow_seconds: float = NEVER_SLOW) -> None:
    async def start() -> None:
        works = Works()
        await play(works, FileQueue(works, slow_seconds))

    asyncio.run(start())


def test_files_take_turns() -> None:
    """Each begins when the one before it has ended, and each result is taken once."""

    async def play(works: Works, queue: FileQueue[str]) -> None:
        for file in (*FILES[:3], FILES[0]):
            queue.add(file)
        for number, file in enumerate(FILES[:3], 1):
            await turns()
            assert works.begun == FILES[:number]
            assert queue.unfinished == FILES[number - 1 : 3]
            works.events[file].set()
        await queue.wait(FILES, None)
        assert queue.take() == {file: file.name for file in FILES[:3]}
        assert queue.take() == {}
        queue.add(FILES[0])
        await queue.wait(FILES, None)
        assert queue.take() == {FILES[0]: "net0"}

    run(play)


def test_a_slow_file_does_not_delay_the_others() -> None:
    """They have their turns beside it, and a few slow ones are worked on at a time."""

    async def play(works: Works, queue: FileQueue[str]) -> None:
        for file in FILES:
            queue.add(file)
        await turns()
        assert works.begun == FILES[:MAX_AT_ONCE]
        works.events[FILES[1]].set()
        await queue.wait([FILES[1]], None)
        assert queue.take() == {FILES[1]: "net1"}
        await turns()
        assert works.begun == FILES[: MAX_AT_ONCE + 1]
        queue.keep(())

    run(play, AT_ONCE)


def test_waiting_ends_in_time_or_with_the_first_file() -> None:
    async def play(works: Works, queue: FileQueue[str]) -> None:
        for file in FILES[:2]:
            queue.add(file)
        await queue.wait(FILES, 0.01)
        assert queue.take() == {}
        works.events[FILES[0]].set()
        await queue.wait(FILES, None, for_all=False)
        assert queue.take() == {FILES[0]: "net0"}
        queue.keep(())

    run(play)


def test_dropped_files_are_cancelled() -> None:
    """Others have their turn then, and a file that is added again begins anew."""

    async def play(works: Works, queue: FileQueue[str]) -> None:
        for file in FILES[:3]:
            queue.add(file)
        await turns()
        queue.keep(FILES[2:])
        await turns()
        assert works.cancelled == FILES[:1]
        assert works.begun == [FILES[0], FILES[2]]
        queue.add(FILES[0])
        for file in FILES:
            works.events[file].set()
        await queue.wait(FILES, None)
        assert queue.take() == {FILES[2]: "net2", FILES[0]: "net0"}

    run(play)


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_is_raised_when_the_result_is_taken(failing: int) -> None:
    """It does not stop the others, and loses none of their results."""

    async def fail(file: ModelFile) -> str:
        if file == FILES[failing]:
            raise ZeroDivisionError
        return file.name

    async def play(_: Works, __: FileQueue[str]) -> None:
        queue = FileQueue(fail)
        queue.add(FILES[0])
        queue.add(FILES[1])
        await queue.wait(FILES, None)
        with pytest.raises(ZeroDivisionError):
            queue.take()
        assert queue.take() == {FILES[1 - failing]: f"net{1 - failing}"}

    run(play)
