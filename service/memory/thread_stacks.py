"""Provides address space for the stacks of a model's threads, in a process whose memory is limited.

RLIMIT_DATA counts the whole stack of a thread, usually 8 MiB, of which almost nothing is ever used. If
onnxruntime cannot start one of its threads, it waits for that thread for ever. So stacks are added to the
limit before a model is opened, and counted anew each time, as the threads of unloaded models have ended.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STATUS = Path("/proc/self/status")
# what is assumed if RLIMIT_STACK is unlimited; glibc then takes less
UNLIMITED_STACK_BYTES = 8 << 20

_lock = threading.Lock()


class _Limit:
    """The limit of this process, once `limit_data` has set it."""

    without_stacks: int | None = None


def limit_data(limit: int) -> None:
    """Limit what this process may allocate. Stacks for which `stack_room` is used do not count in it."""
    _Limit.without_stacks = limit - _stack_bytes() * _status_number("Threads")
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))


@contextmanager
def stack_room(threads: int) -> Iterator[None]:
    """Provide the stacks of threads that are started within.

    Raises:
        MemoryError: There is no room for them.
    """
    with _lock:  # a thread that is about to start is not in the count yet
        limit, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
        if limit != resource.RLIM_INFINITY and STATUS.exists():
            if _Limit.without_stacks is not None:
                limit = _Limit.without_stacks + _stack_bytes() * (_status_number("Threads") + threads)
                limit = limit if hard_limit == resource.RLIM_INFINITY else min(limit, hard_limit)
                resource.setrlimit(resource.RLIMIT_DATA, (limit, hard_limit))
            if status_bytes("VmData") + _stack_bytes() * threads > limit:
                raise MemoryError(f"no memory for the stacks of {threads} threads")
        yield


def status_bytes(name: str) -> int:
    """A size in /proc/self/status, which is in KiB there."""
    return 1024 * _status_number(name)


def _status_number(name: str) -> int:
    lines = STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def _stack_bytes() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return UNLIMITED_STACK_BYTES if limit == resource.RLIM_INFINITY else limit
