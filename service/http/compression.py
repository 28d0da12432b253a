"""Compresses large answers with gzip or deflate, for clients that accept it.

A thread compresses them in slices. There is one in each worker, so that compression takes no more than one
CPU from the runs of models, and answers that come together take turns.
"""

from __future__ import annotations

import asyncio
import io
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from turnpike.service.errors import OverloadedError, TooLargeError
from turnpike.service.http.accept import preferred_encoding
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.requests.decompression import WINDOW_BITS
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response

# zlib's fastest level. Gates of 128 rows as JSON, 1 MB, become 2.3 times smaller in 10 ms. Level 6 takes
# 58 ms to make them 2.5 times smaller. docs/reference/http-api.md has more figures.
ZLIB_LEVEL = 1
# Bytes that are compressed at once: 1.3 ms for JSON, 3 ms for arrays as bytes. In between, other answers get
# their turn, and a client that has gone is noticed.
SLICE_BYTES = 1 << 17
# An answer whose first slice is not reduced to less than this part of it is sent as it is. Arrays of gates as
# bytes stay at 0.75 to 0.85, which takes 25 ms per MB: on a network of 100 Mbit/s, 1 MB would arrive later.
MAX_COMPRESSED_SHARE = 0.7

VARY = b"vary: Accept-Encoding\r\n"


class AnswerCompressor:
    """Compresses the answers of one worker. The copies count in the memory budget while they are made."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._thread = ThreadPoolExecutor(1, "compressor")

    async def compress(self, request: Request, response: Response) -> None:
        """Replace the body of a response by its compressed form, if the client accepts one."""
        if not response.compressible:
            return
        response.lines += VARY
        encoding = _accepted_encoding(request)
        if encoding is None:
            return
        compressed = await self.compressed(response.body, encoding)
        if compressed is not None:
            # the header with the length of the JSON before binary tensors stays: it is that of the original
            response.body = compressed
            response.lines += b"content-encoding: %b\r\n" % encoding.encode()

    async def compressed(self, body: bytes, encoding: str) -> bytes | None:
        """The compressed body; None if it would not be much smaller, or there is no memory or no thread."""
        try:
            with self._budget.hold(len(body)):
                return await self._in_slices(body, WINDOW_BITS[encoding])
        except (OverloadedError, TooLargeError, MemoryError):
            return None
        except RuntimeError:
            # The system has no thread left. The pool is replaced because it keeps the slice.
            self._thread = ThreadPoolExecutor(1, "compressor")
            return None

    async def _in_slices(self, body: bytes, window_bits: int) -> bytes | None:
        """The compressed body; None if it would not be much smaller."""
        loop, budget = asyncio.get_running_loop(), self._budget
        stream, data = zlib.compressobj(ZLIB_LEVEL, wbits=window_bits), memoryview(body)
        compressed = io.BytesIO()
        held = 0
        try:
            for start in range(0, len(data), SLICE_BYTES):
                stop = start + SLICE_BYTES
                flush = zlib.Z_SYNC_FLUSH if stop < len(data) else zlib.Z_FINISH
                work = partial(_compress_slice, stream, data[start:stop], flush)
                piece = await loop.run_in_executor(self._thread, work)
                if not start and len(piece) > MAX_COMPRESSED_SHARE * len(data[:stop]):
                    return None
                budget.expect_room(len(piece))
                budget.bytes += len(piece)
                held += len(piece)
                compressed.write(piece)
        finally:
            budget.bytes -= held
        return compressed.getvalue()


def _accepted_encoding(request: Request) -> str | None:
    values = [value for name, value in request.head.headers if name == b"accept-encoding"]
    return preferred_encoding(b",".join(values).decode("latin-1"), WINDOW_BITS) if values else None


def _compress_slice(stream: zlib._Compress, data: memoryview, flush: int) -> bytes:
    return stream.compress(data) + stream.flush(flush)
