"""Runs a coroutine directly in event-loop callbacks, without an asyncio task.

A task costs a few microseconds for each request: its creation, and one turn of the event loop for each
step. A driver runs the first step where the request arrived, and each later step where the awaited result
was set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any


class DriverWaiter:
    """The Waiter of a driver: setting its result runs the coroutine's next step at once."""

    __slots__ = ("_cancelled", "_done", "_driver")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._done = self._cancelled = False

    def __await__(self) -> Generator[Any, None, None]:
        if not self._done:
            yield self
        if self._cancelled:
            raise asyncio.CancelledError

    def done(self) -> bool:
        return self._done

    def set_result(self, result: None, /) -> None:
        self._done = True
        self._driver.resume(self)

    def cancel(self) -> None:
        """Raise CancelledError in the coroutine, in a later turn of the event loop as a future does."""
        if not self._done:
            self._done = self._cancelled = True
            asyncio.get_running_loop().call_soon(self._driver.resume, self)


class Driver:
    """Runs one coroutine, which may await waiters of this driver, asyncio futures and tasks.

    `on_done` is called when it has ended, with the exception if it raised one.
    """

    __slots__ = ("_awaited", "_coroutine", "_on_done")

    def __init__(
        self, coroutine: Coroutine[Any, Any, None], on_done: Callable[[BaseException | None], None]
    ) -> None:
        self._coroutine = coroutine
        self._on_done = on_done
        self._awaited: DriverWaiter | asyncio.Future[Any] | None = None

    def cancel(self) -> None:
        """Cancel what the coroutine awaits."""
        if self._awaited is not None:
            self._awaited.cancel()

    def resume(self, waiter: DriverWaiter) -> None:
        """Continue after a waiter is done. Does nothing if the coroutine no longer awaits it."""
        if self._awaited is waiter:
            self.step()

    def step(self, _: object = None) -> None:
        """Run the coroutine until it next waits. Called once, to start it."""
        self._awaited = None
        try:
            awaited = self._coroutine.send(None)
        except StopIteration:
            self._on_done(None)
        except (Exception, asyncio.CancelledError) as error:
            # not raised, since it would reach the code that set the awaited result
            self._on_done(error)
        else:
            self._awaited = awaited
            if awaited is None:
                # a bare yield, such as that of asyncio.sleep(0)
                asyncio.get_running_loop().call_soon(self.step)
            elif type(awaited) is not DriverWaiter:
                # mark the future as awaited, as asyncio's own tasks do
                awaited._asyncio_future_blocking = False
                awaited.add_done_callback(self.step)
