"""Error responses: every error becomes one message in JSON."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.exceptions import HTTPException

from turnpike.service import errors
from turnpike.service.errors import (
    InternalError,
    OverloadedError,
    RequestError,
    RequestTimeoutError,
    RunError,
    TooLargeError,
    UnauthorizedError,
)
from turnpike.service.requests.error_response import error_response
from turnpike.service.requests.request import Request, RequestHead
from turnpike.service.requests.response import JSON_LINES, ErrorResponse


def refused(error: Exception, path: str = "/v2/models") -> ErrorResponse:
    request = cast("Request", SimpleNamespace(id="id-7", head=RequestHead("POST", path, path, b"", [])))
    return error_response(error, request)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RequestError)],
)
def test_own_errors_are_sent_with_their_message(kind: type[RequestError]) -> None:
    """Status and reason are those of the error, and its message is the body."""
    response = refused(kind("inputs: expected one, got two"))
    assert (response.status, response.reason) == (kind.status, kind.reason)
    assert json.loads(response.body) == {"error": "inputs: expected one, got two"}
    assert not response.is_bug


@pytest.mark.parametrize("error", [RunError("/tmp/x: 0x7f"), ValueError("0xdead"), KeyError("secret")])
def test_unexpected_errors_are_not_sent(error: Exception) -> None:
    """The response has neither message nor type of the error, only the id of the request."""
    response = refused(error)
    assert (response.status, response.reason, response.is_bug) == (500, "broken", True)
    assert json.loads(response.body) == {"error": "internal error, request id id-7"}


def test_an_internal_error_is_no_bug() -> None:
    """The service has logged it already, and its message is meant for the client."""
    response = refused(InternalError("model 'digits' failed on these rows"))
    assert (response.status, response.is_bug) == (500, False)


@pytest.mark.parametrize(
    ("error", "headers"),
    [
        (OverloadedError("full", 7), b"retry-after: 7\r\n"),
        (OverloadedError("full", 0), b"retry-after: 1\r\n"),
        (UnauthorizedError("no key"), b'www-authenticate: Bearer realm="turnpike"\r\n'),
        (RequestTimeoutError("late"), b""),
        (TooLargeError("long"), b""),
    ],
)
def test_errors_set_their_headers(error: Exception, headers: Any) -> None:
    """Retry-After, WWW-Authenticate, and `connection: close` after an incomplete request."""
    response = refused(error)
    assert response.lines == JSON_LINES + headers
    assert response.close is isinstance(error, RequestTimeoutError)


def test_an_unknown_route_is_named() -> None:
    response = refused(HTTPException(404))
    assert (response.status, response.reason) == (404, "unknown")
    assert response.message == "POST /v2/models: there is no such route"


def test_a_wrong_method_lists_the_allowed_methods() -> None:
    """The message and the Allow header list the methods in the same order."""
    response = refused(HTTPException(405, headers={"Allow": "HEAD, GET"}))
    assert (response.status, response.reason) == (405, "method")
    assert response.message == "POST /v2/models: expected the method GET or HEAD"
    assert response.lines == JSON_LINES + b"allow: GET, HEAD\r\n"


def test_messages_of_fastapi_are_replaced() -> None:
    """Other errors of the framework keep their status, but get a message of the service."""
    response = refused(HTTPException(400, detail="There was an error parsing the body"))
    assert response.status == 400
    assert "parsing" not in response.message


def test_control_characters_in_a_path_stay_encoded() -> None:
    """The path is quoted as the client sent it, still percent-encoded."""
    message = refused(HTTPException(404), path="/x%0a12:00:00%1b[2J").message
    assert message == "POST /x%0a12:00:00%1b[2J: there is no such route"


def test_a_lack_of_memory_is_an_overload() -> None:
    """The client may try again; other requests take the memory now."""
    response = refused(MemoryError("Unable to allocate 1000. KiB"))
    assert (response.status, response.reason, response.is_bug) == (503, "overloaded", False)
    assert response.message == "server: this worker has no memory left for the request; try again"
    assert b"retry-after: 1\r\n" in response.lines
