"""Headers of a connection: decodes blocks of HPACK, and writes the few that a server of gRPC sends.

A client's first request fills a table of headers, to which later requests refer, so their blocks are equal
byte for byte. They are decoded once: 25 µs for the headers of a usual client.
"""

from __future__ import annotations

from hpack import Decoder, HPACKError

from service.bounded_cache import BoundedCache
from service.grpc.connection.frames import ErrorCode, Http2Error
from service.http.request import Headers, RequestHead

# blocks of one connection: methods times the metadata in use, which a client may change for each request
MAX_CACHED_BLOCKS = 64
MAX_CACHED_BLOCK_BYTES = 1024
GRPC_CONTENT_TYPE = b"application/grpc"


class GrpcHead(RequestHead):
    """The headers of a call."""

    __slots__ = ("encoding", "is_grpc", "timeout")

    def __init__(self, path: str, headers: Headers, *, is_grpc: bool) -> None:
        super().__init__("POST", path, path, b"", headers, http_version="2", content_length=None)
        self.is_grpc = is_grpc
        # how a message is compressed whose flag says that it is
        self.encoding = self.fields.get(b"grpc-encoding")
        # how long the client waits
        self.timeout = self.fields.get(b"grpc-timeout")


class HeaderBlocks:
    """Decodes the header blocks of one connection, in the order in which they arrive."""

    def __init__(self, max_bytes: int) -> None:
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
        entries = self._decoder.header_table.dynamic_entries
        before = len(entries), entries[0] if entries else None
        try:
            headers = self._decoder.decode(block, raw=True)
        except (HPACKError, UnicodeError) as error:
            raise Http2Error(
                ErrorCode.COMPRESSION_ERROR, f"headers: expected a valid block within --max-header ({error})"
            ) from error
        self._changed = len(entries) != before[0] or (bool(entries) and entries[0] is not before[1])
        if self._changed:
            self._heads.clear()
        return [(bytes(name), bytes(value)) for name, value in headers]


def _head(headers: Headers) -> GrpcHead:
    """The head of a request with these headers; those of HTTP/2 itself are left out."""
    pseudo = {name: value for name, value in headers if name[:1] == b":"}
    others = [(name, value) for name, value in headers if name[:1] != b":"]
    authority = pseudo.get(b":authority")
    if authority is not None:
        others.insert(0, (b"host", authority))
    content_type = dict(others).get(b"content-type", b"")
    path = pseudo.get(b":path", b"")
    return GrpcHead(
        path.decode("latin-1"),
        others,
        is_grpc=pseudo.get(b":method") == b"POST" and content_type.startswith(GRPC_CONTENT_TYPE),
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
OK_LINES = b"\x88" + literal(b"content-type", GRPC_CONTENT_TYPE)
OK_TRAILERS = literal(b"grpc-status", b"0")
# the answer to a request that is not gRPC
NOT_GRPC = literal(b":status", b"415")
