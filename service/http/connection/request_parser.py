"""Cuts the input of a connection into heads and bodies, and makes requests of them.

httptools (llhttp) parses bodies in chunks, and heads that the cache does not know. It does not say where in
the data they end, so the data is cut there first. Limits then count the same bytes in whatever segments a
request arrives.
"""

from __future__ import annotations

import re
import urllib.parse
from typing import TYPE_CHECKING, Any

import httptools

from turnpike.service.http.connection.head_cache import HEAD_END, HEAD_END_LENGTH
from turnpike.service.http.connection.http_state import BODY
from turnpike.service.http.connection.malformed import (
    MalformedRequestError,
    asks_to_close,
    check_head,
    malformed_request_error,
    with_host_of,
)
from turnpike.service.requests.request import Headers, RequestHead

if TYPE_CHECKING:
    from turnpike.service.http.connection.protocol import HttpProtocol
    from turnpike.service.http.connection.wire_request import WireRequest

LINE_ENDS = b"\r\n"
EMPTY_LINES = re.compile(rb"[\r\n]*")
# ++ and *+ never go back, so that a hostile line is read once
CHUNK_HEADER = re.compile(rb"([0-9A-Fa-f]++)[^\n]*+\n")


class RequestParser:
    """Parses the input of one connection: begins its requests, and adds bodies to them."""

    def __init__(self, connection: HttpProtocol) -> None:
        self._connection = connection
        self._max_bytes = connection.limits.max_header
        self._known_heads = connection.shared.heads
        # None after a head whose body it does not get
        self._parser: Any = None
        # the head that is being parsed: its bytes so far, and what they were parsed to
        self._head: bytes = b""
        self._url = b""
        self._headers: Headers = []
        self._expects_continue = False
        self._upgrading = False
        self._in_body = False
        # bytes of the present body that have not arrived; None if it comes in chunks
        self._body_left: int | None = 0
        # bytes of the present chunk, and of the line end after it, that have not arrived
        self._chunk_left = 0
        # the line that is arriving: a chunk's header or, after the last chunk's, a trailer
        self._line = b""
        self._in_trailers = False
        # bytes of such lines since the last chunk with data; they may have no end
        self._line_bytes = 0

    def feed(self, data: bytes) -> None:
        """Parse data from the client, and queue the requests in it. Also raises errors of httptools."""
        position, connection = 0, self._connection
        while position < len(data):
            newest = connection.newest_request
            if newest is None or connection.state is not BODY:
                position = self._feed_head(data, position)
            elif self._body_left is None:
                position = self._feed_chunks(data, position, newest)
            else:
                stop = position + self._body_left
                newest.feed(data[position:stop])
                if stop <= len(data):
                    connection.body_received()
                else:
                    self._body_left = stop - len(data)
                position = stop

    def explain(self, error: httptools.HttpParserError) -> MalformedRequestError:
        """The error for the client, for one that `feed` has raised."""
        return malformed_request_error(error, "trailers" if self._in_body else "headers")

    def close(self) -> None:
        """Drop the parser of httptools, which refers back to this one."""
        self._parser = None

    # ---- parts of the data; each method returns the position of what follows

    def _feed_head(self, data: bytes, position: int) -> int:
        """Parse a head, as far as it has arrived and is not too long."""
        if not self._head and data[position] in LINE_ENDS:
            # empty lines before a request are ignored
            match = EMPTY_LINES.match(data, position)
            return match.end() if match else position
        end = _end_of_empty_line(data, position, self._head[1 - HEAD_END_LENGTH :])
        room = self._max_bytes - len(self._head)
        stop = min(end or len(data), position + room)
        piece = data[position:stop]
        if stop == end and not self._head and (known := self._known_heads.get(piece)) is not None:
            self._begin(known)
            if not known.content_length:
                self._connection.body_received()
            return stop
        self._head += piece
        if self._parser is None:
            self._parser = self._new_parser()
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._ignore_upgrade(self._parser)
        if stop == end:
            self._head = b""
            if self._body_left:
                self._parser = None
        elif stop - position == room:
            raise _too_long("request line and headers", self._max_bytes)
        else:
            self._connection.head_began()
        return stop

    def _feed_chunks(self, data: bytes, position: int, request: WireRequest) -> int:
        """Parse a part of a body in chunks, up to its end."""
        stop = self._end_of_chunks(data, position)
        self._parser.feed_data(memoryview(data)[position:stop])
        if stop < len(data) and not request.received:
            raise _too_long("trailers", self._max_bytes)
        return stop

    def _end_of_chunks(self, data: bytes, position: int) -> int:
        """Where the body in chunks ends or its lines become too long; without these, the end of the data.

        The sizes of chunks say where lines are: nothing is searched in the data of a chunk, which the client
        chooses. httptools refuses malformed lines.
        """
        size, max_bytes = len(data), self._max_bytes
        position += self._chunk_left
        while position < size:
            if not (self._line or self._in_trailers):
                # most headers of chunks are whole
                while position < size and (
                    header := CHUNK_HEADER.match(data, position, position + max_bytes)
                ):
                    length = int(header[1], 16)
                    if not length:
                        break
                    position = header.end() + length + len(LINE_ENDS)
            limit = min(position + max_bytes - self._line_bytes, size)
            if limit <= position:
                break
            stop = data.find(b"\n", position, limit) + 1
            self._line += data[position : stop or limit]
            self._line_bytes += (stop or limit) - position
            position = stop or limit
            if not stop:
                continue
            line, self._line = self._line, b""
            if self._in_trailers:
                if line == LINE_ENDS:
                    break
                continue
            header = CHUNK_HEADER.match(line)
            if header is not None and (length := int(header[1], 16)):
                position += length + len(LINE_ENDS)
                self._line_bytes = 0
            else:
                self._in_trailers = True
        self._chunk_left = max(position - size, 0)
        return min(position, size)

    def _ignore_upgrade(self, parser: httptools.HttpRequestParser) -> None:
        """Parse a request with an Upgrade header again without it.

        The parser stops after the head of such a request, because the other protocol would follow.
        """
        method = parser.get_method()
        if method == b"CONNECT":
            message = "the method: expected GET, HEAD or POST, got CONNECT, which is for proxies"
            raise MalformedRequestError(400, message) from None
        lines = [b"%b %b HTTP/%b" % (method, self._url, parser.get_http_version().encode())]
        lines += [b"%b: %b" % header for header in self._headers if header[0] != b"upgrade"]
        self._parser = self._new_parser()
        self._parser.feed_data(b"\r\n".join([*lines, b"", b""]))

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # a client may send requests after one with `Connection: close`; they are ignored, not an error
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _begin(self, head: RequestHead) -> None:
        """Begin the request with this head."""
        self._in_body = True
        self._body_left = head.content_length
        self._chunk_left = self._line_bytes = 0
        self._line = b""
        self._in_trailers = False
        self._connection.head_received(head)

    # ---- called by httptools

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = []
        self._expects_continue = self._upgrading = self._in_body = False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            # a trailer, which follows a body in chunks; it is ignored, since it must not count as a header
            return
        # httptools removes white space before a value, and leaves the one behind it
        name, value = name.lower(), value.rstrip(b" \t")
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser: httptools.HttpRequestParser = self._parser
        version = parser.get_http_version()
        length = check_head(self._head, version, self._headers)
        if parser.should_upgrade():
            self._upgrading = True
            return
        if not self._url.startswith((b"/", b"*")):
            self._headers = with_host_of(self._url, self._headers)
        url = httptools.parse_url(self._url)
        raw_path = (url.path or b"/").decode("ascii")
        head = RequestHead(
            parser.get_method().decode("ascii"),
            raw_path,
            urllib.parse.unquote(raw_path) if "%" in raw_path else raw_path,
            url.query or b"",
            self._headers,
            http_version=version,
            keep_alive=parser.should_keep_alive() and not (version == "1.0" and asks_to_close(self._headers)),
            content_length=length,
            # HTTP/1.0 has no 100 Continue
            expects_continue=self._expects_continue and version != "1.0",
        )
        self._known_heads.add_parsed(self._head, head)
        self._begin(head)

    def on_body(self, body: bytes) -> None:
        newest = self._connection.newest_request
        if newest is not None:
            newest.feed(body)

    def on_message_complete(self) -> None:
        if not self._upgrading:
            self._connection.body_received()


def _end_of_empty_line(data: bytes, position: int, tail: bytes) -> int | None:
    """Where the next empty line after a line ends, None if not in this data. `tail` is what came before."""
    cut = (tail + data[position : position + HEAD_END_LENGTH - 1]).find(HEAD_END) if tail else -1
    if cut != -1:
        return position + cut + HEAD_END_LENGTH - len(tail)
    start = data.find(HEAD_END, position)
    return None if start == -1 else start + HEAD_END_LENGTH


def _too_long(part: str, max_bytes: int) -> MalformedRequestError:
    return MalformedRequestError(
        431, f"the {part}: expected at most {max_bytes} bytes (--max-header), got more"
    )
