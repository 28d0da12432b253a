"""The memory of a container, and the shares of its workers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from turnpike.service.artifact.devices import Device
from turnpike.service.config import memory_share as memory
from turnpike.service.config.memory_share import (
    allocation_limit,
    max_held_bytes,
    memory_limit,
    memory_per_worker,
    oom_kills,
)
from turnpike.service.config.settings import Settings

MIB = 1 << 20


def write(folder: Path, own: str, files: Mapping[str, str]) -> None:
    """Write the groups of a process, and files of groups."""
    (folder / "own").write_text(own)
    for name, content in files.items():
        file = folder / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        # version 2
        ("0::/\n", {"memory.max": "536870912\n"}, 512 * MIB),
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/pod/box\n", {"pod/memory.max": "1048576\n", "pod/box/memory.max": "max\n"}, MIB),
        ("0::/pod/box\n", {"pod/memory.max": "2097152\n", "pod/box/memory.max": "1048576\n"}, MIB),
        # version 1, also with the path of the host
        ("9:memory:/b\n", {"memory/b/memory.limit_in_bytes": "1048576"}, MIB),
        ("9:memory:/docker/b\n", {"memory/memory.limit_in_bytes": "1048576"}, MIB),
        ("9:memory:/b\n", {"memory/b/memory.limit_in_bytes": "9223372036854771712"}, None),
        ("9:cpu:/b\n", {"cpu/b/memory.limit_in_bytes": "1048576"}, None),
        # unreadable values
        ("0::/\n", {"memory.max": "much\n"}, None),
        ("hello\n", {}, None),
    ],
)
def test_the_smallest_memory_limit_counts(
    tmp_path: Path, own: str, files: dict[str, str], expected: int | None
) -> None:
    """The cgroups of the process and those above them are limits."""
    write(tmp_path, own, files)
    assert memory_limit(tmp_path / "cgroup", tmp_path / "own") == expected


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"memory.events": "low 0\noom 4\noom_kill 3\noom_group_kill 0\n"}, 3),
        # other containers are in the groups above
        ("0::/a/b\n", {"a/b/memory.events": "oom_kill 1\n", "a/memory.events": "oom_kill 9\n"}, 1),
        # version 1, also with the path of the host
        ("9:memory:/b\n0::/\n", {"memory/b/memory.oom_control": "under_oom 0\noom_kill 2\n"}, 2),
        ("9:memory:/docker/b\n", {"memory/memory.oom_control": "under_oom 0\noom_kill 2\n"}, 2),
        # the group of all processes has no such file, and old kernels do not count
        ("0::/\n", {}, None),
        ("9:memory:/b\n", {"memory/b/memory.oom_control": "under_oom 0\n"}, None),
    ],
)
def test_the_kernel_counts_kills_for_lack_of_memory(
    tmp_path: Path, own: str, files: dict[str, str], expected: int | None
) -> None:
    write(tmp_path, own, files)
    assert oom_kills(tmp_path / "cgroup", tmp_path / "own") == expected


def test_workers_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is left for the supervisor. Without a limit there are no shares."""
    monkeypatch.setattr(memory, "memory_limit", lambda: 1000 * MIB)
    assert memory_per_worker(Settings()) == 850 * MIB
    assert memory_per_worker(Settings(workers=5)) == 170 * MIB
    monkeypatch.setattr(memory, "memory_limit", lambda: None)
    assert memory_per_worker(Settings(workers=5)) is None


@pytest.mark.parametrize(
    ("device", "expected"), [("cpu", 850 * MIB), ("openvino", 850 * MIB), ("cuda", None)]
)
def test_allocations_are_limited_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, device: Device, expected: int | None
) -> None:
    monkeypatch.setattr(memory, "memory_limit", lambda: 1000 * MIB)
    assert allocation_limit(Settings(device=device)) == expected


@pytest.mark.parametrize(
    ("limit", "given", "expected"),
    [
        # no limit, or much memory: the default of the setting
        (None, {}, 512 * MIB),
        (16_000 * MIB, {}, 512 * MIB),
        # a quarter of the worker's share
        (1000 * MIB, {}, 850 * MIB // 4),
        (1000 * MIB, {"workers": 2}, 425 * MIB // 4),
        # enough for one body
        (256 * MIB, {}, 64 * MIB),
        (256 * MIB, {"max_body": MIB}, int(256 * MIB * 0.85) // 4),
        # as it is given
        (256 * MIB, {"max_held": 300 * MIB}, 300 * MIB),
    ],
)
def test_requests_hold_a_part_of_the_share(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, given: dict[str, int], expected: int
) -> None:
    """Unless --max-held is given, as many bytes as fit into the container."""
    monkeypatch.setattr(memory, "memory_limit", lambda: limit)
    assert max_held_bytes(Settings.model_validate(given)) == expected
