"""Returns memory that glibc's allocator keeps after it was freed.

The allocator keeps freed blocks for later, which is fast. But a single small block in use can keep hundreds
of megabytes before it, so after a flood of large requests they would stay with the worker for ever.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

# Free memory that is kept. Returning more stops the event loop for about 0.1 ms per MiB. Settings with which
# the allocator itself returns memory took up to half more CPU time for requests of megabytes, because each
# page that is used again costs a page fault.
MAX_KEPT_BYTES = 64 << 20
# Checks in a row that must find more than that before it is returned: under load, what is free at one moment
# is in use at the next. The number doubles each time that little came back, because the memory was in use
# again already or is not the allocator's.
MIN_CHECKS, MAX_CHECKS = 5, 30
# a parameter of glibc's mallopt
M_ARENA_MAX = -8

STATM = Path("/proc/self/statm")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class FreeMemory:
    """Returns free memory to the system when there has been much of it for a while.

    It is what the process has gained beyond the blocks that the allocator counts as in use.
    """

    def __init__(self) -> None:
        # the fewest resident bytes beyond the allocator's blocks in use: mostly the objects of Python
        self._others = _bytes_beyond_blocks()
        # checks in a row that found much free memory, and how many must
        self._checks, self._needed = 0, MIN_CHECKS

    def limit(self) -> bool:
        """Return free memory if it is more than MAX_KEPT_BYTES; True if it tried. Called once a second."""
        if not self._has_much():
            self._checks, self._needed = 0, MIN_CHECKS
            return False
        self._checks += 1
        if self._checks < self._needed:
            return False
        trim_memory()
        self._checks = 0
        self._needed = min(2 * self._needed, MAX_CHECKS) if self._has_much() else MIN_CHECKS
        return True

    def _has_much(self) -> bool:
        beyond_blocks = _bytes_beyond_blocks()
        self._others = min(self._others, beyond_blocks)
        return beyond_blocks > self._others + MAX_KEPT_BYTES


def use_one_heap() -> None:
    """Have threads that start from now on share one heap.

    With heaps of their own, trimming leaves up to 64 MiB of free memory at the end of each.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has it
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def trim_memory() -> None:
    """Return all free memory to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it, and only glibc needs it
    if trim is not None:
        trim(0)


def resident_bytes() -> int:
    """The resident memory of this process without that of files; 0 on systems other than Linux."""
    try:
        _, resident, shared, *_ = map(int, STATM.read_bytes().split())
    except OSError:
        return 0
    return (resident - shared) * PAGE_BYTES


def allocated_bytes() -> int:
    """The bytes in all blocks of the allocator that are in use; 0 if it does not count them.

    This takes about 0.1 ms in a busy worker, mostly for the free blocks between those in use.
    """
    if _mallinfo is None:
        return 0
    info = _mallinfo()
    return int(info.uordblks + info.hblkhd)


def _bytes_beyond_blocks() -> int:
    # not negative, although parts of a block may never have been written and take no memory
    return max(resident_bytes() - allocated_bytes(), 0)


class _MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`: `uordblks` is in use in heaps, `hblkhd` in blocks with a mapping each."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


_mallinfo: Any = getattr(ctypes.CDLL(None), "mallinfo2", None)  # glibc has it since 2.33
if _mallinfo is not None:
    _mallinfo.restype = _MallocInfo
