"""Checks request heads, and makes the answer to input that is no valid request.

httptools itself refuses lines that end with LF alone, headers that go on in the next line, and a
Transfer-Encoding beside a Content-Length.
"""

from __future__ import annotations

import re

import httptools
import orjson

from turnpike.service.requests.request import Headers
from turnpike.service.requests.response import MAX_QUOTED_LENGTH

VERSIONS = ("1.1", "1.0")
# a target has no fragment, and only OPTIONS may have the target *
REQUEST_LINE = re.compile(rb"(?:OPTIONS \*|[A-Z-]+ (?!\* )[\x21\x22\x24-\x7e]+) HTTP/\d\.\d\r\n")
# a name or an IPv4 address, or an IPv6 address in brackets, and a port
HOST_AND_PORT = rb"(?:[\w.~!$&'()*+,;=%-]+|\[[\da-fA-F:.]+\])(?::\d{0,5})?"
HOST = re.compile(HOST_AND_PORT + rb"[ \t]*")
# a target with a host, which clients send to proxies
HTTP_URL = re.compile(rb"(?i:https?)://(" + HOST_AND_PORT + rb")(?:[/?]|$)")
INVALID_TARGET = "the target: expected a path or a URL in ASCII, got something else"
NO_METHOD = "the request line: expected a method such as GET, got something else"
NO_VERSION = "the request line: expected HTTP/1.1 after the target, got something else"
INVALID_HEADER = "the {part}: expected lines such as 'Name: value', got something else"
TWO_LENGTHS = "the headers: expected Content-Length or Transfer-Encoding, got both"
NO_END_OF_SIZE = "the body: expected CR LF after the size of a chunk, got something else"
NO_END_OF_DATA = "the body: expected CR LF after the data of a chunk, got something else"
# In HTTP/1.1: a library of gRPC that reads it gives up, and would connect again and again after a GOAWAY.
HTTP2_PREFACE = (
    "the request: expected HTTP/1.1 or HTTP/1.0, got HTTP/2.0, which is for gRPC, on the port of --grpc-port"
)
# What the client sees for an error of httptools, by the text of that error. `part` is headers or trailers.
# None quotes the client: httptools ends at the first wrong byte, and the rest may not have arrived.
MESSAGES = {
    "Invalid method encountered": NO_METHOD,
    "Invalid method for HTTP/x.x request": NO_METHOD,
    "Expected space after method": "the request line: expected a method and a space, got something else",
    "Expected HTTP/, RTSP/ or ICE/": NO_VERSION,
    "Invalid major version": NO_VERSION,
    "Expected dot": NO_VERSION,
    "Invalid minor version": NO_VERSION,
    "Invalid HTTP version": "the request: expected HTTP/1.1 or HTTP/1.0, got another version",
    "Pause on PRI/Upgrade": HTTP2_PREFACE,
    "Expected CRLF after version": "the request line: expected CR LF after the version, got something else",
    "Missing expected CR after header value": "the {part}: expected lines that end in CR LF, got LF alone",
    "Expected LF after headers": "the {part}: expected lines that end in CR LF, got CR alone",
    "Missing expected LF after header value": "the {part}: expected lines that end in CR LF, got CR alone",
    "Unexpected whitespace after header value": (
        "the {part}: expected one line for each, got one that goes on in the next line"
    ),
    "Unexpected space after start line": INVALID_HEADER,
    "Invalid header token": INVALID_HEADER,
    "Invalid header field char": INVALID_HEADER,
    "Invalid header value char": "the {part}: expected values without control characters, got one",
    "Invalid character in Content-Length": "Content-Length: expected a whole number, got something else",
    "Empty Content-Length": "Content-Length: expected a whole number, got none",
    "Content-Length overflow": "Content-Length: expected a number that fits into 64 bits, got a larger one",
    "Duplicate Content-Length": "the headers: expected one Content-Length, got 2",
    "Transfer-Encoding can't be present with Content-Length": TWO_LENGTHS,
    "Content-Length can't be present with Transfer-Encoding": TWO_LENGTHS,
    "Empty Transfer-Encoding": "Transfer-Encoding: expected chunked, got none",
    "Invalid `Transfer-Encoding` header value": "Transfer-Encoding: expected only chunked, got more",
    "Invalid character in chunk size": "the body: expected the size of a chunk in hex, got something else",
    "Chunk size overflow": "the body: expected the size of a chunk in 64 bits, got a larger one",
    "Missing expected CR after chunk size": NO_END_OF_SIZE,
    "Expected LF after chunk size": NO_END_OF_SIZE,
    "Missing expected CR after chunk data": NO_END_OF_DATA,
    "Expected LF after chunk data": NO_END_OF_DATA,
}


class MalformedRequestError(Exception):
    """The input is no valid request. Raised while parsing, with the status and the message of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def malformed_request_error(error: httptools.HttpParserError, part: str) -> MalformedRequestError:
    """The error for input that httptools refused; `part` is headers or trailers."""
    # the context is set if the error was raised in a callback of the parser
    cause = error.__context__
    if isinstance(cause, MalformedRequestError):
        return cause
    if isinstance(error, httptools.HttpParserInvalidURLError) or isinstance(
        cause, httptools.HttpParserInvalidURLError
    ):
        return MalformedRequestError(400, INVALID_TARGET)
    message = MESSAGES.get(str(error), "the request: expected valid HTTP/1.1, got something else")
    return MalformedRequestError(400, message.format(part=part))


def check_head(head: bytes | bytearray, version: str, headers: Headers) -> int | None:
    """Check what httptools does not; returns the length of the body, None for chunks.

    Other servers might read such a request differently, or find another one in it.

    Args:
        head: The bytes of the head.
        version: The version of HTTP that was found in it.
        headers: The headers that were found in it.

    Raises:
        MalformedRequestError: The request is not valid by RFC 9112.
    """
    if version not in VERSIONS:
        raise MalformedRequestError(400, f"the request: expected HTTP/1.1 or HTTP/1.0, got HTTP/{version}")
    if REQUEST_LINE.match(head) is None:
        raise MalformedRequestError(
            400, "the request line: expected a method, a target and HTTP/1.1, with one space between them"
        )
    hosts, length = [], 0
    codings = []
    for name, value in headers:
        if name == b"host":
            hosts.append(value)
        elif name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            codings.append(value)
    if len(hosts) > 1 or (version == "1.1" and not hosts):
        raise MalformedRequestError(400, f"the headers: expected one Host, got {len(hosts) or 'none'}")
    if hosts and HOST.fullmatch(hosts[0]) is None:
        raise MalformedRequestError(
            400, f"Host: expected a name or an address, with or without a port, got {_quoted(hosts[0])}"
        )
    if not codings:
        return length
    if version == "1.0":
        raise MalformedRequestError(400, "Transfer-Encoding: expected none in HTTP/1.0, got one")
    coding = b", ".join(codings)
    if coding.strip().lower() != b"chunked":
        raise MalformedRequestError(400, f"Transfer-Encoding: expected chunked, got {_quoted(coding)}")
    return None


def asks_to_close(headers: Headers) -> bool:
    """Whether a header Connection has the option `close`; in HTTP/1.0, httptools lets keep-alive prevail."""
    options = b",".join(value for name, value in headers if name == b"connection")
    return b"close" in [option.strip() for option in options.lower().split(b",")]


def with_host_of(target: bytes, headers: Headers) -> Headers:
    """The headers of a request to a URL. The host of the URL replaces the header Host, by RFC 9112."""
    match = HTTP_URL.match(target)
    if match is None:
        raise MalformedRequestError(400, f"the target: expected a path or a URL, got {_quoted(target)}")
    return [*(header for header in headers if header[0] != b"host"), (b"host", match[1])]


def _quoted(value: bytes) -> str:
    return repr(value[:MAX_QUOTED_LENGTH].decode("latin-1"))


def refusal(error: MalformedRequestError, first_lines: bytes, request_id: str) -> bytes:
    """The bytes of the answer to malformed input, which is the last answer of its connection."""
    body = orjson.dumps({"error": str(error)})
    return (
        b"%bcontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n"
        b"x-request-id: %b\r\n\r\n%b" % (first_lines, len(body), request_id.encode(), body)
    )
