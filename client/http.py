"""The transport over HTTP, with httpx: writes requests with binary tensors, reads answers and errors."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np

from turnpike.client.errors import (
    ClientError,
    DeadlineError,
    RequestRefusedError,
    ServerError,
    UnavailableError,
)
from turnpike.client.inputs import TEXT, Array, Call, datatype_of, to_bytes
from turnpike.common.datatypes import DTYPE_BY_DATATYPE

LENGTH_HEADER = "Inference-Header-Content-Length"
# as many threads or tasks keep their connections
LIMITS = httpx.Limits(max_connections=128, max_keepalive_connections=128)


class AsyncTransport:
    """Sends calls with an `httpx.AsyncClient`."""

    http: Any = httpx.AsyncClient
    sleep = staticmethod(asyncio.sleep)

    def __init__(self, url: str, api_key: str | None, transport: Any) -> None:
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self._http = self.http(base_url=url, headers=headers, limits=LIMITS, transport=transport)

    async def send(self, call: Call, subject: str, seconds: float) -> dict[str, Any]:
        """The fields of the answer, with arrays by name in place of lists of tensors.

        Raises:
            ClientError: There is no such answer within these seconds.
        """
        body, headers = encode(call)
        # the service begins no run after this time
        headers["X-Request-Timeout-Ms"] = str(math.ceil(seconds * 1000))
        method = "POST" if body else "GET"
        request = self._http.build_request(method, path(call), content=body, headers=headers, timeout=seconds)
        try:
            response, content = await self._exchange(request, seconds)
            if response.status_code == 200:
                return decode(content, int(response.headers.get(LENGTH_HEADER, 0)))
        except (httpx.TimeoutException, TimeoutError) as error:
            raise DeadlineError(subject, "expected an answer within the timeout, got none") from error
        except httpx.RequestError as error:
            reason = f"expected an answer, got {type(error).__name__}: {error}"
            raise UnavailableError(subject, reason, retry_after=0.0) from error
        except (ValueError, LookupError, TypeError) as error:
            raise ServerError(subject, "expected an answer of the protocol, got another") from error
        raise error_of(response, content, subject)

    async def _exchange(self, request: httpx.Request, seconds: float) -> tuple[httpx.Response, bytes]:
        async with asyncio.timeout(seconds):
            response = await self._http.send(request)
        return response, response.content

    async def close(self) -> None:
        await self._http.aclose()


class BlockingTransport(AsyncTransport):
    """Sends calls with an `httpx.Client`, and never suspends."""

    http = httpx.Client

    async def _exchange(self, request: httpx.Request, seconds: float) -> tuple[httpx.Response, bytes]:
        deadline, chunks = time.monotonic() + seconds, []
        with contextlib.closing(self._http.send(request, stream=True)) as response:
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                # httpx limits the time of each read only
                if time.monotonic() > deadline:
                    raise TimeoutError
        return response, b"".join(chunks)

    @staticmethod
    async def sleep(seconds: float) -> None:
        time.sleep(seconds)

    async def close(self) -> None:
        self._http.close()


def path(call: Call) -> str:
    """The path of the route for an operation."""
    if not call.model:
        return "/v2/health/ready" if call.operation == "ready" else f"/v2/{call.operation}"
    model = f"models/{quote(call.model, safe='')}" + (
        f"/versions/{quote(str(call.version), safe='')}" if call.version else ""
    )
    if call.operation == "predict":
        return f"/v1/{model}:predict"
    return f"/v2/{model}/{call.operation}".removesuffix("/metadata")


def encode(call: Call) -> tuple[bytes, dict[str, str]]:
    """The body, empty for a request without tensors, and the headers that describe it."""
    if "instances" in call.fields:
        return json.dumps({"instances": call.fields["instances"]}).encode(), {}
    if not call.tensors:
        return b"", {}
    if call.operation == "predict":
        inputs = list(map(_to_lists, call.tensors.values()))
        rows = [dict(zip(call.tensors, row, strict=True)) for row in zip(*inputs, strict=True)]
        return json.dumps({"instances": rows if len(inputs) > 1 else inputs[0]}).encode(), {}
    contents = list(map(to_bytes, call.tensors.values()))
    entries = [
        {"name": name, "shape": array.shape, "datatype": datatype_of(array)}
        | {"parameters": {"binary_data_size": len(content)}}
        for (name, array), content in zip(call.tensors.items(), contents, strict=True)
    ]
    parameters = {"binary_data_output": True, **call.fields.get("parameters", {})}
    document = {**call.fields, "inputs": entries, "parameters": parameters}
    # a layer may be an integer of NumPy
    head = json.dumps(document, default=lambda value: value.tolist()).encode()
    return b"".join([head, *contents]), {LENGTH_HEADER: str(len(head))}


def _to_lists(array: Array) -> list[Any]:
    """The rows of a tensor in JSON, which has null for NaN."""
    if array.dtype == TEXT:
        return [text.decode() for text in array]
    if array.dtype.kind == "f" and (missing := np.isnan(array)).any():
        array = array.astype(object)
        array[missing] = None
    rows: list[Any] = array.tolist()
    return rows


def decode(content: bytes, offset: int) -> dict[str, Any]:
    """The fields of an answer, whose tensors begin at the offset, or 0 if it has none."""
    answer = json.loads(content[: offset or None])
    if not isinstance(answer, dict):
        raise TypeError("expected an object")
    # in the order of their bytes
    parts = ((answer, "outputs"), (answer, "tensors"), (answer.get("lesioned", {}), "outputs"))
    for part, key in parts if offset else ():
        arrays = {}
        for tensor in part.get(key, ()):
            shape = tensor["shape"]
            values = np.frombuffer(content, DTYPE_BY_DATATYPE[tensor["datatype"]], math.prod(shape), offset)
            # a copy can be changed
            arrays[tensor["name"]] = values.reshape(shape).copy()
            offset += values.nbytes
        part[key] = arrays
    return answer


def error_of(response: httpx.Response, content: bytes, subject: str) -> ClientError:
    """The error that an answer with another status than 200 means."""
    status, after = response.status_code, response.headers.get("Retry-After")
    try:
        reason = json.loads(content)["error"]
    except (ValueError, LookupError, TypeError):
        reason = content[:200].decode(errors="replace")
    kind = {503: UnavailableError, 504: DeadlineError}.get(status)
    kind = kind or (RequestRefusedError if 400 <= status < 500 else ServerError)
    # a Retry-After may also be a date
    seconds = None if after is None else float(after) if after.isdigit() else 0.0
    return kind(subject, reason, status, seconds)
