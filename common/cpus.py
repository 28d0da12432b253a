"""Counts the CPUs that this process may use, by its affinity and its cgroups, and names their model."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from turnpike.common.cgroups import CGROUP_ROOT, OWN_CGROUPS, cgroup_values, read_text

CPU_INFO = Path("/proc/cpuinfo")


def affinity_cpus() -> int:
    """The number of CPUs that this process may run on at all, which says how large the machine is."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_cpus(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS) -> float:
    """The CPU time per second that this process may use: its affinity, or less if a cgroup has a quota.

    A quota may be a part of a CPU, such as 0.5.
    """
    return min([float(affinity_cpus()), *cgroup_values("cpu", quota_v1, quota_v2, root, own)])


def whole_cpus() -> int:
    """The number of threads or processes that `available_cpus` can keep busy: rounded down, at least 1."""
    return max(1, int(available_cpus()))


def cpu_model(info: Path = CPU_INFO) -> str:
    """The model name of the CPU, or its part number, or else the architecture."""
    lines = (line.partition(":") for line in read_text(info).splitlines())
    values = {name.strip(): value.strip() for name, _, value in lines if value.strip()}
    names = (values.get("model name"), values.get("CPU implementer"), values.get("CPU part"))
    return " ".join(filter(None, names)) or platform.processor() or platform.machine()


def quota_v2(folder: Path) -> float | None:
    """The quota of a group of cgroup version 2, such as `150000 100000`; `max` means none."""
    return quota_ratio(*words) if len(words := read_text(folder / "cpu.max").split()) == 2 else None


def quota_v1(folder: Path) -> float | None:
    """The quota of a group of cgroup version 1; -1 means none."""
    return quota_ratio(read_text(folder / "cpu.cfs_quota_us"), read_text(folder / "cpu.cfs_period_us"))


def quota_ratio(quota: str, period: str) -> float | None:
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return None
    return int(quota) / int(period)
