"""SipHash of many messages equals the reference implementation."""

from __future__ import annotations

import numpy as np
import pytest

from turnpike.export.identity.numbers import siphash as module
from turnpike.export.identity.numbers.siphash import siphash

# the key 00 01 .. 0f, and the first bytes 00 01 .. of a message, as the reference implementation has them
KEY = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
WORDS = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
# vectors_sip64 of the reference implementation, for messages of 8 and 16 bytes
HASHES = {1: 0x93F5F5799A932462, 2: 0x3F2ACC7F57C29BDB}
# vectors_sip128, for a message of 8 bytes
LONG_HASH = (0x61F55862BAA9623B, 0xB49714F364E2830F)


def words(count: int, size: int = 1) -> list[np.ndarray]:  # type: ignore[type-arg]
    return [np.full(size, word, np.uint64) for word in WORDS[:count]]


@pytest.mark.parametrize("count", HASHES)
def test_hashes_are_those_of_the_reference(count: int) -> None:
    (hashes,) = siphash(KEY, words(count), 1)
    assert hashes.tolist() == [HASHES[count]]


def test_long_hashes_are_those_of_the_reference() -> None:
    assert [int(word[0]) for word in siphash(KEY, words(1), 2)] == list(LONG_HASH)
    assert [int(word[0]) for word in siphash(KEY, words(1), 3)][:2] == list(LONG_HASH)


def test_messages_are_hashed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also across the chunks in which they are hashed."""
    generator = np.random.default_rng(1)
    messages = [generator.integers(0, 2**63, 1000, dtype=np.uint64) for _ in range(3)]
    whole = siphash(KEY, messages, 3)
    monkeypatch.setattr(module, "CHUNK", 64)
    for one, other in zip(whole, siphash(KEY, messages, 3), strict=True):
        assert (one == other).all()
        assert len(set(one.tolist())) == 1000
    single = siphash(KEY, [word[500:501] for word in messages], 3)
    assert [int(word[0]) for word in single] == [int(word[500]) for word in whole]
