"""Returns memory that glibc's allocator keeps after it was freed.

The allocator keeps freed blocks for later, which is fast. But a single small block in use can keep hundreds
of megabytes before it, so after a flood of large requests they would stay with the worker for ever.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

# Free memory that is kept. Returning more stops the event loop for about 0.1 ms per MiB. Settings with which
# the allocator itself returns memory took up to half more CPU time for requests of megabytes, because each
# page that is used again costs a page fault.
MAX_KEPT_BYTES = 64 << 20

STATM = Path("/proc/self/statm")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def trim_memory() -> None:
    """Return all free memory to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it, and only glibc needs it
    if trim is not None:
        trim(0)


class FreeMemory:
    """Returns free memory to the system when there is much of it.

    How much is free is estimated: it is the memory that the process has gained since the last time, without
    what requests hold.
    """

    def __init__(self) -> None:
        # resident bytes that were in use when they were fewest
        self._used = resident_bytes()

    def limit(self, held_bytes: int) -> bool:
        """Return free memory if it may be more than MAX_KEPT_BYTES; True if it did. Called once a second."""
        used = resident_bytes() - held_bytes
        trims = used > self._used + MAX_KEPT_BYTES
        if trims:
            trim_memory()
            # models may have been loaded, so that this is more than before
            self._used = resident_bytes() - held_bytes
        else:
            self._used = min(self._used, used)
        return trims


def resident_bytes() -> int:
    """The resident memory of this process; 0 on systems other than Linux."""
    try:
        return int(STATM.read_bytes().split()[1]) * PAGE_BYTES
    except OSError:
        return 0
