"""Memory that was freed goes back to the system."""

from __future__ import annotations

import pytest

from turnpike.service.memory import free_memory
from turnpike.service.memory.free_memory import MAX_KEPT_BYTES, FreeMemory, resident_bytes, trim_memory


def test_trimming_returns_small_blocks() -> None:
    """Bytes between blocks in use go back to the system."""
    # otherwise, the blocks may take memory that is free already
    trim_memory()
    before = resident_bytes()
    blocks = [b"x" * 100_000 for _ in range(1000)]
    assert resident_bytes() - before > 80 << 20
    in_use = blocks[::100]
    del blocks
    trim_memory()
    assert resident_bytes() - before < 20 << 20
    assert len(in_use) == 10


class Process:
    """Its resident memory, of which trimming returns what is free."""

    def __init__(self) -> None:
        self.used, self.free, self.trims = 100 << 20, 0, 0

    def resident_bytes(self) -> int:
        return self.used + self.free

    def trim(self) -> None:
        self.free, self.trims = 0, self.trims + 1


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    process = Process()
    monkeypatch.setattr(free_memory, "resident_bytes", process.resident_bytes)
    monkeypatch.setattr(free_memory, "trim_memory", process.trim)
    return process


def test_free_memory_is_returned_when_there_is_much(process: Process) -> None:
    """What requests hold does not count, and what they no longer hold is free."""
    memory, held = FreeMemory(), MAX_KEPT_BYTES * 8
    process.used += held
    memory.limit(held)
    assert process.trims == 0
    for _ in range(2):
        # half of the requests end, and their memory is kept by the allocator
        held //= 2
        process.used -= held
        process.free += held
        memory.limit(held)
        assert process.free == 0
    assert process.trims == 2


def test_memory_in_use_is_not_trimmed_again_and_again(process: Process) -> None:
    """A model that was loaded is tried once, and a little free memory not at all."""
    memory = FreeMemory()
    process.used += 10 * MAX_KEPT_BYTES
    for _ in range(5):
        process.free = MAX_KEPT_BYTES
        memory.limit(0)
    assert process.trims == 1
    # after the model was unloaded, less is in use again
    process.used -= 5 * MAX_KEPT_BYTES
    memory.limit(0)
    process.free += MAX_KEPT_BYTES + 1
    memory.limit(0)
    assert process.trims == 2
