"""All processes that descend from this one: what memory they hold, what they have cost, and how they end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable

import psutil  # type: ignore[import-untyped]

SUBREAPER = 36
MIB = 1 << 20


def keep_descendants() -> None:
    """See to it that whatever a child leaves behind becomes a child of ours, which can be found and ended."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def descendants() -> list[psutil.Process]:
    """Those that live."""
    return [one for one in psutil.Process().children(recursive=True) if alive(one)]


def alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """What they have taken in all, in user and system mode."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def machine_seconds() -> float:
    """What all processes of the machine have taken, other people's as well."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def own_seconds() -> float:
    """What this process has taken, and children of it that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def memory(processes: Iterable[psutil.Process]) -> dict[str, int]:
    """Resident and proportional memory of all together, in MiB."""
    rss = pss = count = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            held = process.memory_full_info()
            rss, pss, count = rss + held.rss, pss + held.pss, count + 1
    return {"rss_mib": round(rss / MIB), "pss_mib": round(pss / MIB), "processes": count}


def end_all(first: psutil.Process, patience: float) -> None:
    """Ask the first to end, and after so many seconds kill whatever of ours is left."""
    with contextlib.suppress(psutil.NoSuchProcess):
        first.send_signal(signal.SIGTERM)
    until = time.monotonic() + patience
    while descendants() and time.monotonic() < until:
        reap()
        time.sleep(0.05)
    for process in descendants():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    while descendants():
        time.sleep(0.02)
    reap()


def reap() -> None:
    """Take note of the children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
