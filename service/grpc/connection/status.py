"""Status codes of gRPC, and the code for each answer of the service."""

from __future__ import annotations

from enum import IntEnum
from urllib.parse import quote

from turnpike.service.requests.response import ErrorResponse

# bytes of a message with its escapes: it fits in the 8 KiB of headers that clients accept
MAX_MESSAGE_BYTES = 4000


class StatusCode(IntEnum):
    """How a call ended; only the codes that this service uses."""

    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


# by the HTTP status of an error; see `service.errors`
CODES = {
    400: StatusCode.INVALID_ARGUMENT,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    408: StatusCode.DEADLINE_EXCEEDED,
    413: StatusCode.RESOURCE_EXHAUSTED,
    415: StatusCode.UNIMPLEMENTED,
    421: StatusCode.FAILED_PRECONDITION,
    422: StatusCode.OUT_OF_RANGE,
    500: StatusCode.INTERNAL,
    501: StatusCode.UNIMPLEMENTED,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
}


def status_of(error: ErrorResponse) -> StatusCode:
    """The code of an error. Both a full queue and a model that is not served have the status 503."""
    if error.reason == "overloaded":
        return StatusCode.RESOURCE_EXHAUSTED
    return CODES.get(error.status, StatusCode.INTERNAL)


def encode_message(text: str) -> bytes:
    """The text of an error as the header `grpc-message` has it: with escapes for all but printable ASCII."""
    escaped = _escape(text)
    while len(escaped) > MAX_MESSAGE_BYTES:
        # a character becomes up to 12 bytes
        text = text[: min(len(text) * MAX_MESSAGE_BYTES // len(escaped), len(text) - 1)]
        escaped = _escape(text)
    return escaped.encode()


def _escape(text: str) -> str:
    return quote(text, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~", errors="replace")
