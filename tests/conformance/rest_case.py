"""Cases of REST: a request as data, and how it is sent and its answer compared."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.pattern import ANYTHING, difference

LENGTH_HEADER = "Inference-Header-Content-Length"
SECONDS = 20


@dataclass(frozen=True)
class RestCase:
    """A request and its answer.

    `body` is JSON, or bytes. If `tensors` follow the JSON, the header with its length is sent. `answer` is a
    pattern of the JSON of the answer. `answer_tensors` are the bytes after it; if they are None, the answer
    must be JSON alone. `answer_type` is its Content-Type.
    """

    name: str
    path: str
    method: str = "POST"
    body: Any = None
    tensors: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    answer: Any = ANYTHING
    answer_tensors: bytes | None = None
    answer_type: str | None = None

    def request(self) -> tuple[bytes | None, dict[str, str]]:
        """The body and the headers."""
        headers = dict(self.headers)
        if self.body is None or isinstance(self.body, bytes):
            return self.body, headers
        text = json.dumps(self.body).encode()
        if self.tensors is None:
            return text, {"Content-Type": "application/json", **headers}
        return text + self.tensors, {LENGTH_HEADER: str(len(text)), **headers}


class RestServer:
    """A server at `host:port`, whose paths begin with `prefix`."""

    def __init__(self, address: str, prefix: str = "") -> None:
        self._address = address
        self._prefix = prefix

    def difference(self, case: RestCase) -> str | None:
        """Where the server's answer differs from the case, in words; None if it does not."""
        body, headers = case.request()
        connection = http.client.HTTPConnection(self._address, timeout=SECONDS)
        try:
            connection.request(case.method, self._prefix + case.path, body, headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            return f"expected an answer, got {error!r}"
        finally:
            connection.close()
        if response.status != case.status:
            return f"status: expected {case.status}, got {response.status}, {content[:200]!r}"
        if case.answer_type not in (None, response.getheader("Content-Type")):
            return f"type: expected {case.answer_type}, got {response.getheader('Content-Type')}"
        if case.answer is ANYTHING and case.answer_tensors is None:
            return None
        return _body_difference(case, content, response.getheader(LENGTH_HEADER))


def _body_difference(case: RestCase, content: bytes, length: str | None) -> str | None:
    if (length is None) != (case.answer_tensors is None):
        return f"{LENGTH_HEADER}: got {length}, and {content[:200]!r}"
    text, tail = content, b""
    if length is not None:
        text, tail = content[: int(length)], content[int(length) :]
        if tail != case.answer_tensors:
            return f"tensors: expected {case.answer_tensors!r}, got {tail!r}"
    try:
        parsed = json.loads(text)
    except ValueError:
        return f"expected JSON, got {text[:200]!r}"
    return difference(case.answer, parsed)
