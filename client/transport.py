"""What transports share: their options, how they wait, and the arrays in an answer's bytes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnpike.client.inputs import TEXT, Array
from turnpike.common.datatypes import BYTES, DTYPE_BY_DATATYPE

# characters of a server's words that an error has
MAX_REASON = 2000


@dataclass(frozen=True)
class TransportOptions:
    """Headers in lower case, an SSLContext or credentials of grpcio, and the bytes an answer may have."""

    headers: Mapping[str, str]
    tls: Any
    max_answer: int


class AsyncWaits:
    """How coroutines wait: for time to pass, or for what another call has requested."""

    @staticmethod
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @staticmethod
    def future() -> Any:
        return asyncio.get_running_loop().create_future()

    @staticmethod
    async def result_of(future: Any, seconds: float) -> Any:
        return await asyncio.wait_for(asyncio.shield(future), seconds)


class BlockingWaits(AsyncWaits):
    """How threads wait: the coroutines never suspend."""

    @staticmethod
    async def sleep(seconds: float) -> None:
        time.sleep(seconds)

    @staticmethod
    def future() -> Any:
        return concurrent.futures.Future()

    @staticmethod
    async def result_of(future: Any, seconds: float) -> Any:
        return future.result(seconds)


def read_array(content: bytes, offset: int, entry: Mapping[str, Any]) -> tuple[Array, int]:
    """The array of a tensor whose bytes begin at the offset, as a copy that can be changed; and their end.

    Raises:
        ValueError: There are fewer bytes, or the shape is none.
    """
    shape = entry["shape"]
    if not isinstance(shape, Sequence) or any(not isinstance(dim, int) or dim < 0 for dim in shape):
        raise ValueError(f"expected a shape, got {shape!r}")
    count = math.prod(shape)
    if entry["datatype"] == BYTES:
        return _read_texts(content, offset, count, shape)
    dtype = np.dtype(DTYPE_BY_DATATYPE[entry["datatype"]])
    end = offset + count * dtype.itemsize
    if end > len(content):
        raise ValueError(f"expected {end} bytes, got {len(content)}")
    values = np.frombuffer(content, dtype, count, offset) if count else np.empty(0, dtype)
    return values.reshape(shape).copy(), end


def _read_texts(content: bytes, offset: int, count: int, shape: Sequence[int]) -> tuple[Array, int]:
    """An array of texts, before each of which there is its length."""
    if count > len(content) // 4:
        raise ValueError(f"expected {4 * count} bytes or more, got {len(content)}")
    texts = np.empty(count, TEXT)
    for index in range(count):
        start = offset + 4
        offset = start + int.from_bytes(content[offset:start], "little")
        if offset > len(content):
            raise ValueError(f"expected {offset} bytes, got {len(content)}")
        texts[index] = content[start:offset].decode()
    return texts.reshape(shape), offset


def printable(text: str) -> str:
    """A server's words for a terminal: control characters are escaped, and the length is bounded."""
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text[:MAX_REASON]
    )
