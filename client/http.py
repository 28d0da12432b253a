"""The transport over HTTP, with aiohttp: writes requests with binary tensors, reads answers and errors."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import io
import json
import math
import os
import ssl
import threading
import weakref
from collections.abc import Coroutine, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import yarl

from turnpike.client.errors import (
    ClientError,
    DeadlineError,
    NotConnectedError,
    RequestRefusedError,
    ServerError,
    UnavailableError,
)
from turnpike.client.inputs import Call, datatype_of, to_bytes
from turnpike.client.transport import AsyncWaits, BlockingWaits, TransportOptions, printable, read_array

LENGTH_HEADER = "Inference-Header-Content-Length"
# as many threads or tasks keep their connections
MAX_CONNECTIONS = 128
# aiohttp warns of a larger body that is not a file
MAX_BODY_IN_MEMORY = 1 << 20
# characters of an answer of another server that an error shows
MAX_SHOWN = 200
# the longest timeout that a service reads
MAX_SECONDS = 1e6
# seconds that the connections of a blocking client have to close
CLOSE_SECONDS = 2.0
# Methods and paths of operations with a model, whose place is {}. Others are read from /v2/{}/OPERATION.
ROUTES = {
    "metadata": ("GET", "/v2/{}"),
    "predict": ("POST", "/v1/{}:predict"),
    "infer": ("POST", "/v2/{}/infer"),
    "gates": ("POST", "/v2/{}/gates"),
    "lesion": ("POST", "/v2/{}/lesion"),
    "lesion_curve": ("POST", "/v2/{}/lesion"),
    "profile": ("GET", "/v2/{}/gates/profile"),
    "drift": ("GET", "/v2/{}/gates/drift"),
    "statistics": ("GET", "/v2/{}/stats"),
    "load": ("POST", "/v2/repository/{}/load"),
    "unload": ("POST", "/v2/repository/{}/unload"),
}


# a layer may be an integer of NumPy, and layers a range or a set
ENCODER = json.JSONEncoder(default=lambda value: value.tolist() if hasattr(value, "tolist") else list(value))


class Answer(NamedTuple):
    """An answer as it came."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class AnswerTooLargeError(Exception):
    """The answer has more bytes than the client reads."""


class AsyncTransport(AsyncWaits):
    """Sends calls with a session of aiohttp, which belongs to the event loop of the first call."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        self._url, self._options = url.rstrip("/"), options
        if options.tls is not None and not url.lower().startswith("https:"):
            raise ValueError(f"tls: expected https://HOST:PORT for an SSLContext, got {url!r}")
        self._http: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def send(self, call: Call, subject: str, seconds: float) -> dict[str, Any]:
        """The fields of the answer, with arrays by name in place of lists of tensors.

        Raises:
            ClientError: There is no such answer within these seconds.
        """
        body, headers = encode(call)
        # the service begins no run after this time
        headers = {
            **headers,
            **call.headers,
            "X-Request-Timeout-Ms": str(math.ceil(min(seconds, MAX_SECONDS) * 1000)),
        }
        try:
            answer = await self._exchange(call, body, headers, seconds)
            if answer.status == 200:
                return decode(answer.content, int(answer.headers.get(LENGTH_HEADER, 0)))
        except AnswerTooLargeError as error:
            reason = f"expected an answer of {self._options.max_answer:,} bytes or fewer, got more"
            raise ServerError(subject, reason) from error
        except TimeoutError as error:
            raise DeadlineError(subject, "expected an answer within the timeout, got none") from error
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, ConnectionError) as error:
            raise connection_error(subject, error) from error
        except (aiohttp.ClientError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise ServerError(subject, "expected an answer of the protocol, got another") from error
        raise error_of(answer, subject)

    async def _exchange(self, call: Call, body: bytes, headers: Mapping[str, str], seconds: float) -> Answer:
        method, address = _request_line(self._url, call.operation, call.model, str(call.version))
        async with self._session().request(
            method,
            address,
            data=io.BytesIO(body) if len(body) > MAX_BODY_IN_MEMORY else body or None,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=seconds),
            allow_redirects=False,
        ) as response:
            return Answer(response.status, response.headers, await self._read(response))

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """The body of an answer; raises AnswerTooLargeError."""
        if "Content-Encoding" not in response.headers and response.content_length is not None:
            if response.content_length > self._options.max_answer:
                raise AnswerTooLargeError
            return await response.read()
        chunks, size = [], 0
        async for chunk in response.content.iter_any():
            chunks.append(chunk)
            if (size := size + len(chunk)) > self._options.max_answer:
                raise AnswerTooLargeError
        return b"".join(chunks)

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._http is None:
            self._loop = loop
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, ssl=self._options.tls or True),
                headers={"Accept-Encoding": "gzip, deflate", **self._options.headers},
                cookie_jar=aiohttp.DummyCookieJar(),
                # not `trust_env`, which reads the environment for each request, in a thread
                proxy=proxy_of(self._url),
            )
        elif loop is not self._loop:
            raise RuntimeError(
                "expected the event loop of the first call, got another: each loop needs a client of its own"
            )
        return self._http

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()


class BlockingTransport(BlockingWaits, AsyncTransport):
    """Never suspends: an event loop in a thread sends the calls, so that a deadline ends any of them."""

    def __init__(self, url: str, options: TransportOptions) -> None:
        super().__init__(url, options)
        self._starting = threading.Lock()
        self._thread: LoopThread | None = None
        self._is_closed = False

    async def _exchange(self, call: Call, body: bytes, headers: Mapping[str, str], seconds: float) -> Answer:
        with self._starting:
            if self._is_closed:
                raise RuntimeError("expected an open client, got one that was closed")
            thread = self._thread
            # a process that was forked has no threads of the other one
            if thread is None or thread.pid != os.getpid():
                thread, self._http = LoopThread(), None
                self._thread = thread
                weakref.finalize(self, thread.end)
        return thread.run(super()._exchange(call, body, headers, seconds))

    def _session(self) -> aiohttp.ClientSession:
        session = super()._session()
        if self._thread is not None:
            self._thread.session = session
        return session

    async def close(self) -> None:
        with self._starting:
            self._is_closed = True
        if self._thread is not None:
            self._thread.end()


class LoopThread:
    """A thread with an event loop, and the session that belongs to it."""

    session: aiohttp.ClientSession | None = None

    def __init__(self) -> None:
        self.pid = os.getpid()
        # what is scheduled under this lock comes before the end, which cancels it
        self._scheduling = threading.RLock()
        self._is_ending = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="turnpike client", daemon=True)
        self._thread.start()

    def run(self, exchange: Coroutine[Any, Any, Answer]) -> Answer:
        """Wait for the result of a coroutine; it is cancelled if the waiting ends earlier."""
        with self._scheduling:
            if self._is_ending:
                exchange.close()
                raise RuntimeError("expected an open client, got one that was closed")
            future = asyncio.run_coroutine_threadsafe(exchange, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError as error:
            raise RuntimeError("the client was closed during the call") from error
        except BaseException:
            future.cancel()
            raise

    def end(self) -> None:
        """Cancel what runs, close the connections, and end the thread."""
        if self.pid != os.getpid():
            return
        with self._scheduling:
            if not self._is_ending:
                self._is_ending = True
                self._loop.call_soon_threadsafe(lambda: self._loop.create_task(self._end()))
        # the garbage collector may run in this very thread
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)

    def _run_loop(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.session is not None:
            await self.session.close()
        self._loop.stop()


def proxy_of(url: str) -> str | None:
    """The proxy for an address, as the environment names it."""
    address = urlsplit(url)
    proxy = getproxies().get(address.scheme.lower())
    if not proxy or proxy_bypass(address.hostname or ""):
        return None
    # as other programs read it
    return proxy if "://" in proxy else f"http://{proxy}"


@functools.lru_cache
def _request_line(url: str, operation: str, model: str, version: str) -> tuple[str, yarl.URL]:
    """The method and the address of the route for an operation."""
    method, path = "GET", "/v2/health/ready" if operation == "ready" else f"/v2/{operation}"
    if model:
        name = f"models/{quote(model, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "")
        method, path = ROUTES.get(operation, ("GET", f"/v2/{{}}/{operation}"))
        path = path.format(name)
    return method, yarl.URL(url + path, encoded=True)


def encode(call: Call) -> tuple[bytes, dict[str, str]]:
    """The body, empty for a request without tensors, and the headers that describe it."""
    if "instances" in call.fields:
        return json.dumps(call.fields).encode(), {}
    if not call.tensors:
        return b"", {}
    contents = list(map(to_bytes, call.tensors.values()))
    entries = [
        {"name": name, "shape": array.shape, "datatype": datatype_of(array)}
        | {"parameters": {"binary_data_size": len(content)}}
        for (name, array), content in zip(call.tensors.items(), contents, strict=True)
    ]
    parameters = {"binary_data_output": True, **call.fields.get("parameters", {})}
    document = {**call.fields, "inputs": entries, "parameters": parameters}
    head = ENCODER.encode(document).encode()
    return b"".join([head, *contents]), {LENGTH_HEADER: str(len(head))}


def decode(content: bytes, offset: int) -> dict[str, Any]:
    """The fields of an answer, whose tensors begin at the offset, or 0 if it has none."""
    answer = json.loads(content[: offset or None] or b"{}")
    if not isinstance(answer, dict):
        raise TypeError("expected an object")
    # in the order of their bytes
    parts = ((answer, "outputs"), (answer, "tensors"), (answer.get("lesioned", {}), "outputs"))
    for part, key in parts if offset else ():
        arrays = {}
        for tensor in part.get(key, ()):
            arrays[tensor["name"]], offset = read_array(content, offset, tensor)
        part[key] = arrays
    return answer


def connection_error(subject: str, error: Exception) -> ClientError:
    """The error for a connection that was not made, or broke. A bad certificate is not tried again."""
    reason = printable(f"expected an answer, got {type(error).__name__}: {error}")
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        hint = ": does the address begin with http://?" if "WRONG_VERSION_NUMBER" in reason else ""
        return UnavailableError(subject, reason + hint)
    kind = NotConnectedError if isinstance(error, aiohttp.ClientConnectorError) else UnavailableError
    return kind(subject, reason, retry_after=0.0)


def error_of(answer: Answer, subject: str) -> ClientError:
    """The error that an answer with another status than 200 means."""
    status, after = answer.status, answer.headers.get("Retry-After")
    try:
        reason = str(json.loads(answer.content)["error"])
    except (ValueError, LookupError, TypeError, RecursionError):
        reason = answer.content[:MAX_SHOWN].decode(errors="replace")
    kind = {503: UnavailableError, 504: DeadlineError}.get(status)
    kind = kind or (RequestRefusedError if 400 <= status < 500 else ServerError)
    # a Retry-After may also be a date
    seconds = None if after is None else float(after) if after.isdecimal() else 0.0
    return kind(subject, printable(reason), status, seconds)
