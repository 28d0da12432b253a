"""A queue of work on model files: one after another, but a file that takes long does not delay the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Generic, TypeVar

from turnpike.service.repository.scan import ModelFile

Result = TypeVar("Result")

# after this time a file counts as slow, and the next one begins beside it
SLOW_SECONDS = 2.0
# files at a time: each takes memory, and slow ones take CPU time from the others
MAX_AT_ONCE = 3


class FileQueue(Generic[Result]):
    """Works on files in the order in which they were added, and keeps each result until it is taken.

    Args:
        work: Does the work on a file, and returns a result in any case.
        slow_seconds: Seconds after which the next file begins beside this one.
    """

    def __init__(
        self, work: Callable[[ModelFile], Awaitable[Result]], slow_seconds: float = SLOW_SECONDS
    ) -> None:
        self._work = work
        self._slow_seconds = slow_seconds
        # of all files, in order; those in progress have a task as well
        self._results: dict[ModelFile, asyncio.Future[Result]] = {}
        self._tasks: dict[ModelFile, asyncio.Future[Result]] = {}
        # runs while others wait for the file that began last, until it ends or is slow
        self._timer: asyncio.TimerHandle | None = None

    @property
    def unfinished(self) -> list[ModelFile]:
        """The files that wait or are in progress."""
        return [file for file, result in self._results.items() if not result.done()]

    def add(self, file: ModelFile) -> None:
        """Work on a file, unless that has begun already."""
        if file not in self._results:
            self._results[file] = asyncio.get_running_loop().create_future()
            self._begin()

    async def wait(
        self, files: Collection[ModelFile], seconds: float | None, *, for_all: bool = True
    ) -> None:
        """Wait until the work on all of these files, or on any, has ended, but no longer than `seconds`."""
        results = [result for file, result in self._results.items() if file in files]
        if results:
            until = asyncio.ALL_COMPLETED if for_all else asyncio.FIRST_COMPLETED
            await asyncio.wait(results, timeout=seconds, return_when=until)

    def take(self) -> dict[ModelFile, Result]:
        """The results that there are, each of them once."""
        ended = [file for file, result in self._results.items() if result.done()]
        for file in ended:
            if (error := self._results[file].exception()) is not None:
                # the other results stay for the next call
                del self._results[file]
                raise error
        return {file: self._results.pop(file).result() for file in ended}

    def keep(self, files: Collection[ModelFile]) -> None:
        """Cancel the work on all other files, and forget them."""
        for file in [file for file in self._results if file not in files]:
            self._results.pop(file).cancel()
            if file in self._tasks:
                self._tasks.pop(file).cancel()

    def _begin(self) -> None:
        """Begin with the next file, unless it has to wait."""
        waiting = (file for file in self.unfinished if file not in self._tasks)
        if self._timer is None and len(self._tasks) < MAX_AT_ONCE and (file := next(waiting, None)):
            task = self._tasks[file] = asyncio.ensure_future(self._work(file))
            self._timer = asyncio.get_running_loop().call_later(self._slow_seconds, self._let_next_begin)
            task.add_done_callback(partial(self._on_end, file, self._timer))

    def _on_end(self, file: ModelFile, timer: asyncio.TimerHandle, task: asyncio.Future[Result]) -> None:
        # otherwise the file was dropped
        if self._tasks.get(file) is task:
            del self._tasks[file]
            result = self._results[file]
            if task.cancelled():
                # the event loop ends, so nothing more begins
                del self._results[file]
                result.cancel()
                return
            error = task.exception()
            result.set_result(task.result()) if error is None else result.set_exception(error)
        if self._timer is timer:
            timer.cancel()
            self._timer = None
        self._begin()

    def _let_next_begin(self) -> None:
        self._timer = None
        self._begin()
