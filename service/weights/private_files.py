"""Files that only this user can write, with their identities, and small JSON files with a digest in them."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOUNTS = Path("/proc/self/mountinfo")
# Types of file systems that several machines share. If another one removes a file that is mapped here, the
# kernel ends this process.
NETWORKS = ("nfs", "cifs", "smb", "9p", "ceph", "lustre", "gpfs", "beegfs", "afs", "glusterfs", "fuse.")
# permission bits of other users
OTHERS, WRITABLE_BY_OTHERS = 0o077, 0o022
# Nanoseconds that a file must have been unchanged for before it was read, so that a later change shows in its
# times: FAT counts in steps of two seconds.
SETTLED_NS = 3_000_000_000

# device, inode, size, and the times of the last change of content and of anything, in nanoseconds
Identity = tuple[int, int, int, int, int]


class UntrustedError(ValueError):
    """A file or folder that another user or machine can change."""


def make_private_folder(folder: Path) -> None:
    """Create a folder for this user alone, unless it exists.

    Raises:
        UntrustedError: It is a link, or another user owns or can open it.
        OSError: It cannot be created.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    expect_private_folder(folder)


def expect_private_folder(folder: Path) -> None:
    """Raise an UntrustedError if a folder is a link, or another user owns or can open it."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise UntrustedError(f"{folder} is a link or a file")
    if status.st_uid != os.geteuid():
        raise UntrustedError(f"{folder} belongs to another user")
    if status.st_mode & OTHERS:
        raise UntrustedError(f"other users may open {folder}: chmod 700 closes it")


def network_file_system(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of the folder's file system if other machines may share it, None if not or if not known."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = mounts.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        mount, _, file_system = line.partition(" - ")
        if mount.split()[2:3] == [number] and file_system.startswith(NETWORKS):
            return file_system.split()[0]
    return None


def private_identity(path: Path) -> Identity:
    """The identity of a file; raises an UntrustedError if it is a link, or another user can write it."""
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise UntrustedError(f"{path} is a link, or belongs to another user")
    if status.st_mode & WRITABLE_BY_OTHERS:
        raise UntrustedError(f"other users may write {path}")
    return identity_of(status)


def identity_of(status: os.stat_result) -> Identity:
    """What changes whenever a file is replaced or written; its owner cannot set the last number back."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def is_settled(identity: Identity, read_at_ns: int) -> bool:
    """Whether a change of the file after it was read will change its identity."""
    return max(identity[3:]) + SETTLED_NS < read_at_ns


def boot_id() -> str | None:
    """What names the time since the machine started; None if the system has no such name."""
    try:
        return BOOT_ID.read_text("ascii").strip()
    except OSError:
        return None


def write_sealed(path: Path, content: Any) -> None:
    """Write a JSON file whole or not at all, with a digest that `read_sealed` checks."""
    text = json.dumps(content, sort_keys=True)
    sealed = json.dumps({"content": content, "sha256": hashlib.sha256(text.encode()).hexdigest()})
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(sealed)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def read_sealed(path: Path) -> Any:
    """The content that `write_sealed` wrote; None if there is none, or it is damaged or not private."""
    try:
        private_identity(path)
        sealed = json.loads(path.read_text("utf-8"))
        content = sealed["content"]
        text = json.dumps(content, sort_keys=True)
        return content if hashlib.sha256(text.encode()).hexdigest() == sealed["sha256"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
