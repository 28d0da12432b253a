"""Sends calls within one deadline: tries again, asks once for what many need, and divides many rows."""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import numpy as np

from turnpike.client.errors import (
    ClientError,
    DeadlineError,
    InputError,
    NotConnectedError,
    RequestRefusedError,
    ServerError,
    UnavailableError,
)
from turnpike.client.inputs import Call
from turnpike.client.options import VALID_VALUE, CallOptions, checked_headers, expect_number
from turnpike.client.transport import TransportOptions
from turnpike.common.distribution import needing_extra

if TYPE_CHECKING:
    import ssl

    import grpc

    Tls: TypeAlias = ssl.SSLContext | grpc.ChannelCredentials

# for each scheme of an address, the module of a protocol and the extra that it needs. The module's
# AsyncTransport and BlockingTransport, whose coroutines never suspend, have `send` and `close`.
TRANSPORTS = {
    "http": ("turnpike.client.http", "client"),
    "https": ("turnpike.client.http", "client"),
    "grpc": ("turnpike.client.grpc", "client-grpc"),
    "grpcs": ("turnpike.client.grpc", "client-grpc"),
}
# seconds before the first retry, which double with each further one, and their maximum
FIRST_PAUSE, MAX_PAUSE = 0.1, 5.0
# the maximum while nothing listens at the address: a service that restarts is found soon
MAX_CONNECT_PAUSE = 1.0
# rows of a call that are sent in one request: --max-rows of a service, unless it says another number
MAX_PART_ROWS = 4096
ROWS_REFUSED = re.compile(r"at most (\d+) rows \(--max-rows\)")
NOT_FOUND, TOO_LARGE = 404, 413

Version: TypeAlias = str | int


@dataclass(eq=False, repr=False)
class Sender:
    """The arguments of both clients, and the calls that they send."""

    url: str
    _: KW_ONLY
    api_key: str | None = None
    timeout: float = 30.0
    retries: int = 3
    headers: Mapping[str, str] | None = None
    tls: Tls | None = None
    max_answer: int = 1 << 30
    _transport_name = "AsyncTransport"

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):
            raise TypeError(f"url: expected a text such as 'http://127.0.0.1:8000', got {self.url!r}")
        expect_number("timeout", self.timeout)
        if not isinstance(self.retries, int) or self.retries < 0:
            raise ValueError(f"retries: expected a whole number from 0, got {self.retries!r}")
        scheme = self.url.partition("://")[0].lower()
        if scheme not in TRANSPORTS:
            raise ValueError(f"url: expected {', '.join(TRANSPORTS)} and ://HOST:PORT, got {self.url!r}")
        headers = checked_headers(self.headers or {})
        if self.api_key is not None:
            if not VALID_VALUE.fullmatch(self.api_key):
                raise ValueError(
                    "api_key: expected printable ASCII characters, without spaces or lines around them"
                )
            headers["authorization"] = f"Bearer {self.api_key}"
        try:
            address = urlsplit(self.url)
            has_host = bool(address.hostname) and address.port != 0
        except ValueError:
            has_host = False
        if not has_host:
            raise ValueError(f"url: expected {scheme}://HOST:PORT, got {self.url!r}")
        module, extra = TRANSPORTS[scheme]
        with needing_extra(f"an address {scheme}://", extra):
            transports = importlib.import_module(module)
        options = TransportOptions(headers, self.tls, self.max_answer)
        self._transport = getattr(transports, self._transport_name)(self.url, options)
        # what the service has said of models, and requests for it that are on their way
        self._documents: dict[tuple[str, str, str], Any] = {}
        self._requested: dict[tuple[int, str, str, str], Any] = {}
        # --max-rows of the service, by the model, where it is not MAX_PART_ROWS
        self._max_rows: dict[str, int] = {}
        # whether anything has answered at the address
        self._was_reached = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    def _call(
        self,
        operation: str,
        model: str = "",
        version: Version = "",
        options: CallOptions | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Call:
        """A call, with its headers and its deadline."""
        timeout, headers, request_id = _read_options(options or {}, operation)
        if request_id:
            headers["x-request-id"] = request_id
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        return Call(operation, model, version, fields=body or {}, headers=headers, deadline=deadline)

    async def _send(self, call: Call, *, retries: int | None = None) -> Any:
        """The answer of a call, which may be sent several times."""
        of_model = f" of model {call.model!r}" if call.model else ""
        subject = f"{call.operation}{of_model} at {self.url}"
        attempt, retries = 0, self.retries if retries is None else retries
        while (seconds := call.deadline - time.monotonic()) > 0:
            try:
                answer = await self._transport.send(call, subject, seconds)
            except UnavailableError as error:
                # a service that restarts is waited for; one that was never there is probably another address
                restarts = isinstance(error, NotConnectedError) and self._was_reached and retries > 0
                self._was_reached |= error.status is not None
                longest = MAX_CONNECT_PAUSE if restarts else MAX_PAUSE
                backoff = min(longest, FIRST_PAUSE * 2 ** min(attempt, 9)) * random.uniform(0.5, 1)  # noqa: S311
                pause = (error.retry_after or 0.0) + backoff
                may_help = error.retry_after is not None and (attempt < retries or restarts)
                if not may_help or pause >= call.deadline - time.monotonic():
                    raise
            except ClientError as error:
                self._was_reached |= error.status is not None
                raise
            else:
                self._was_reached = True
                return answer
            attempt += 1
            await self._transport.sleep(pause)
        raise DeadlineError(subject, "expected an answer within the timeout, got none")

    async def _document(self, operation: str, call: Call, outdated: Any = None) -> Any:
        """What the service says of the model of a call; it is asked once, until that is `outdated`.

        Calls that need it at the same time send one request. If that fails, each sends its own, since another
        call may have less time, or headers of its own.
        """
        wanted = call._replace(operation=operation, tensors={}, fields={})
        key = (operation, call.model, str(call.version))
        known = self._documents.get(key)
        if known is not None and known is not outdated:
            return known
        # a process that was forked does not wait for threads of the other one
        request = (os.getpid(), *key)
        future = self._transport.future()
        first = self._requested.setdefault(request, future)
        try:
            if first is not future:
                with contextlib.suppress(TimeoutError):
                    await self._transport.result_of(first, wanted.deadline - time.monotonic())
                known = self._documents.get(key)
                if known is not None and known is not outdated:
                    return known
            self._documents[key] = known = await self._send(wanted)
            return known
        finally:
            if first is future:
                del self._requested[request]
                future.set_result(None)

    async def _with_document(
        self, operation: str, call: Call, send: Callable[[Any], Awaitable[Any]]
    ) -> tuple[Any, Any]:
        """The answer of `send` with a document of the model, and this document.

        If the document was known before and the inputs do not fit, the model may have changed: the document
        is asked for again, and the inputs are sent once more. If it was fetched for this call, an error is
        final.
        """
        was_known = (operation, call.model, str(call.version)) in self._documents
        document = await self._document(operation, call)
        try:
            return await send(document), document
        except (InputError, RequestRefusedError) as error:
            if not was_known or error.status not in {None, 400}:
                raise
        document = await self._document(operation, call, outdated=document)
        return await send(document), document

    async def _run(self, call: Call) -> Any:
        """Run a model, with several requests if there are many rows."""
        rows = call.rows
        if rows is None or rows <= 1 or call.operation not in {"predict", "infer"}:
            return await self._send(call)
        limit = self._max_rows.get(call.model, MAX_PART_ROWS)
        if rows <= limit:
            try:
                return await self._send(call)
            except RequestRefusedError as error:
                fewer = self._fewer_rows(call.model, error, rows)
                if fewer is None:
                    raise
                limit = fewer
        if (await self._document("certificate", call)).get("batch_coupled"):
            # a row's answer depends on the others, so they stay together, and the service says its limit
            return await self._send(call)
        try:
            return await self._run_parts(call, rows, limit)
        except _VersionGoneError:
            return await self._run_parts(call, rows, limit)

    async def _run_parts(self, call: Call, rows: int, limit: int) -> Any:
        """Send parts of the rows, one after the other, to the version that has answered the first."""
        answers: list[Any] = []
        start, version = 0, call.version
        while start < rows:
            part = call.part(start, min(start + limit, rows))._replace(version=version)
            try:
                answers.append(await self._send(part))
            except RequestRefusedError as error:
                if error.status == NOT_FOUND and version != call.version:
                    raise _VersionGoneError(*error.args) from error
                fewer = self._fewer_rows(call.model, error, part.rows or 0)
                if fewer is None:
                    raise
                limit = fewer
                continue
            version = version or answers[0].get("version") or answers[0].get("model_version", "")
            start += part.rows or 0
        return _joined(call, answers, rows)

    def _fewer_rows(self, model: str, error: RequestRefusedError, rows: int) -> int | None:
        """How many rows a request may have that was refused because of these; None for another reason."""
        if found := ROWS_REFUSED.search(error.reason):
            fewer = int(found[1])
            if 0 < fewer < rows:
                self._max_rows[model] = fewer
                return fewer
        return rows // 2 if error.status == TOO_LARGE and rows > 1 else None


class _VersionGoneError(RequestRefusedError):
    """The version that has answered the first part is not served any more."""


def _read_options(options: CallOptions, operation: str) -> tuple[float | None, dict[str, str], str]:
    unknown = [name for name in options if name not in CallOptions.__annotations__]
    if unknown:
        names = ", ".join(CallOptions.__annotations__)
        raise TypeError(f"{operation}: expected {names}, got {unknown[0]!r}")
    timeout, request_id = options.get("timeout"), options.get("request_id", "")
    if timeout is not None:
        expect_number("timeout", timeout)
    if request_id and not (isinstance(request_id, str) and VALID_VALUE.fullmatch(request_id)):
        raise ValueError(
            f"request_id: expected printable ASCII characters, without spaces around them, got {request_id!r}"
        )
    return timeout, checked_headers(options.get("headers") or {}), request_id


def _joined(call: Call, answers: list[Any], rows: int) -> Any:
    """One answer from those of the parts, whose rows are in order."""
    joined = dict(answers[0])
    if call.operation == "predict":
        joined["predictions"] = [row for answer in answers for row in answer["predictions"]]
        cells, start = [], 0
        for answer in answers:
            cells += [{**cell, "row": cell["row"] + start} for cell in answer.get("warnings", ())]
            start += len(answer["predictions"])
        if cells:
            joined |= {"warnings": cells, "more_warnings": sum(a.get("more_warnings", 0) for a in answers)}
        return joined
    joined["outputs"] = {}
    for name in answers[0]["outputs"]:
        parts = [answer["outputs"][name] for answer in answers]
        joined["outputs"][name] = _joined_rows(name, parts, rows, call)
    return joined


def _joined_rows(name: str, parts: list[Any], rows: int, call: Call) -> Any:
    """The rows of an output; raises ServerError if its parts have other rows than the inputs."""
    with contextlib.suppress(ValueError):
        array = np.concatenate(parts)
        if len(array) == rows:
            return array
    raise ServerError(
        f"infer of model {call.model!r}",
        f"expected a row of {name!r} for each row of the input, to join {len(parts)} answers, got "
        f"{[part.shape for part in parts[:3]]}: send fewer rows at once",
    )
