"""Errors as answers: one sentence of ours, whatever went wrong."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from service import errors
from service.errors import (
    InternalError,
    OverloadedError,
    RequestError,
    RequestTimeoutError,
    RunError,
    TooLargeError,
    UnauthorizedError,
)
from service.http.request import Request, RequestHead
from service.http.response import JSON_LINES, ErrorResponse, error_response


def refused(error: Exception, path: str = "/v2/models") -> ErrorResponse:
    request = cast("Request", SimpleNamespace(id="id-7", head=RequestHead("POST", path, path, b"", [])))
    return error_response(error, request)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RequestError)],
)
def test_our_own_errors_say_themselves(kind: type[RequestError]) -> None:
    """Status and reason are the error's, and its sentence is the body."""
    found = refused(kind("inputs: expected one, got two"))
    assert (found.status, found.reason) == (kind.status, kind.reason)
    assert json.loads(found.body) == {"error": "inputs: expected one, got two"}
    assert not found.is_bug


@pytest.mark.parametrize("error", [RunError("/tmp/x: 0x7f"), ValueError("0xdead"), KeyError("secret")])
def test_what_nobody_foresaw_stays_inside(error: Exception) -> None:
    """Neither the text nor the kind of such an error is told, only where to look for it."""
    found = refused(error)
    assert (found.status, found.reason, found.is_bug) == (500, "broken", True)
    assert json.loads(found.body) == {"error": "internal error, request id id-7"}


def test_what_is_known_to_be_broken_is_no_surprise() -> None:
    """An error that our own code has logged already is told in its own words."""
    found = refused(InternalError("model 'digits' failed on these rows"))
    assert (found.status, found.is_bug) == (500, False)


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
def test_some_errors_have_a_header(error: Exception, headers: Any) -> None:
    """When to come again, how to show a key, and that a half-read connection ends."""
    response = refused(error)
    assert response.lines == JSON_LINES + headers
    assert response.close is isinstance(error, RequestTimeoutError)


def test_an_unknown_route_is_named() -> None:
    """404 says which route there is not, in JSON."""
    found = refused(HTTPException(404))
    assert (found.status, found.reason) == (404, "unknown")
    assert found.message == "POST /v2/models: there is no such route"


def test_a_wrong_method_says_the_right_one() -> None:
    """405 lists the methods in its sentence and in Allow, in one order."""
    found = refused(HTTPException(405, headers={"Allow": "HEAD, GET"}))
    assert (found.status, found.reason) == (405, "method")
    assert found.message == "POST /v2/models: expected the method GET, HEAD"
    assert found.lines == JSON_LINES + b"allow: GET, HEAD\r\n"


def test_words_of_the_framework_are_not_passed_on() -> None:
    """Another error of the framework has its status and a sentence of ours."""
    found = refused(HTTPException(400, detail="There was an error parsing the body"))
    assert found.status == 400
    assert "parsing" not in found.message


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        (
            {"type": "literal_error", "msg": "Input should be 'a' or 'b'", "input": "c"},
            "query.detail: expected 'a' or 'b', got 'c'",
        ),
        (
            {"type": "missing", "msg": "Field required", "input": None},
            "query.detail: expected a value, got none",
        ),
        ({"type": "odd", "msg": "Value error, /tmp/x", "input": "c"}, "query.detail: expected another value"),
        (
            {"type": "int_parsing", "msg": "Input should be a valid integer", "input": "9" * 500},
            f"query.detail: expected a valid integer, got {'9' * 80!r}",
        ),
    ],
)
def test_a_field_that_makes_no_sense_is_named(entry: dict[str, Any], sentence: str) -> None:
    """The framework's list of errors becomes one sentence, with status 400."""
    found = refused(RequestValidationError([{"loc": ("query", "detail"), **entry}]))
    assert (found.status, found.message) == (400, sentence)


def test_what_cannot_be_printed_forges_no_line() -> None:
    """A path is said as it was sent, escaped."""
    message = refused(HTTPException(404), path="/x%0a12:00:00%1b[2J").message
    assert message == "POST /x%0a12:00:00%1b[2J: there is no such route"
