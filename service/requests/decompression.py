"""Decompresses request bodies (gzip, deflate) in slices, up to `--max-inflate-ratio` times their size."""

from __future__ import annotations

import zlib

from turnpike.service.codec.json_document import quoted
from turnpike.service.errors import RequestError, TooLargeError, UnsupportedEncodingError

# the argument `wbits` of zlib for each encoding
WINDOW_BITS = {"gzip": 31, "deflate": 15}
# Bytes that are decompressed at once. Other requests wait for it: less than a millisecond.
SLICE_BYTES = 1 << 17
# a body that decompresses to at most this many bytes may be compressed by any ratio
ANY_RATIO_BYTES = 1 << 20


class Decompressor:
    """Decompresses one body in slices.

    Args:
        window_bits: The format, as zlib's argument `wbits`.
        max_ratio: Most bytes that one compressed byte of the body may become.
    """

    def __init__(self, window_bits: int, max_ratio: int) -> None:
        self._stream = zlib.decompressobj(window_bits)
        self._max_ratio = max_ratio
        self._input = b""
        # bytes of the compressed body that were decompressed, and what they became
        self.consumed_bytes = self._produced_bytes = 0

    @classmethod
    def of(cls, encoding: bytes | None, header: str, max_ratio: int) -> Decompressor | None:
        """The decompressor for the encoding that a header names; None if the body is not compressed."""
        if encoding is None:
            return None
        name = encoding.decode("latin-1").strip().lower()
        if name == "identity":
            return None
        if name not in WINDOW_BITS:
            raise UnsupportedEncodingError(
                f"{header}: expected gzip, deflate or identity, got {quoted(name)}"
            )
        return cls(WINDOW_BITS[name], max_ratio)

    @property
    def input_bytes(self) -> int:
        """Bytes of the body that have arrived and are not decompressed."""
        return len(self._input)

    def feed(self, data: bytes) -> None:
        """Add the next part of the body, once there is no more input."""
        self._input = data

    def next_slice(self, max_bytes: int) -> bytes:
        """Decompress up to SLICE_BYTES of the body, and no more than `max_bytes`."""
        stream = self._stream
        try:
            data = stream.decompress(self._input, min(SLICE_BYTES, max_bytes))
        except zlib.error as error:
            raise _damaged() from error
        if stream.unused_data:
            raise _damaged()
        self.consumed_bytes += len(self._input) - len(stream.unconsumed_tail)
        self._produced_bytes += len(data)
        self._input = stream.unconsumed_tail
        return data

    def expect_ratio(self) -> None:
        """Raise TooLargeError if the body has become too large for its compressed size."""
        size = self._produced_bytes
        if size > max(ANY_RATIO_BYTES, self._max_ratio * self.consumed_bytes):
            raise TooLargeError(
                f"body: expected at most {self._max_ratio} bytes for each compressed byte "
                f"(--max-inflate-ratio), got {size} for {self.consumed_bytes}; send it without compression"
            )

    def expect_end(self) -> None:
        """Raise RequestError if the compressed body is not complete."""
        if not self._stream.eof:
            raise _damaged()


def _damaged() -> RequestError:
    return RequestError("body: expected one whole compressed stream, got a damaged one")
