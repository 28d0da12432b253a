"""Codes of gRPC for the errors of the service, and their texts as headers."""

from __future__ import annotations

from urllib.parse import unquote

import grpc
import pytest

from turnpike.service import errors
from turnpike.service.errors import RequestError
from turnpike.service.grpc.connection.status import MAX_MESSAGE_BYTES, StatusCode, encode_message, status_of
from turnpike.service.requests.response import ErrorResponse

EXPECTED = {
    errors.RequestError: "INVALID_ARGUMENT",
    errors.RowsError: "INVALID_ARGUMENT",
    errors.UnauthorizedError: "UNAUTHENTICATED",
    errors.ForbiddenError: "PERMISSION_DENIED",
    errors.NotFoundError: "NOT_FOUND",
    errors.RequestTimeoutError: "DEADLINE_EXCEEDED",
    errors.TooLargeError: "RESOURCE_EXHAUSTED",
    errors.UnsupportedEncodingError: "UNIMPLEMENTED",
    errors.MisdirectedError: "FAILED_PRECONDITION",
    errors.NotFiniteError: "OUT_OF_RANGE",
    errors.InternalError: "INTERNAL",
    errors.UnimplementedError: "UNIMPLEMENTED",
    errors.NotReadyError: "UNAVAILABLE",
    errors.OverloadedError: "RESOURCE_EXHAUSTED",
    errors.DeadlineError: "DEADLINE_EXCEEDED",
}


def test_each_error_has_its_code() -> None:
    """All errors that a caller can get are here."""
    assert EXPECTED.keys() == {RequestError, *RequestError.__subclasses__()}
    for error, name in EXPECTED.items():
        assert status_of(ErrorResponse(error.status, error.reason, "")).name == name
    assert status_of(ErrorResponse(418, "other", "")) is StatusCode.INTERNAL


def test_codes_are_those_of_grpcio() -> None:
    assert {code.name: code.value for code in StatusCode} == {
        code.name: code.value[0] for code in grpc.StatusCode if code.name in StatusCode.__members__
    }


@pytest.mark.parametrize("text", ["plain text, got 'x'", "ünï\n\t%41", "~\x7f\x00", "日本語"])
def test_texts_are_printable_headers(text: str) -> None:
    """Only what is not printable ASCII is escaped, and the sign of the escapes."""
    encoded = encode_message(text)
    assert unquote(encoded.decode("ascii")) == text
    assert all(0x20 <= byte < 0x7F for byte in encoded)
    kept = [char for char in text if " " <= char <= "~" and char != "%"]
    assert encoded.count(b"%") == len(text.encode()) - len(kept)


def test_a_text_that_is_no_unicode_is_sent() -> None:
    assert encode_message("a\ud800b") == b"a?b"


def test_texts_are_cut() -> None:
    """By characters, so that no escape is cut."""
    assert encode_message("ü" * 5000) == b"%C3%BC" * (MAX_MESSAGE_BYTES // 6)
