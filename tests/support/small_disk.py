"""A disk of a few megabytes that is full or read-only, on which commands of turnpike are run.

    python -m tests.support.small_disk FOLDER

mounts a disk in memory at FOLDER, in a mount namespace of its own, so that no other process sees it and no
right is needed. It runs the commands one after the other, and prints one JSON object for each: its exit
status, what it wrote to stderr, and the files that it changed, added or removed on the disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.run_cli import run_in_process

# runs a command as root of a new namespace
UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")
DISK_BYTES = 8 << 20
# what a full disk has left
FREE_BYTES = 8 << 10
FILLER = "filler"


def available() -> bool:
    """Whether this machine lets us mount a disk in a namespace."""
    command = [*UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def mount(disk: Path, *options: str) -> None:
    size = f"size={DISK_BYTES}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join([size, *options]), "none", disk], check=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Fill the disk for the block."""
    filler = disk / FILLER
    status = os.statvfs(disk)
    filler.write_bytes(bytes(status.f_bavail * status.f_frsize - FREE_BYTES))
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Make the disk read-only for the block."""
    mount(disk, "remount", "ro")
    try:
        yield
    finally:
        mount(disk, "remount", "rw")


def digests(disk: Path) -> dict[str, str]:
    files = [path for path in disk.rglob("*") if path.name != FILLER]
    return {
        str(path.relative_to(disk)): "folder"
        if path.is_dir()
        else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def write_load_report(folder: Path) -> None:
    from tests.support.loadtest_records import mixed_record
    from turnpike.loadtest.report.write_report import write_report

    write_report(folder, mixed_record())


def run_all(disk: Path) -> Iterator[dict[str, Any]]:
    """The outcome of each command."""

    def outcome(case: str, act: Callable[[], Any]) -> dict[str, Any]:
        before = digests(disk)
        try:
            result = act()
            status, message = getattr(result, "exit_code", 0), getattr(result, "stderr", "")
        except Exception as error:
            status, message = None, f"{type(error).__name__}: {error}"
        after = digests(disk)
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        return {"case": case, "status": status, "stderr": message, "changed": changed}

    source = sys.argv[2]
    elsewhere = Path(source).parent / "elsewhere"
    repository, report = disk / "repository", disk / "report"

    def export(to: Path, *options: object) -> Any:
        words = [source, "--input", "x:float32[batch,600]", "--name", "net", "--to", to, *options]
        return run_in_process("export", *words)

    def train(*options: object, out: str = "run") -> Any:
        words = ["digits-10", "--schedule", "constant", "--no-pictures", "--out", disk / out, *options]
        return run_in_process("train", *words)

    yield outcome("export", lambda: export(repository))
    yield outcome("train", lambda: train("--epochs", 1))
    with full(disk):
        yield outcome("full: export", lambda: export(repository, "--version", 1, "--replace", "--seed", 1))
        yield outcome("full: next version", lambda: export(repository, "--seed", 1))
        yield outcome("full: report", lambda: export(elsewhere, "--report", report))
        yield outcome("full: train", lambda: train("--epochs", 1, out="other"))
        yield outcome("full: resume", lambda: train("--epochs", 2, "--resume"))
        yield outcome("full: load test", lambda: write_load_report(report))
    with read_only(disk):
        yield outcome("read-only: export", lambda: export(repository))
        yield outcome("read-only: report", lambda: export(elsewhere, "--report", report))
        yield outcome("read-only: train", lambda: train("--epochs", 1, out="other"))
        yield outcome("read-only: load test", lambda: write_load_report(report))
    yield outcome("export again", lambda: export(repository, "--version", 1, "--replace", "--seed", 1))
    yield outcome("train again", lambda: train("--epochs", 1, out="other"))
    yield outcome("resume again", lambda: train("--epochs", 2, "--resume"))


def main() -> None:
    disk = Path(sys.argv[1])
    mount(disk)
    for result in run_all(disk):
        print(json.dumps(result), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
