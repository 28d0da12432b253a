"""Memory that was freed goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from turnpike.service.memory import free_memory
from turnpike.service.memory.free_memory import (
    MAX_CHECKS,
    MAX_KEPT_BYTES,
    MIN_CHECKS,
    FreeMemory,
    allocated_bytes,
    resident_bytes,
    trim_memory,
)


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


def test_trimming_returns_memory_of_threads() -> None:
    """A process of its own: the heaps of threads that it has already would stay."""
    script = """if True:
        from threading import Thread
        from turnpike.service.memory.free_memory import *
        use_one_heap()
        # from now on, the allocator keeps up to 60 MB
        bytearray(30_000_000)
        before = resident_bytes()
        grown = 0

        def work():
            global grown
            blocks = [b"x" * 100_000 for _ in range(500)]
            grown = resident_bytes() - before

        thread = Thread(target=work)
        thread.start()
        thread.join()
        trim_memory()
        print(grown >> 20, resident_bytes() - before >> 20)
    """
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    grown, left = map(int, result.stdout.split())
    assert grown > 40
    assert left < 10


def test_blocks_in_use_are_counted() -> None:
    """Small ones and mapped ones; free ones are not."""
    before = allocated_bytes()
    blocks = [b"x" * 100_000 for _ in range(500)]
    mapped = bytearray(100 << 20)
    assert allocated_bytes() - before == pytest.approx(50_000_000 + len(mapped), rel=0.01)
    del blocks, mapped
    assert allocated_bytes() - before < 1_000_000


class Process:
    """Its memory in MiB: objects of Python, blocks in use, and free blocks, which trimming returns."""

    def __init__(self) -> None:
        self.objects, self.used, self.free, self.trims = 40, 20, 10, 0
        # whether requests take the memory again while it is returned
        self.busy = False

    def resident_bytes(self) -> int:
        return self.objects + self.used + self.free << 20

    def allocated_bytes(self) -> int:
        return self.used << 20

    def trim(self) -> None:
        self.free, self.trims = self.free if self.busy else 0, self.trims + 1


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    process = Process()
    monkeypatch.setattr(free_memory, "resident_bytes", process.resident_bytes)
    monkeypatch.setattr(free_memory, "allocated_bytes", process.allocated_bytes)
    monkeypatch.setattr(free_memory, "trim_memory", process.trim)
    return process


def checks_until_trim(memory: FreeMemory) -> int:
    """How many checks it takes until one trims; at most 100."""
    return next(count for count in range(1, 101) if memory.limit() or count == 100)


def test_free_memory_is_returned_when_there_is_much(process: Process) -> None:
    """The blocks of requests are in use at first, and kept by the allocator after that."""
    memory = FreeMemory()
    for used, free in ((200, 10), (450, 10), (430, 10), (230, 20)):
        process.used, process.free = used, free
        assert not memory.limit()
    # resident memory stays as it is
    process.used, process.free = 20, 230
    assert checks_until_trim(memory) == MIN_CHECKS
    assert (process.free, process.trims) == (0, 1)


def test_memory_that_is_used_again_is_not_trimmed(process: Process) -> None:
    """Between two batches of requests it is free for a moment."""
    memory = FreeMemory()
    for _ in range(10):
        process.used, process.free = 20, 300
        for _ in range(MIN_CHECKS - 1):
            memory.limit()
        process.used, process.free = 320, 0
        memory.limit()
    # a little free memory is kept for later
    process.used, process.free = 20, MAX_KEPT_BYTES >> 20
    assert checks_until_trim(memory) == 100
    assert process.trims == 0


def test_a_trim_at_the_peak_is_made_up_for_later(process: Process) -> None:
    """Requests take the memory while it is returned; this must not be taken for what the process needs."""
    memory = FreeMemory()
    process.free, process.busy = 300, True
    # each time it takes longer until the next one, up to a limit
    assert [checks_until_trim(memory) for _ in range(5)] == [5, 10, 20, 30, 30]
    process.busy = False
    assert checks_until_trim(memory) == MAX_CHECKS
    assert process.free == 0
    process.free = 100
    assert checks_until_trim(memory) == MIN_CHECKS
