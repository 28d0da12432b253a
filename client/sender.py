"""Sends calls within one deadline: tries again, asks once for what many need, and divides many rows."""

from __future__ import annotations

import contextlib
import importlib
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from turnpike.client.errors import (
    ClientError,
    DeadlineError,
    InputError,
    RequestRefusedError,
    ServerError,
    UnavailableError,
)
from turnpike.client.inputs import Call
from turnpike.client.options import VALID_VALUE, CallOptions, checked_headers
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
TOO_LARGE = 413

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
        module, extra = TRANSPORTS[scheme]
        with needing_extra(f"an address {scheme}://", extra):
            transports = importlib.import_module(module)
        options = TransportOptions(headers, self.tls, self.max_answer)
        self._transport = getattr(transports, self._transport_name)(self.url, options)
        # what the service has said of models, and requests for it that are on their way
        self._documents: dict[tuple[str, str, str], Any] = {}
        self._requested: dict[tuple[str, str, str], Any] = {}
        # rows of one request, by the model
        self._part_rows: dict[str, int] = {}
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
                is_gone = error.status is None and self._was_reached and retries > 0
                self._was_reached |= error.status is not None
                longest = MAX_CONNECT_PAUSE if error.status is None else MAX_PAUSE
                backoff = min(longest, FIRST_PAUSE * 2**attempt) * random.uniform(0.5, 1)  # noqa: S311
                pause = (error.retry_after or 0.0) + backoff
                is_last = error.retry_after is None or (attempt >= retries and not is_gone)
                if is_last or pause >= call.deadline - time.monotonic():
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
        """What the service says of the model of a call. It is asked once, until that is outdated."""
        wanted = call._replace(operation=operation, tensors={}, fields={})
        key = (operation, call.model, str(call.version))
        while (known := self._documents.get(key)) is None or known is outdated:
            future = self._transport.future()
            if (first := self._requested.setdefault(key, future)) is not future:
                with contextlib.suppress(TimeoutError):
                    await self._transport.result_of(first, wanted.deadline - time.monotonic())
                if time.monotonic() >= wanted.deadline:
                    # raises DeadlineError; the other call may have more time
                    await self._send(wanted)
                continue
            try:
                self._documents[key] = await self._send(wanted)
                future.set_result(None)
            except ClientError as error:
                future.set_exception(error)
                # nobody may be waiting
                future.exception()
                raise
            finally:
                del self._requested[key]
                if not future.done():
                    future.set_result(None)
        return known

    async def _with_document(
        self, operation: str, call: Call, send: Callable[[Any], Awaitable[Any]]
    ) -> tuple[Any, Any]:
        """The answer of `send` with a document of the model, and this document.

        Its inputs may not fit since the model has changed, so it is asked again once. The first request with
        a document that is fresh is final.
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
        answers: list[Any] = []
        start = 0
        while start < rows:
            stop = min(start + self._part_rows.get(call.model, MAX_PART_ROWS), rows)
            part = call if stop - start == rows else call.part(start, stop)
            try:
                answers.append(await self._send(part))
            except RequestRefusedError as error:
                fewer = _fewer_rows(error, stop - start)
                if fewer is None:
                    raise
                self._part_rows[call.model] = fewer
                continue
            if start == 0:
                # the other parts are for the version that has answered the first
                version = answers[0].get("version") or answers[0].get("model_version") or call.version
                call = call._replace(version=version)
            start = stop
        return answers[0] if len(answers) == 1 else _joined(call, answers, rows)


def _read_options(options: CallOptions, operation: str) -> tuple[float | None, dict[str, str], str]:
    unknown = [name for name in options if name not in CallOptions.__annotations__]
    if unknown:
        names = ", ".join(CallOptions.__annotations__)
        raise TypeError(f"{operation}: expected {names}, got {unknown[0]!r}")
    timeout, request_id = options.get("timeout"), options.get("request_id", "")
    if request_id and not VALID_VALUE.fullmatch(request_id):
        raise ValueError("request_id: expected printable ASCII characters, without spaces around them")
    return timeout, checked_headers(options.get("headers") or {}), request_id


def _fewer_rows(error: RequestRefusedError, rows: int) -> int | None:
    """How many rows a request may have that was refused because of these; None if that was not the reason."""
    if found := ROWS_REFUSED.search(error.reason):
        fewer = int(found[1])
        return fewer if 0 < fewer < rows else None
    return rows // 2 if error.status == TOO_LARGE and rows > 1 else None


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
        try:
            joined["outputs"][name] = np.concatenate(parts)
        except ValueError:
            joined["outputs"][name] = None
        if joined["outputs"][name] is None or len(joined["outputs"][name]) != rows:
            raise ServerError(
                f"infer of model {call.model!r}",
                f"expected a row of {name!r} for each row of the input, to join {len(answers)} answers, got "
                f"{[part.shape for part in parts[:3]]}: send fewer rows at once",
            )
    return joined
