"""Headers of a connection: decodes blocks of HPACK, and writes the few that a server of gRPC sends.

A client's first request fills a table of headers, to which later requests refer, so their blocks are equal
byte for byte. They are decoded once: 25 µs for the headers of a usual client. Other blocks take far longer
than their bytes took to arrive, so their fields are limited, and `work` says how much was decoded.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hpack import Decoder, HPACKError, OversizedHeaderListError

from turnpike.service.bounded_cache import BoundedCache
from turnpike.service.grpc.connection.frames import ErrorCode, Http2Error
from turnpike.service.requests.decompression import WINDOW_BITS
from turnpike.service.requests.request import Headers, RequestHead

# blocks of one connection: methods times the metadata in use, which a client may change for each request
MAX_CACHED_BLOCKS = 64
MAX_CACHED_BLOCK_BYTES = 1024
# fields of a block: those of HTTP/2, of gRPC and the metadata; proxies such as Envoy allow as many
MAX_FIELDS = 100
# Bytes of a block that take as long to decode as one field (2 to 3 µs), if all are Huffman-coded.
BYTES_PER_FIELD = 16
# bits of an integer after its first byte; one with many more would take long to add up
MAX_INTEGER_BITS = 35
# instructions to resize the table at the start of a block: encoders need no more, and each takes time
MAX_TABLE_RESIZES = 2
GRPC_CONTENT_TYPE = b"application/grpc"
# what RFC 9113 allows as the name of a header, and not in a value
HEADER_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
LENGTH = re.compile(rb"[0-9]{1,18}")
FORBIDDEN_IN_VALUE = re.compile(rb"[\0\r\n]")
REQUIRED_PSEUDO_HEADERS = frozenset({b":method", b":scheme", b":path"})
PSEUDO_HEADERS = REQUIRED_PSEUDO_HEADERS | {b":authority"}
# headers of HTTP/1.1, which have no meaning here
CONNECTION_HEADERS = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)


class GrpcHead(RequestHead):
    """The headers of a call."""

    __slots__ = (
        "announced_bytes",
        "answer_encoding",
        "encoding",
        "is_grpc",
        "is_malformed",
        "ok_headers",
        "timeout",
    )

    def __init__(self, path: str, headers: Headers, *, is_grpc: bool, is_malformed: bool = False) -> None:
        super().__init__("POST", path, path, b"", headers, http_version="2", content_length=None)
        # a call of gRPC; else it is malformed, or another request of HTTP/2
        self.is_grpc, self.is_malformed = is_grpc, is_malformed
        # the compression of messages whose flag is 1
        self.encoding = self.fields.get(b"grpc-encoding")
        # The compression of large answers. All libraries accept gzip, so what counts is what the client uses.
        accepted = [name.strip() for name in self.fields.get(b"grpc-accept-encoding", b"").split(b",")]
        encoding = self.encoding.decode("latin-1") if self.encoding in accepted else ""
        self.answer_encoding = encoding if encoding in WINDOW_BITS else None
        # the first headers of an answer
        self.ok_headers = OK_HEADERS + (
            literal(b"grpc-encoding", encoding.encode()) if self.answer_encoding else b""
        )
        # bytes of the body, if the client announces them
        length = self.fields.get(b"content-length")
        self.announced_bytes = None if length is None or is_malformed else int(length)
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
        # what was decoded since somebody set this to 0, in fields or as many bytes as take as long
        self.work = 0

    def head(self, block: bytes) -> GrpcHead:
        """The head of a request."""
        head = self._heads.get(block)
        if head is not None:
            return head
        headers, changes_table = self._decode(block)
        head = _head(headers)
        # a block that changed the table would mean something else the next time
        if len(block) <= MAX_CACHED_BLOCK_BYTES and not changes_table:
            self._heads.add(block, head)
        return head

    def decode(self, block: bytes) -> Headers:
        """Decode any block, such as that of trailers: each may change the table of later ones."""
        headers, _ = self._decode(block)
        return headers

    def _decode(self, block: bytes) -> tuple[Headers, bool]:
        """The headers of a block, and whether it changed the table."""
        outline = _outline(block)
        self.work += outline.fields + len(block) // BYTES_PER_FIELD
        try:
            headers = self._decoder.decode(block, raw=True)
        except OversizedHeaderListError as error:
            raise self.too_large() from error
        except HPACKError as error:
            # its text may contain all of the block
            raise _invalid_block_error() from error
        if outline.changes_table:
            self._heads.clear()
        return [(bytes(name), bytes(value)) for name, value in headers], outline.changes_table

    def too_large(self) -> Http2Error:
        """The error for headers over the limit, which ends the connection: their table was not kept."""
        return Http2Error(
            ErrorCode.ENHANCE_YOUR_CALM,
            f"headers: expected at most {self._max_bytes} bytes (--max-header), got more",
        )


class BlockOutline(NamedTuple):
    """What a block consists of, without the texts of its fields."""

    fields: int
    changes_table: bool


def _outline(block: bytes) -> BlockOutline:
    """Count the fields of a block, which takes a twentieth of the time of decoding them.

    Raises Http2Error if there are too many. A damaged block may get any outline; the decoder refuses it.
    """
    fields = resizes = position = 0
    changes_table = False
    while position < len(block):
        first = block[position]
        if first >= 0x80:
            # a field of the table; most have a number below 127, which is in this byte
            position = position + 1 if first != 0xFF else _integer(block, position, 0x7F)[1]
        elif first & 0xE0 == 0x20:
            resizes += 1
            if resizes > MAX_TABLE_RESIZES:
                raise Http2Error(
                    ErrorCode.COMPRESSION_ERROR,
                    f"headers: expected at most {MAX_TABLE_RESIZES} resizes of the table, got more",
                )
            changes_table = True
            position = _integer(block, position, 0x1F)[1]
            continue
        else:
            # a name, in the table or as a string, and a value
            is_kept = first >= 0x40
            changes_table |= is_kept
            name_index, position = _integer(block, position, 0x3F if is_kept else 0x0F)
            for _ in range(1 if name_index else 2):
                if position < len(block):
                    length, position = _integer(block, position, 0x7F)
                    position += length
        fields += 1
        if fields > MAX_FIELDS:
            raise Http2Error(
                ErrorCode.ENHANCE_YOUR_CALM, f"headers: expected at most {MAX_FIELDS} fields, got more"
            )
    return BlockOutline(fields, changes_table)


def _integer(block: bytes, position: int, mask: int) -> tuple[int, int]:
    """An integer of HPACK whose first byte has the bits of `mask`, and the position behind it."""
    value = block[position] & mask
    position += 1
    if value == mask:
        for shift in range(0, MAX_INTEGER_BITS, 7):
            if position == len(block):
                break
            byte = block[position]
            position += 1
            value += (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise _invalid_block_error()
    return value, position


def _invalid_block_error() -> Http2Error:
    return Http2Error(ErrorCode.COMPRESSION_ERROR, "headers: expected a valid block of HPACK")


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
        or not pseudo[b":path"]
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


def are_valid_trailers(headers: Headers) -> bool:
    """Whether these headers may come after a body; those of HTTP/2 itself may not."""
    return not any(_is_malformed(name, value) for name, value in headers)


def _is_malformed(name: bytes, value: bytes) -> bool:
    """Whether a header, apart from those of HTTP/2 itself, must not be in a request."""
    return (
        HEADER_NAME.fullmatch(name) is None
        or name in CONNECTION_HEADERS
        or FORBIDDEN_IN_VALUE.search(value) is not None
        or (name == b"te" and value != b"trailers")
        or (name == b"content-length" and LENGTH.fullmatch(value) is None)
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
NOT_GRPC_TEXT = b'{"error":"this port speaks gRPC; HTTP is on the port of --port"}'
NOT_GRPC = literal(b":status", b"415") + literal(b"content-type", b"application/json")
