"""A line between the supervisor and a worker: JSON over a pair of sockets, on which both may ask."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from service import errors
from service.errors import InternalError, NotReadyError, RequestError

log = logging.getLogger(__name__)

Handler = Callable[[Any], Awaitable[Any]]

# bytes of one message
MAX_MESSAGE_BYTES = 64 << 20
# an answer that is not there by then has been lost
ASK_TIMEOUT_SECONDS = 600.0
ERROR_BY_NAME = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, RequestError)
}


class ChannelClosedError(NotReadyError):
    """The process at the other end is no more."""


class IpcChannel:
    """One end. `handlers` answer what the other end asks, each in a task of its own; add to them at any time.

    A RequestError that a handler raises is raised again where it was asked for; anything else is Broken
    there, with its traceback in the log here.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.handlers: dict[str, Handler] = {}
        self.closed = asyncio.Event()
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._at_work: set[asyncio.Task[None]] = set()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def over(cls, end: socket.socket) -> IpcChannel:
        """The channel over one end of a socket pair, which it closes in the end."""
        end.setblocking(False)
        return cls(*await asyncio.open_unix_connection(sock=end, limit=MAX_MESSAGE_BYTES))

    async def ask(self, what: str, argument: Any = None, seconds: float = ASK_TIMEOUT_SECONDS) -> Any:
        """The other end's answer; Gone when it cannot come any more, TimeoutError when it does not."""
        if self.closed.is_set():
            raise ChannelClosedError("the service is stopping")
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        self._send({"ask": what, "number": number, "with": argument})
        try:
            return await asyncio.wait_for(future, seconds)
        finally:
            del self._asked[number]

    def notify(self, what: str, argument: Any = None) -> None:
        """Tell the other end something that needs no answer."""
        self._send({"ask": what, "number": None, "with": argument})

    async def close(self) -> None:
        """End it once what was sent has left; the other end sees that it is closed."""
        self._writer.close()
        await self._listening

    def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(orjson.dumps(message, option=orjson.OPT_NON_STR_KEYS) + b"\n")

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                self._heard(orjson.loads(line))
        except ConnectionError:
            # it ended before it had read all, which whoever keeps it tells
            pass
        except (OSError, ValueError):
            log.warning("the channel between processes broke", exc_info=True)
        finally:
            self.closed.set()
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(ChannelClosedError("the service is stopping"))
            self._writer.close()

    def _heard(self, message: dict[str, Any]) -> None:
        if "ask" in message:
            task = asyncio.create_task(self._answer(**message))
            self._at_work.add(task)
            task.add_done_callback(self._at_work.discard)
        elif (future := self._asked.get(message["answers"])) is not None and not future.done():
            if "error" in message:
                future.set_exception(ERROR_BY_NAME.get(message["error"], InternalError)(message["text"]))
            else:
                future.set_result(message["value"])

    async def _answer(self, ask: str, number: int | None, **given: Any) -> None:
        answer: dict[str, Any] = {"answers": number}
        try:
            answer["value"] = await self.handlers[ask](given["with"])
        except RequestError as error:
            answer |= {"error": type(error).__name__, "text": str(error)}
        except Exception:
            log.exception("%s: failed to answer", ask)
            answer |= {"error": InternalError.__name__, "text": f"{ask}: failed; the log says why"}
        if number is not None and not self.closed.is_set():
            try:
                self._send(answer)
            except TypeError:
                log.exception("%s: answered what cannot be said in JSON", ask)
                self._send(
                    {
                        "answers": number,
                        "error": InternalError.__name__,
                        "text": f"{ask}: failed; the log says why",
                    }
                )
