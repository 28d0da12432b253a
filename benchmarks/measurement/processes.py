"""The descendants of this process: their memory, their CPU time, and their end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable

import psutil

# option of prctl(2)
PR_SET_CHILD_SUBREAPER = 36
BYTES_PER_MIB = 1 << 20


def adopt_descendants() -> None:
    """Become the parent of orphaned descendants, so that they can be found and ended."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants() -> list[psutil.Process]:
    """All descendants that run."""
    return [process for process in psutil.Process().children(recursive=True) if is_alive(process)]


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """CPU time of the processes so far, in user and system mode."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def machine_seconds() -> float:
    """CPU time of all processes of the machine so far."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def own_seconds() -> float:
    """CPU time so far of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def memory_usage(processes: Iterable[psutil.Process]) -> dict[str, int]:
    """Resident and proportional memory of the processes together, in MiB, and their number."""
    rss = pss = count = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            memory = process.memory_full_info()
            rss, pss, count = rss + memory.rss, pss + memory.pss, count + 1
    return {"rss_mib": round(rss / BYTES_PER_MIB), "pss_mib": round(pss / BYTES_PER_MIB), "processes": count}


def terminate_all(server: psutil.Process, timeout: float) -> None:
    """Send SIGTERM to the server; after `timeout` seconds kill all descendants that are left."""
    with contextlib.suppress(psutil.NoSuchProcess):
        server.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while descendants() and time.monotonic() < deadline:
        reap_children()
        time.sleep(0.05)
    for process in descendants():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    while descendants():
        time.sleep(0.02)
    reap_children()


def reap_children() -> None:
    """Collect the exit status of children that have ended, which removes them from the process table."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
