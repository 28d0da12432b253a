"""Divides the memory that a container may use among its workers."""

from __future__ import annotations

from pathlib import Path

from turnpike.common.cgroups import CGROUP_ROOT, OWN_CGROUPS, cgroup_values, read_text
from turnpike.service.config.settings import Settings

# part of a container's memory for the workers; the rest is for the supervisor, libraries and buffers of the
# kernel
WORKERS_PART = 0.85
# Part of a worker's memory that requests may hold, unless --max-held says otherwise. The rest is for the
# interpreter, models and their runs.
HELD_PART = 0.25


def memory_limit(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS) -> int | None:
    """Bytes that the processes of this container may use together; None if nothing limits them."""
    return min(map(int, cgroup_values("memory", _limit_v1, _limit_v2, root, own)), default=None)


def oom_kills(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS) -> int | None:
    """How many processes of this container the kernel has killed because memory was short, if it says so."""
    counts = cgroup_values("memory", _oom_kills_v1, _oom_kills_v2, root, own)
    # the groups above this one count other containers too
    return next(map(int, counts), None)


def memory_per_worker(settings: Settings) -> int | None:
    """Bytes that one worker may use; None if no container limits them."""
    limit = memory_limit()
    return None if limit is None else int(WORKERS_PART * limit / settings.workers)


def allocation_limit(settings: Settings) -> int | None:
    """Bytes that one worker may allocate; None on a GPU too, as CUDA reserves more memory than it uses."""
    return None if settings.device == "cuda" else memory_per_worker(settings)


def max_held_bytes(settings: Settings) -> int:
    """`--max-held`; by default less in a container with little memory, but never less than one body."""
    share = memory_per_worker(settings)
    if share is None or "max_held" in settings.model_fields_set:
        return settings.max_held
    return max(settings.max_body, min(settings.max_held, int(HELD_PART * share)))


def _limit_v2(folder: Path) -> float | None:
    return _bytes(folder / "memory.max")


def _limit_v1(folder: Path) -> float | None:
    limit = _bytes(folder / "memory.limit_in_bytes")
    # version 1 has a number close to 2**63 instead of none
    return None if limit is None or limit > 1 << 60 else limit


def _bytes(file: Path) -> float | None:
    text = read_text(file)
    return int(text) if text.isdigit() else None


def _oom_kills_v2(folder: Path) -> float | None:
    return _oom_kills(folder / "memory.events")


def _oom_kills_v1(folder: Path) -> float | None:
    return _oom_kills(folder / "memory.oom_control")


def _oom_kills(file: Path) -> float | None:
    counts = dict(line.split(" ", 1) for line in read_text(file).splitlines() if " " in line)
    text = counts.get("oom_kill", "")
    return int(text) if text.isdigit() else None
