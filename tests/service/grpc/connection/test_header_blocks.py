"""Header blocks: what is kept of them, and that a block is never taken for another."""

from __future__ import annotations

import random

import pytest
from hpack import Decoder, Encoder, HPACKError

from turnpike.service.grpc.connection.frames import Http2Error
from turnpike.service.grpc.connection.header_blocks import (
    BYTES_PER_FIELD,
    MAX_CACHED_BLOCKS,
    NOT_GRPC,
    OK_HEADERS,
    OK_TRAILERS,
    HeaderBlocks,
    _outline,
    literal,
)

FIELDS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/a.B/C"),
    (":authority", "localhost:8001"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]


def test_the_head_of_a_call() -> None:
    """Its path, and its metadata with the host. The last of several values counts."""
    head = HeaderBlocks(4096).head(
        Encoder().encode(
            [
                *FIELDS,
                ("x-request-id", "mine"),
                ("grpc-timeout", "5S"),
                ("grpc-encoding", "gzip"),
                ("x-turnpike-drift", "skip"),
                ("host", "other"),
                ("key", "a"),
                ("key", "b"),
            ]
        )
    )
    assert (head.method, head.path, head.http_version) == ("POST", "/a.B/C", "2")
    assert (head.is_grpc, head.is_malformed) == (True, False)
    assert (head.chosen_id, head.timeout, head.encoding) == ("mine", b"5S", b"gzip")
    assert head.skips_drift
    assert head.fields[b"host"] == b"localhost:8001"
    assert [value for name, value in head.headers if name == b"key"] == [b"a", b"b"]
    assert head.fields[b"key"] == b"b"


def test_equal_blocks_are_decoded_once() -> None:
    """The first one changes the table, so it is not kept; the others refer to the table."""
    encoder, blocks = Encoder(), HeaderBlocks(4096)
    first = blocks.head(encoder.encode(FIELDS))
    second = blocks.head(encoder.encode(FIELDS))
    assert blocks.head(encoder.encode(FIELDS)) is second
    assert first is not second
    assert first.headers == second.headers


def test_a_block_means_what_the_table_says() -> None:
    """Whenever a block changes the table, the same bytes mean something else from then on."""
    encoder, blocks = Encoder(), HeaderBlocks(4096)
    encoder.encode(FIELDS)
    blocks.head(Encoder().encode(FIELDS))
    # entry 62 is the newest of the table, which is `te`
    block = b"\x83\x86\xbe"
    assert dict(blocks.head(block).headers) == {b"te": b"trailers"}
    assert blocks.head(block) is blocks.head(block)
    blocks.decode(b"\x40\x01a\x01b")
    assert dict(blocks.head(block).headers) == {b"a": b"b"}


def test_a_block_that_resizes_the_table_is_decoded_each_time() -> None:
    """Even if it removes nothing from the table at the time."""
    blocks = HeaderBlocks(4096)
    blocks.decode(b"\x40\x01a\x01b")
    # to 100 bytes, which hold two entries of 34
    small = b"\x3f\x45\x83\x86\xbe"
    blocks.head(small)
    # to 4096, and back
    blocks.decode(b"\x3f\xe1\x1f")
    blocks.head(small)
    for name in (b"c", b"d"):
        blocks.decode(b"\x40\x01" + name + b"\x01e")
    # only two are left
    assert blocks.decode(b"\xbf") == [(b"c", b"e")]
    with pytest.raises(Http2Error):
        blocks.decode(b"\xc0")


def test_any_blocks_are_decoded_as_without_a_cache() -> None:
    """Random headers by two encoders, some of whose blocks are equal."""
    draw = random.Random(4)
    encoder, decoder, blocks = Encoder(), Decoder(), HeaderBlocks(4096)
    for _ in range(1000):
        if draw.random() < 0.01:
            encoder.header_table_size = draw.choice((0, 64, 200, 4096))
        fields = [
            *FIELDS,
            *((f"k{draw.randrange(6)}", f"v{draw.randrange(3)}") for _ in range(draw.randrange(3))),
        ]
        block = encoder.encode(fields)
        expected = [(bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True)]
        head = blocks.head(block)
        others = [(name, value) for name, value in expected if not name.startswith(b":")]
        assert head.headers[:-1] == others
        assert len(blocks._heads) <= MAX_CACHED_BLOCKS


def random_block(draw: random.Random) -> bytes:
    """Instructions of HPACK with numbers and strings of all lengths, most of which are valid."""

    def integer(value: int, mask: int, bits: int) -> bytes:
        if value < mask:
            return bytes((bits | value,))
        encoded, value = bytearray((bits | mask,)), value - mask
        while value >= 128:
            encoded.append(value % 128 + 128)
            value //= 128
        return bytes((*encoded, value))

    def string() -> bytes:
        size = draw.choice((0, 1, 5, 126, 127, 128, 300))
        return integer(size, 0x7F, 0) + b"x" * size

    instructions = [
        integer(draw.choice((0, 100, 4096)), 0x1F, 0x20) for _ in range(draw.choice((0, 0, 1, 2)))
    ]
    for _ in range(draw.randrange(6)):
        mask, bits = draw.choice(((0x3F, 0x40), (0x0F, 0x00), (0x0F, 0x10)))
        name = draw.choice((0, 0, 1, 14, 15, 16, 61, 62, 63, 64))
        literal_field = integer(name, mask, bits) + (b"" if name else string()) + string()
        instructions.append(
            draw.choice((literal_field, integer(draw.choice((2, 61, 62, 63, 70)), 0x7F, 0x80)))
        )
    return b"".join(instructions)


def test_the_outline_of_a_block_is_that_of_the_decoder() -> None:
    """It has as many fields, and each block that changes the table is known to."""
    draw = random.Random(5)
    decoded = 0
    while decoded < 1000:
        decoder, blocks = Decoder(), HeaderBlocks(1 << 20)
        for _ in range(20):
            block, table = random_block(draw), decoder.header_table
            before = list(table.dynamic_entries), table.maxsize
            try:
                expected = decoder.decode(block, raw=True)
            except HPACKError:
                with pytest.raises(Http2Error):
                    blocks.decode(block)
                break
            outline = _outline(block)
            assert outline.fields == len(expected)
            assert outline.changes_table or (list(table.dynamic_entries), table.maxsize) == before
            assert blocks.decode(block) == [(bytes(name), bytes(value)) for name, value in expected]
            decoded += 1


def test_a_number_that_goes_on_and_on_is_refused() -> None:
    """Adding up the parts of a number of 32 KB would take long. The decoder refuses it too, but later."""
    value = b"x" * 128 + b"\x00"
    length = b"\x7f\x81\x80\x80\x80"
    assert HeaderBlocks(4096).decode(b"\x00" + length + b"\x00" + value) == [(b"x" * 128, b"")]
    with pytest.raises(Http2Error, match="expected a valid block of HPACK"):
        _outline(b"\x00" + length + b"\x80\x00" + value)


def test_work_grows_with_fields_and_bytes() -> None:
    blocks = HeaderBlocks(1 << 20)
    blocks.decode(b"\x82" * 50)
    fields, blocks.work = blocks.work, 0
    blocks.decode(Encoder().encode([("x", "a" * 1600)], huffman=True))
    assert (fields, blocks.work) == (53, 1 + 1600 * 5 // 8 // BYTES_PER_FIELD)


def test_long_blocks_are_not_kept() -> None:
    """They would take memory for each connection."""
    encoder, blocks = Encoder(), HeaderBlocks(4096)
    blocks.head(encoder.encode(FIELDS))
    block = encoder.encode(FIELDS) + literal(b"x", b"y" * 1100)
    assert blocks.head(block) is not blocks.head(block)


def test_heads_that_are_kept_are_limited() -> None:
    """Such as those of a client that sends another id with each call, and has it not indexed."""
    encoder, blocks = Encoder(), HeaderBlocks(4096)
    blocks.head(encoder.encode(FIELDS))
    block = encoder.encode(FIELDS)
    for number in range(1000):
        head = blocks.head(block + literal(b"x-request-id", b"%d" % number))
        assert head.chosen_id == str(number)
        assert len(blocks._heads) <= MAX_CACHED_BLOCKS


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 254, 255, 300, 20_000])
def test_our_headers_can_be_read(size: int) -> None:
    """Lengths of any number of bytes."""
    value = b"v" * size
    assert Decoder(1 << 20).decode(literal(b"name", value), raw=True) == [(b"name", value)]


def test_the_headers_of_all_answers() -> None:
    decoder = Decoder()
    assert decoder.decode(OK_HEADERS) == [(":status", "200"), ("content-type", "application/grpc")]
    assert decoder.decode(OK_TRAILERS) == [("grpc-status", "0")]
    assert decoder.decode(NOT_GRPC) == [(":status", "415"), ("content-type", "application/json")]
    assert not decoder.header_table.dynamic_entries
