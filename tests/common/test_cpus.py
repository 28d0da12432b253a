"""The number of usable CPUs: those of the affinity, within the limits of the cgroups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from turnpike.common import cpus
from turnpike.common.cpus import affinity_cpus, available_cpus, cpu_model, whole_cpus


@pytest.fixture
def sixteen_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose affinity allows sixteen CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


def write_cgroups(folder: Path, own: str, files: dict[str, str]) -> tuple[Path, Path]:
    """Write a tree of cgroups and the file with this process's groups; returns both paths."""
    (folder / "own").write_text(own)
    for name, content in files.items():
        file = folder / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return folder / "cgroup", folder / "own"


@pytest.mark.usefixtures("sixteen_cpus")
@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        # version 2
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 2.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 16),
        ("0::/pod/box\n", {"pod/cpu.max": "300000 100000\n", "pod/box/cpu.max": "max 100000\n"}, 3),
        ("0::/pod/box\n", {"pod/cpu.max": "300000 100000\n", "pod/box/cpu.max": "50000 100000\n"}, 0.5),
        # the path is that of the host, and the mount is the group itself
        ("0::/../host/box\n", {"cpu.max": "400000 100000\n"}, 4),
        ("0::/host/box\n", {"cpu.max": "400000 100000\n"}, 4),
        # version 1
        (
            "4:cpu,cpuacct:/b\n",
            {"cpu,cpuacct/b/cpu.cfs_quota_us": "150000", "cpu,cpuacct/b/cpu.cfs_period_us": "50000"},
            3,
        ),
        ("4:cpu,cpuacct:/b\n", {"cpu/b/cpu.cfs_quota_us": "150000", "cpu/b/cpu.cfs_period_us": "50000"}, 3),
        ("4:cpu:/b\n", {"cpu/b/cpu.cfs_quota_us": "-1", "cpu/b/cpu.cfs_period_us": "100000"}, 16),
        ("4:cpu:/b\n", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ("3:cpuset:/b\n", {"cpuset/b/cpu.cfs_quota_us": "1", "cpuset/b/cpu.cfs_period_us": "1"}, 16),
        # unreadable values
        ("0::/\n", {"cpu.max": "many\n"}, 16),
        ("0::/\n", {"cpu.max": "5 0\n"}, 16),
        ("0::/\n", {"cpu.max": "9900000 100000\n"}, 16),
        ("hello\n", {}, 16),
        ("", {}, 16),
    ],
)
def test_the_smallest_cpu_limit_counts(
    tmp_path: Path, own: str, files: dict[str, str], expected: float
) -> None:
    """Affinity and the cgroups of the process and its parents are limits. Unreadable files are not."""
    assert available_cpus(*write_cgroups(tmp_path, own, files)) == expected
    assert affinity_cpus() == 16


@pytest.mark.usefixtures("sixteen_cpus")
def test_without_cgroups_the_affinity_counts(tmp_path: Path) -> None:
    """Systems other than Linux have no cgroups."""
    assert available_cpus(tmp_path / "absent", tmp_path / "absent") == 16


@pytest.mark.parametrize(("available", "whole"), [(8.0, 8), (2.9, 2), (1.0, 1), (0.5, 1)])
def test_threads_are_counted_in_whole_cpus(
    monkeypatch: pytest.MonkeyPatch, available: float, whole: int
) -> None:
    monkeypatch.setattr(cpus, "available_cpus", lambda: available)
    assert whole_cpus() == whole


def test_systems_without_affinity_count_all_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert affinity_cpus() == 6


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor\t: 0\nmodel name\t: Some  CPU @ 3GHz\nflags\t\t: a b\n", "Some  CPU @ 3GHz"),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n", "0x41 0xd40"),
    ],
)
def test_the_cpu_model_is_read(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert cpu_model(tmp_path / "cpuinfo") == expected
    assert cpu_model(tmp_path / "absent")
