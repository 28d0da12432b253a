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
# bits that words rotate to the left, and to the right: both halves change places, and those of v1 and v3
HALF = (np.array(32, U64), np.array(32, U64))
FIRST_ROTATIONS = (np.array([[13], [16]], U64), np.array([[51], [48]], U64))
SECOND_ROTATIONS = (np.array([[17], [21]], U64), np.array([[47], [43]], U64))
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
    v0, v1, v2, v3 = (start ^ key[number % 2] for number, start in enumerate(INITIAL_STATE))
    state = _State((v0, v2), (v1 ^ (0xEE if count > 1 else 0), v3), shape[0])
    even, odd = state.even, state.odd
    # the last word of a message is its length in bytes, in the upper 8 bits
    for word in (*words, U64((8 * len(words) & 0xFF) << 56)):
        odd[1] ^= word
        state.rounds(2)
        even[0] ^= word
    hashes = []
    for number in range(count):
        if number:
            odd[0] ^= U64(0xDD)
        else:
            even[1] ^= U64(0xEE if count > 1 else 0xFF)
        state.rounds(4)
        hashes.append(even[0] ^ even[1] ^ odd[0] ^ odd[1])
    return hashes


class _State:
    """The four words of each message: v0 and v2 in `even`, v1 and v3 in `odd`, which change in pairs."""

    def __init__(self, even: tuple[int, int], odd: tuple[int, int], size: int) -> None:
        self.even, self.odd = (np.repeat(np.array(pair, U64)[:, None], size, 1) for pair in (even, odd))
        self._spare = np.empty_like(self.even)

    def rounds(self, count: int) -> None:
        """SipRound, in place."""
        even, odd, spare = self.even, self.odd, self._spare
        even_swapped, odd_swapped = even[::-1], odd[::-1]
        for _ in range(count):
            even += odd
            _rotate(odd, FIRST_ROTATIONS, spare)
            odd ^= even
            _rotate(even[0], HALF, spare[0])
            even += odd_swapped
            _rotate(odd, SECOND_ROTATIONS, spare)
            odd ^= even_swapped
            _rotate(even[1], HALF, spare[0])


def _rotate(words: Words, bits: tuple[Words, Words], spare: Words) -> None:
    left, right = bits
    np.right_shift(words, right, out=spare)
    np.left_shift(words, left, out=words)
    np.bitwise_or(words, spare, out=words)
