"""IPC between the supervisor and a worker: requests and responses as JSON lines over a socket pair.

Both ends may send requests.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from turnpike.service import errors
from turnpike.service.errors import InternalError, NotReadyError, RequestError

log = logging.getLogger(__name__)

Handler = Callable[[Any], Awaitable[Any]]

MAX_MESSAGE_BYTES = 64 << 20
ERROR_BY_NAME = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, RequestError)
}


class ChannelClosedError(NotReadyError):
    """The process at the other end has closed the channel or has ended."""


class IpcChannel:
    """One end of the channel.

    `handlers` answer requests of the other end by name, each in a task of its own; they may be added at any
    time. A RequestError that a handler raises is raised at the end that asked. Any other exception is logged
    here and is an InternalError there.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.handlers: dict[str, Handler] = {}
        self.closed = asyncio.Event()
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count()
        # requests without a response so far, by number
        self._pending: dict[int, asyncio.Future[Any]] = {}
        # running handlers; the event loop itself holds only weak references to tasks
        self._handler_tasks: set[asyncio.Task[None]] = set()
        self._reading = asyncio.create_task(self._read_messages())

    @classmethod
    async def over(cls, end: socket.socket) -> IpcChannel:
        """The channel over one end of a socket pair, which it closes when it closes itself."""
        end.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=end, limit=MAX_MESSAGE_BYTES))

    async def ask(self, name: str, argument: Any = None, seconds: float | None = None) -> Any:
        """Send a request to the handler of that name and wait for its result.

        There is a time limit only if `seconds` is given.

        Raises:
            ChannelClosedError: The other end is gone.
            TimeoutError: No response came in time.
            RequestError: The handler raised it.
        """
        if self.closed.is_set():
            raise ChannelClosedError("the service is stopping")
        number, loop = next(self._numbers), asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._pending[number] = future
        self._send({"ask": name, "number": number, "argument": argument})
        # not `asyncio.wait_for`, which needs a task since Python 3.12: a request has none, but a driver
        timer = None if seconds is None else loop.call_later(seconds, _time_out, future)
        try:
            return await future
        finally:
            del self._pending[number]
            if timer is not None:
                timer.cancel()

    def notify(self, name: str, argument: Any = None) -> None:
        """Send a request that needs no response."""
        self._send({"ask": name, "number": None, "argument": argument})

    async def close(self) -> None:
        """Close the channel after everything was sent."""
        self._writer.close()
        await self._reading

    def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(orjson.dumps(message, option=orjson.OPT_NON_STR_KEYS) + b"\n")

    async def _read_messages(self) -> None:
        try:
            while line := await self._reader.readline():
                self._receive(orjson.loads(line))
        except ConnectionError:
            # the other process ended before it had read everything; the worker pool reports that
            pass
        except (OSError, ValueError, TypeError, KeyError):
            # the last two are raised for a message without the expected keys
            log.warning("the channel between processes broke", exc_info=True)
        finally:
            self.closed.set()
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(ChannelClosedError("the service is stopping"))
            self._writer.close()

    def _receive(self, message: dict[str, Any]) -> None:
        if "ask" in message:
            task = asyncio.create_task(self._respond(**message))
            self._handler_tasks.add(task)
            task.add_done_callback(self._handler_tasks.discard)
        elif (future := self._pending.get(message["number"])) is not None and not future.done():
            if "error" in message:
                future.set_exception(ERROR_BY_NAME.get(message["error"], InternalError)(message["text"]))
            else:
                future.set_result(message["result"])

    async def _respond(self, ask: str, number: int | None, argument: Any) -> None:
        failure = {
            "number": number,
            "error": InternalError.__name__,
            "text": f"{ask}: failed; the log says why",
        }
        response: dict[str, Any] = {"number": number}
        try:
            response["result"] = await self.handlers[ask](argument)
        except RequestError as error:
            response |= {"error": type(error).__name__, "text": str(error)}
        except Exception:
            log.exception("%s: failed to answer", ask)
            response = failure
        if number is not None and not self.closed.is_set():
            try:
                self._send(response)
            except TypeError:
                log.exception("%s: the result cannot be sent as JSON", ask)
                self._send(failure)


def _time_out(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())
