"""How many CPUs this process may use, which is often fewer than the machine has, and how to share them."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from service.config.settings import Settings

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
CPU_INFO = Path("/proc/cpuinfo")
# bytes of one weight from which on a part of it for each thread is worth waking them for
LARGE_WEIGHT_BYTES = 2 << 20
# that share the runs of a wide model
CPUS_PER_WIDE_WORKER = 4


def threads_per_worker(settings: Settings) -> int:
    """Threads of one worker's runs: as told, or an equal share of the CPUs."""
    return settings.threads or max(1, int(available_cpus()) // settings.workers)


def default_workers(allowed: float, weight: int) -> int:
    """How many workers suit so many CPUs, where nobody measured; `weight` is the bytes of a usual one.

    A narrow model's time goes into requests, which one process answers on one CPU, and its threads wait for
    each other at each product: of weights up to 1 MB, fp32 or int8, two workers on two CPUs answer 1.0 to 2
    times as much as one with two threads, be it for one user or for 64. A wide one's goes into its products,
    which threads share: of weights of 2.5 MB two workers answer 0.7 to 0.8 times as much for one user and for
    16, and as much for 64 (`turnpike tune` measures it). Of more CPUs, each four have a worker, as threads
    gain less the more there are.
    """
    whole = max(1, int(allowed))
    return max(1, whole // CPUS_PER_WIDE_WORKER) if weight > LARGE_WEIGHT_BYTES else whole


def available_cpus(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS) -> float:
    """CPUs by affinity, or as the cgroups' quotas have it where that is less."""
    affinity = (
        float(len(os.sched_getaffinity(0)))
        if hasattr(os, "sched_getaffinity")
        else float(os.cpu_count() or 1)
    )
    return min([affinity, *cgroup_quotas(root, own)])


def cpu_model(info: Path = CPU_INFO) -> str:
    """What the CPU is called, or of what kind it is where it has no name."""
    lines = (line.partition(":") for line in read_text(info).splitlines())
    told = {name.strip(): value.strip() for name, _, value in lines if value.strip()}
    names = (told.get("model name"), told.get("CPU implementer"), told.get("CPU part"))
    return " ".join(filter(None, names)) or platform.processor() or platform.machine()


def cgroup_quotas(root: Path, own: Path) -> list[float]:
    """What the groups of this process and those above them allow."""
    try:
        entries = own.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return []
    found = []
    for entry in entries:
        _, _, rest = entry.partition(":")
        controllers, _, path = rest.partition(":")
        if not path:
            continue
        if not controllers:
            mount, read = root, quota_v2
        elif "cpu" in controllers.split(","):
            mount, read = root / controllers, quota_v1
            if not mount.is_dir():
                mount = root / "cpu"
        else:
            continue
        group = mount / path.lstrip("/")
        # in a container the path may be the host's, and the mount is the group itself
        for folder in (group, *group.parents):
            quota = read(folder)
            if quota is not None:
                found.append(quota)
            if folder == mount:
                break
    return found


def quota_v2(folder: Path) -> float | None:
    """The quota of a group of version 2, such as `150000 100000`; `max` is none."""
    return quota_ratio(*words) if len(words := read_text(folder / "cpu.max").split()) == 2 else None


def quota_v1(folder: Path) -> float | None:
    """The quota of a group of version 1; -1 is none."""
    return quota_ratio(read_text(folder / "cpu.cfs_quota_us"), read_text(folder / "cpu.cfs_period_us"))


def quota_ratio(quota: str, period: str) -> float | None:
    if not (quota.isdigit() and period.isdigit() and int(period)):
        return None
    return int(quota) / int(period)


def read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
