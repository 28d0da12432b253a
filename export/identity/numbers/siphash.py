"""SipHash-2-4 of many short messages at once: a keyed hash that nobody who lacks the key can predict.

Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012). All messages have the same number of words.
Further words of a hash are made as SipHash-128 makes its second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Words = np.ndarray[Any, np.dtype[np.uint64]]
U64 = np.uint64
# "somepseudorandomlygeneratedbytes"
INITIAL_STATE = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
# messages hashed at a time: their states stay in the processor's cache
CHUNK = 1 << 14


def siphash(key: tuple[int, int], words: Sequence[Words], count: int) -> list[Words]:
    """The hashes of messages, each as `count` words.

    Args:
        key: Two words.
        words: The first word of each message, the second of each, and so on, in flat arrays.
        count: The number of words of a hash.
    """
    size = words[0].size
    hashes = [np.empty(size, U64) for _ in range(count)]
    for start in range(0, size, CHUNK):
        part = [word[start : start + CHUNK] for word in words]
        for whole, done in zip(hashes, _hash_chunk(key, part, count), strict=True):
            whole[start : start + CHUNK] = done
    return hashes


def _hash_chunk(key: tuple[int, int], words: Sequence[Words], count: int) -> list[Words]:
    shape = words[0].shape
    v0, v1, v2, v3 = (
        np.full(shape, start ^ key[number % 2], U64) for number, start in enumerate(INITIAL_STATE)
    )
    state, spare = (v0, v1, v2, v3), np.empty(shape, U64)
    if count > 1:
        v1 ^= U64(0xEE)
    # the last word of a message is its length in bytes, in the upper 8 bits
    for word in (*words, np.full(shape, (8 * len(words) & 0xFF) << 56, U64)):
        v3 ^= word
        _rounds(state, 2, spare)
        v0 ^= word
    hashes = []
    for number in range(count):
        if number:
            v1 ^= U64(0xDD)
        else:
            v2 ^= U64(0xEE if count > 1 else 0xFF)
        _rounds(state, 4, spare)
        hashes.append(v0 ^ v1 ^ v2 ^ v3)
    return hashes


def _rounds(state: tuple[Words, Words, Words, Words], count: int, spare: Words) -> None:
    """SipRound, in place."""
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0 += v1
        _rotate(v1, 13, spare)
        v1 ^= v0
        _rotate(v0, 32, spare)
        v2 += v3
        _rotate(v3, 16, spare)
        v3 ^= v2
        v0 += v3
        _rotate(v3, 21, spare)
        v3 ^= v0
        v2 += v1
        _rotate(v1, 17, spare)
        v1 ^= v2
        _rotate(v2, 32, spare)


def _rotate(words: Words, bits: int, spare: Words) -> None:
    np.right_shift(words, U64(64 - bits), out=spare)
    np.left_shift(words, U64(bits), out=words)
    np.bitwise_or(words, spare, out=words)
