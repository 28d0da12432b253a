"""Runs a coroutine directly in event-loop callbacks, without an asyncio task.

A task costs a few microseconds for each request: its creation, and one turn of the event loop for each
step. A driver runs the first step where the request arrived, and each later step where the awaited result
was set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any

log = logging.getLogger(__name__)


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
        driver = self._driver
        if driver.awaited is self:
            driver.step()

    def cancel(self) -> None:
        """Raise CancelledError in the coroutine, in a later turn of the event loop as a future does."""
        if not self._done:
            self._done = self._cancelled = True
            asyncio.get_running_loop().call_soon(self.set_result, None)


class Driver:
    """Runs one coroutine, which may await waiters of this driver, asyncio futures and tasks.

    `on_done` is called when it has ended, with the exception if it raised one. An error in `on_done` is
    logged, and does not reach the code that set the awaited result: that has other results to set.
    """

    __slots__ = ("_coroutine", "_on_done", "awaited")

    def __init__(
        self, coroutine: Coroutine[Any, Any, None], on_done: Callable[[BaseException | None], None]
    ) -> None:
        self._coroutine = coroutine
        self._on_done = on_done
        # what the coroutine waits for
        self.awaited: DriverWaiter | asyncio.Future[Any] | None = None

    def cancel(self) -> None:
        """Cancel what the coroutine awaits."""
        if self.awaited is not None:
            self.awaited.cancel()

    def step(self, _: object = None) -> None:
        """Run the coroutine until it next waits. Called once, to start it."""
        self.awaited = None
        try:
            try:
                awaited = self._coroutine.send(None)
                if type(awaited) is not DriverWaiter:
                    self._watch(awaited)
                self.awaited = awaited
            except StopIteration:
                self._on_done(None)
            except (Exception, asyncio.CancelledError) as error:
                # nothing would resume a coroutine whose awaited future cannot be watched
                try:
                    self._coroutine.close()
                finally:
                    self._on_done(error)
        except Exception:
            log.exception("handling the end of a request failed")

    def _watch(self, future: asyncio.Future[Any] | None) -> None:
        """Take the next step when the future is done."""
        if future is None:
            # a bare yield, such as that of asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(self.step)
        else:
            # mark the future as awaited, as asyncio's own tasks do
            future._asyncio_future_blocking = False
            future.add_done_callback(self.step)
