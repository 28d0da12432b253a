"""Reads limits and counts of this process's cgroups and of those above them, in version 1 and version 2."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")

# reads the value in the folder of a group; None if there is none
ReadValue = Callable[[Path], float | None]


def cgroup_values(
    controller: str, read_v1: ReadValue, read_v2: ReadValue, root: Path, own: Path
) -> Iterator[float]:
    """Yield the values of all groups that this process is in, from its own group upwards.

    Args:
        controller: The name of the controller, such as `cpu`.
        read_v1: Reads the value of a group of version 1.
        read_v2: Reads the value of a group of version 2.
        root: Where the cgroups are mounted.
        own: The file that lists the groups of this process.
    """
    for entry in read_text(own).splitlines():
        _, _, rest = entry.partition(":")
        controllers, _, path = rest.partition(":")
        if not path:
            continue
        # an entry without controllers is of version 2
        if not controllers:
            mount, read_value = root, read_v2
        elif controller in controllers.split(","):
            mount, read_value = root / controllers, read_v1
            if not mount.is_dir():
                mount = root / controller
        else:
            continue
        group = mount / path.lstrip("/")
        # in a container the path may be that of the host, and the mount is the group itself
        for folder in (group, *group.parents):
            value = read_value(folder)
            if value is not None:
                yield value
            if folder == mount:
                break


def read_text(file: Path) -> str:
    """The stripped content of a file, or nothing if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
