"""Counts the CPUs this process may use (affinity and cgroup quotas), and divides them among workers."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from turnpike.service.config.cgroups import CGROUP_ROOT, OWN_CGROUPS, cgroup_values, read_text
from turnpike.service.config.settings import Settings

CPU_INFO = Path("/proc/cpuinfo")
# bytes of one weight above which splitting its product over threads gains more than waking them costs
LARGE_WEIGHT_BYTES = 2 << 20
# CPUs for each worker of a model with large weights
CPUS_PER_WIDE_WORKER = 4


def threads_per_worker(settings: Settings) -> int:
    """Threads for the runs of one worker: `--threads`, or an equal share of the CPUs."""
    return settings.threads or max(1, int(available_cpus()) // settings.workers)


def default_workers(allowed_cpus: float, weight_size: int) -> int:
    """The number of workers to use if nothing was measured; `weight_size` is the bytes of a typical weight.

    A model with small weights spends its time on requests, which one process handles on one CPU, and its
    threads wait for each other at every product. With weights of up to 1 MB (fp32 or int8), two workers on
    two CPUs answer 1.0 to 2 times as many requests as one worker with two threads, for 1 user and for 64.

    A model with large weights spends its time in products, which threads share. With weights of 2.5 MB, two
    workers answer 0.7 to 0.8 times as many requests for 1 and for 16 users, and as many for 64. Threads gain
    less the more there are, so there is one worker for every four CPUs. `turnpike tune` measures all this.
    """
    cpus = max(1, int(allowed_cpus))
    return max(1, cpus // CPUS_PER_WIDE_WORKER) if weight_size > LARGE_WEIGHT_BYTES else cpus


def available_cpus(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS) -> float:
    """CPUs of the process's affinity, or fewer if a cgroup has a smaller quota."""
    affinity = (
        float(len(os.sched_getaffinity(0)))
        if hasattr(os, "sched_getaffinity")
        else float(os.cpu_count() or 1)
    )
    return min([affinity, *cgroup_values("cpu", quota_v1, quota_v2, root, own)])


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
