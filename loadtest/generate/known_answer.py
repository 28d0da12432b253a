"""Recognizes an answer that was checked before in the bytes of an HTTP answer, without parsing it.

A model gives the same answer to the same request, so this check replaces parser and decoder for most answers.
It accepts fewer answers than the parser: what it does not recognize may still be good.
"""

from __future__ import annotations

from turnpike.loadtest.workload.answer_decoding import LENGTH_HEADER

END_OF_HEAD = b"\r\n\r\n"
# headers that change how the body is read, or that end the connection
UNUSUAL_HEADERS = (b"\r\nconnection:", b"\r\ntransfer-encoding:", b"\r\ncontent-encoding:")


class KnownAnswer:
    """A good answer to one request."""

    __slots__ = ("_absent", "_end", "_present")

    def __init__(self, body: bytes, json_length: str | None) -> None:
        """Take an answer that is good.

        Args:
            body: The body.
            json_length: The header with the length of the JSON before binary data, if the answer has it.
        """
        self._end = END_OF_HEAD + body
        content_length = f"\r\ncontent-length: {len(body)}\r\n".encode()
        length_header = f"\r\n{LENGTH_HEADER}:".encode()
        self._present: tuple[bytes, ...] = (content_length,)
        self._absent: tuple[bytes, ...] = (END_OF_HEAD, *UNUSUAL_HEADERS)
        if json_length is None:
            self._absent += (length_header,)
        else:
            self._present += (length_header + f" {json_length}\r\n".encode(),)

    def is_answer(self, data: bytes) -> bool:
        """Whether these bytes are this answer: all of it, and nothing else."""
        if not (data.startswith(b"HTTP/1.1 200 ") and data.endswith(self._end)):
            return False
        # with one line end, which ends the last header
        head = data[: len(data) - len(self._end) + 2].lower()
        # loops, because a generator expression would take as long as all the rest
        for part in self._present:
            if part not in head:
                return False
        for part in self._absent:  # noqa: SIM110
            if part in head:
                return False
        return True
