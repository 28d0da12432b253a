"""Makes a lack of memory the error of one request, instead of the end of the service.

A model may need any amount of memory for a run. If the container has less, the kernel kills one of its
processes, and with it all requests of that process. So each worker may only allocate its share: beyond
that, an allocation fails, and with it the run. If the kernel has to kill a process all the same, it takes a
worker, which is replaced, rather than the supervisor.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import resource
from pathlib import Path

from turnpike.service.memory.thread_stacks import STATUS, limit_data, status_bytes

log = logging.getLogger(__name__)

OOM_SCORE = Path("/proc/self/oom_score_adj")
# in thousandths of the memory; a worker that starts uses less memory than the supervisor
OOM_SCORE_OF_WORKERS, MAX_OOM_SCORE = 200, 1000
# what a worker may always allocate beyond what it has at its start
MIN_ROOM_BYTES = 64 << 20

# Parameters of glibc's mallopt. By default each block of more than 32 MiB is mapped anew; a run that needed
# one of 33 MB took 1.3 times as long.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
# Blocks up to this size come from the heap, and this much free memory at its end is kept. Larger blocks go
# back to the system when they are freed.
MAX_HEAP_BLOCK_BYTES, KEPT_BYTES = 48 << 20, 64 << 20


def offer_to_oom_killer() -> None:
    """Have the kernel kill this process rather than its parent, if memory is short."""
    with contextlib.suppress(OSError, ValueError):
        score = int(OOM_SCORE.read_text(encoding="ascii")) + OOM_SCORE_OF_WORKERS
        OOM_SCORE.write_text(str(min(score, MAX_OOM_SCORE)), encoding="ascii")


def limit_memory(share: int | None) -> None:
    """Have allocations fail once this process uses `share` bytes. Without a number there is no limit."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
    # a limit that someone else set stays, as do systems without /proc
    if share is None or hard_limit != resource.RLIM_INFINITY or not STATUS.exists():
        return
    _configure_malloc()
    # the limit counts what is allocated, of which a part is never used
    room = max(share - status_bytes("RssAnon"), MIN_ROOM_BYTES)
    limit_data(status_bytes("VmData") + room)
    log.info("this worker may use %d MiB of memory for models and requests", room >> 20)


def _configure_malloc() -> None:
    """Have malloc keep some freed memory for the next run, in place of onnxruntime's arenas."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has it
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MAX_HEAP_BLOCK_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
