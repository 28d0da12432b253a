"""Fuzzing of compressed bodies that arrive in pieces."""

from __future__ import annotations

import asyncio
import gzip
import random
import zlib

from tests.support.fake_request import FakeRequest
from tests.support.fuzzing import Decoder, cut
from turnpike.service.errors import RequestError
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.requests.body import BodyReader

Loop = asyncio.AbstractEventLoop

MAX_BODY = 5000


def body_decoder(loop: Loop) -> Decoder:
    """Compressed bodies in pieces, compared with decompressing all at once."""

    async def receive(encoding: bytes, pieces: list[bytes]) -> bytes:
        budget = MemoryBudget(2 * MAX_BODY)
        reader = BodyReader(budget, limit=MAX_BODY, seconds=10)
        request = FakeRequest("POST", "/", *pieces, headers=[(b"content-encoding", encoding)])
        request.complete_body = None
        try:
            return await reader.read(request)
        finally:
            budget.release(request)
            assert budget.bytes == 0

    def read(data: bytes) -> None:
        encoding, _, content = data.partition(b"\n")
        draw = random.Random(data)
        pieces = cut(content, draw) or [b""]
        try:
            got = loop.run_until_complete(receive(encoding, pieces))
        except RequestError:
            assert reference_body(encoding, content) is None
            raise
        assert got == reference_body(encoding, content)

    text = b'{"inputs": [1, 2, 3]}' * 40
    seeds = [
        b"gzip\n" + gzip.compress(text, mtime=0),
        b"gzip\n" + gzip.compress(b"", mtime=0),
        b"gzip\n" + gzip.compress(random.Random(1).randbytes(4000), mtime=0),
        b"deflate\n" + zlib.compress(text),
        b" GZIP \n" + gzip.compress(bytes(MAX_BODY), mtime=0),
        b"identity\n" + text,
    ]
    tokens = (b"gzip", b"deflate", b"br", gzip.compress(b"x"), zlib.compress(bytes(100_000)), b"\x1f\x8b\x08")
    return Decoder(read, seeds, (RequestError,), tokens)


def reference_body(encoding: bytes, content: bytes) -> bytes | None:
    """The decompressed body; None if it must be refused."""
    name = encoding.decode("latin-1").strip().lower()
    if name not in ("gzip", "deflate", "identity"):
        return None
    if name == "identity":
        return content if len(content) <= MAX_BODY else None
    stream = zlib.decompressobj(31 if name == "gzip" else 15)
    try:
        data = stream.decompress(content)
    except zlib.error:
        return None
    return data if stream.eof and not stream.unused_data and len(data) <= MAX_BODY else None
