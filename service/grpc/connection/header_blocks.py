"""Headers of a connection: decodes blocks of HPACK, and writes the few that a server of gRPC sends.

A client's first request fills a table of headers, to which later requests refer, so their blocks are equal
byte for byte. They are decoded once: 25 µs for the headers of a usual client.
"""

from __future__ import annotations

import re

from hpack import Decoder, HPACKError, OversizedHeaderListError

from turnpike.service.bounded_cache import BoundedCache
from turnpike.service.grpc.connection.frames import ErrorCode, Http2Error
from turnpike.service.http.request import Headers, RequestHead

# blocks of one connection: methods times the metadata in use, which a client may change for each request
MAX_CACHED_BLOCKS = 64
MAX_CACHED_BLOCK_BYTES = 1024
# instructions to resize the table at the start of a block: encoders need no more, and each takes time
MAX_TABLE_RESIZES = 2
GRPC_CONTENT_TYPE = b"application/grpc"
# what RFC 9113 allows as the name of a header, and not in a value
HEADER_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
FORBIDDEN_IN_VALUE = re.compile(rb"[\0\r\n]")
REQUIRED_PSEUDO_HEADERS = frozenset({b":method", b":scheme", b":path"})
PSEUDO_HEADERS = REQUIRED_PSEUDO_HEADERS | {b":authority"}
# headers of HTTP/1.1, which have no meaning here
CONNECTION_HEADERS = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)


class GrpcHead(RequestHead):
    """The headers of a call."""

    __slots__ = ("encoding", "is_grpc", "is_malformed", "timeout")

    def __init__(self, path: str, headers: Headers, *, is_grpc: bool, is_malformed: bool = False) -> None:
        super().__init__("POST", path, path, b"", headers, http_version="2", content_length=None)
        # a call of gRPC; else it is malformed, or another request of HTTP/2
        self.is_grpc, self.is_malformed = is_grpc, is_malformed
        # the compression of messages whose flag is 1
        self.encoding = self.fields.get(b"grpc-encoding")
        # how long the client waits
        self.timeout = self.fields.get(b"grpc-timeout")
        # messages are compressed one by one, and never the body
        self.fields.pop(b"content-encoding", None)


class HeaderBlocks:
    """Decodes the header blocks of one connection, in the order in which they arrive."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._decoder = Decoder(max_bytes)
        self._heads: BoundedCache[bytes, GrpcHead] = BoundedCache(MAX_CACHED_BLOCKS)
        # whether the last block changed the table
        self._changed = False

    def head(self, block: bytes) -> GrpcHead:
        """The head of a request."""
        head = self._heads.get(block)
        if head is not None:
            return head
        headers = self.decode(block)
        head = _head(headers)
        # a block that changed the table would mean something else the next time
        if len(block) <= MAX_CACHED_BLOCK_BYTES and not self._changed:
            self._heads.add(block, head)
        return head

    def decode(self, block: bytes) -> Headers:
        """Decode any block, such as that of trailers: each may change the table of later ones."""
        resizes = _table_resizes(block)
        entries = self._decoder.header_table.dynamic_entries
        before = len(entries), entries[0] if entries else None
        try:
            headers = self._decoder.decode(block, raw=True)
        except OversizedHeaderListError as error:
            raise self.too_large() from error
        except HPACKError as error:
            # its text may contain all of the block
            raise Http2Error(
                ErrorCode.COMPRESSION_ERROR, "headers: expected a valid block of HPACK"
            ) from error
        self._changed = (
            resizes > 0 or len(entries) != before[0] or (bool(entries) and entries[0] is not before[1])
        )
        if self._changed:
            self._heads.clear()
        return [(bytes(name), bytes(value)) for name, value in headers]

    def too_large(self) -> Http2Error:
        """The error for headers over the limit, which ends the connection: their table was not kept."""
        return Http2Error(
            ErrorCode.ENHANCE_YOUR_CALM,
            f"headers: expected at most {self._max_bytes} bytes (--max-header), got more",
        )


def _table_resizes(block: bytes) -> int:
    """The number of instructions at the start of a block that resize the table."""
    resizes = position = 0
    while position < len(block) and block[position] & 0xE0 == 0x20:
        if resizes == MAX_TABLE_RESIZES:
            raise Http2Error(
                ErrorCode.COMPRESSION_ERROR,
                f"headers: expected at most {MAX_TABLE_RESIZES} resizes of the table in a block, got more",
            )
        resizes += 1
        # an integer that does not fit in the first byte goes on up to a byte below 128
        is_long = block[position] == 0x3F
        position += 1
        while is_long and position < len(block):
            is_long = block[position] >= 128
            position += 1
    return resizes


def _head(headers: Headers) -> GrpcHead:
    """The head of a request with these headers; those of HTTP/2 itself are left out."""
    pseudo = {name: value for name, value in headers if name[:1] == b":"}
    others = [(name, value) for name, value in headers if name[:1] != b":"]
    is_malformed = (
        not pseudo.keys() >= REQUIRED_PSEUDO_HEADERS
        or not pseudo.keys() <= PSEUDO_HEADERS
        # each is there once, and before the others
        or [name for name, _ in headers[: len(pseudo)]] != list(pseudo)
        or len(pseudo) + len(others) != len(headers)
        or any(_is_malformed(name, value) for name, value in headers[len(pseudo) :])
        or any(FORBIDDEN_IN_VALUE.search(value) for value in pseudo.values())
    )
    authority = pseudo.get(b":authority")
    if authority is not None:
        # the last one counts
        others.append((b"host", authority))
    content_type = dict(others).get(b"content-type", b"")
    is_grpc = content_type.startswith(GRPC_CONTENT_TYPE) and content_type[len(GRPC_CONTENT_TYPE) :][:1] in (
        b"",
        b"+",
        b";",
    )
    return GrpcHead(
        pseudo.get(b":path", b"").decode("latin-1"),
        others,
        is_grpc=is_grpc and pseudo.get(b":method") == b"POST" and not is_malformed,
        is_malformed=is_malformed,
    )


def _is_malformed(name: bytes, value: bytes) -> bool:
    """Whether a header, apart from those of HTTP/2 itself, must not be in a request."""
    return (
        HEADER_NAME.fullmatch(name) is None
        or name in CONNECTION_HEADERS
        or FORBIDDEN_IN_VALUE.search(value) is not None
        or (name == b"te" and value != b"trailers")
    )


def literal(name: bytes, value: bytes) -> bytes:
    """A header that the client does not remember, without Huffman coding."""
    return b"\x00" + _length(name) + name + _length(value) + value


def _length(text: bytes) -> bytes:
    """The length of a string: an integer of HPACK with 7 bits in its first byte."""
    size = len(text)
    if size < 127:
        return bytes((size,))
    encoded, size = bytearray((127,)), size - 127
    while size >= 128:
        encoded.append(size % 128 + 128)
        size //= 128
    encoded.append(size)
    return bytes(encoded)


# entry 8 of HPACK's fixed table is `:status: 200`
OK_HEADERS = b"\x88" + literal(b"content-type", GRPC_CONTENT_TYPE)
OK_TRAILERS = literal(b"grpc-status", b"0")
# the answer to a request that is not gRPC
NOT_GRPC = literal(b":status", b"415")
