"""What lies in a model repository, `<name>/<version>/model.onnx`: read from the folder and nowhere else."""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from service.errors import ModelFileError, SettingError

MODEL_FILE = "model.onnx"

VERSION_PATTERN = re.compile(r"[1-9][0-9]{0,9}")
MAX_VERSION = 2**31 - 1
# names stand in addresses, logs and labels of metrics
MAX_NAME_LENGTH = 200
MAX_FILE_BYTES = (2 << 30) - 1  # protobuf has no larger messages

FileIdentity = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model file of the repository. `identity` (inode, mtime in ns, size) changes when it is replaced."""

    name: str
    version: int
    path: Path
    identity: FileIdentity

    @property
    def size(self) -> int:
        return self.identity[2]


@dataclass(frozen=True, slots=True)
class SkippedPath:
    """A folder or file that looks like a model and is not served, and why; `reason` holds no path."""

    name: str
    version: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class RepositoryScan:
    """All that was found, by name, versions in order; `skipped` has what was not taken."""

    models: dict[str, tuple[ModelFile, ...]] = field(default_factory=dict)
    skipped: tuple[SkippedPath, ...] = ()


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """Which versions of a model are served: the latest, all, or those of a list."""

    listed: frozenset[int] | None = None
    latest: bool = False

    @classmethod
    def parse(cls, text: str) -> VersionPolicy:
        """The policy of a setting: `latest`, `all`, or numbers with commas between."""
        if text == "latest":
            return cls(latest=True)
        if text == "all":
            return cls()
        numbers = [one.strip() for one in text.split(",")]
        if not all(VERSION_PATTERN.fullmatch(one) for one in numbers):
            raise SettingError(
                f"versions: expected latest, all, or whole numbers from 1 with commas between, got {text!r}"
            )
        return cls(listed=frozenset(map(int, numbers)))

    def choose(self, found: Iterable[ModelFile]) -> tuple[ModelFile, ...]:
        """Those to serve, in order of their versions."""
        ordered = sorted(found, key=lambda one: one.version)
        if self.listed is not None:
            ordered = [one for one in ordered if one.version in self.listed]
        return tuple(ordered[-1:] if self.latest else ordered)


def scan(root: Path) -> RepositoryScan:
    """Everything in a repository. Hidden files, drafts and folders without a model are none.

    A SettingError where the repository itself cannot be read.
    """
    try:
        home = root.resolve(strict=True)
        names = sorted(entry.name for entry in home.iterdir())
    except OSError as error:
        raise SettingError(
            f"models: expected a folder that can be read, got {str(root)!r} ({error.strerror})"
        ) from error
    models: dict[str, tuple[ModelFile, ...]] = {}
    skipped: list[SkippedPath] = []
    for name in names:
        if name.startswith("."):
            continue
        try:
            found = list(_scan_model(home, name, skipped))
        except OSError as error:  # gone in the meantime, or not ours to read
            skipped.append(SkippedPath(_printable(name), None, f"it cannot be read ({error.strerror})"))
            continue
        if found:
            models[name] = tuple(sorted(found, key=lambda one: one.version))
    return RepositoryScan(models, tuple(skipped))


def file_identity(kept: os.stat_result) -> FileIdentity:
    return (kept.st_ino, kept.st_mtime_ns, kept.st_size)


def read_model_file(found: ModelFile) -> memoryview:
    """All of a file; a ModelFileError where it is not the one that was found."""
    try:
        with found.path.open("rb") as file:
            expect_unchanged(found, file.fileno())
            if found.size > MAX_FILE_BYTES:
                raise ModelFileError(
                    f"{found.path}: expected at most {MAX_FILE_BYTES} bytes, got {found.size}",
                    "its file is larger than 2 GiB",
                )
            content = memoryview(_allocate(found.size))
            if file.readinto(content) != found.size:
                raise _changed_error(found)
            return content
    except OSError as error:
        raise ModelFileError(
            f"{found.path}: expected a file that can be read ({error.strerror})", "its file cannot be read"
        ) from error


def expect_unchanged(found: ModelFile, opened: int | None = None) -> None:
    """Stop with a ModelFileError unless the file there, or an opened one, is the one that was found."""
    try:
        identity = file_identity(found.path.stat() if opened is None else os.fstat(opened))
    except OSError:
        identity = None
    if identity != found.identity:
        raise _changed_error(found)


def _changed_error(found: ModelFile) -> ModelFileError:
    return ModelFileError(
        f"{found.path}: expected the file that was found, and it has changed since then",
        "its file changed while it was loaded",
    )


def _allocate(size: int) -> bytearray | mmap.mmap:
    """Memory in huge pages where the system has them.

    To give back 100 MB of small ones takes 6 ms, in which the interpreter's lock is kept from all others.
    """
    if not size or not hasattr(mmap, "MADV_HUGEPAGE"):
        return bytearray(size)
    room = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        room.madvise(mmap.MADV_HUGEPAGE)
    return room


def _scan_model(home: Path, name: str, skipped: list[SkippedPath]) -> Iterator[ModelFile]:
    folder = home / name
    if not folder.is_dir():
        return
    if not _is_inside(folder, home):
        skipped.append(SkippedPath(_printable(name), None, "its folder is a link that leaves the repository"))
        return
    versions = [entry.name for entry in folder.iterdir() if VERSION_PATTERN.fullmatch(entry.name)]
    versions = [version for version in versions if int(version) <= MAX_VERSION]
    if versions and (wrong := _name_problem(name)):
        skipped.append(SkippedPath(_printable(name), None, wrong))
        return
    for version in versions:
        path = folder / version / MODEL_FILE
        try:
            kept = path.stat()
        except FileNotFoundError:
            if path.is_symlink():
                skipped.append(SkippedPath(name, int(version), "its file is a link to nothing"))
            continue
        except OSError as error:
            skipped.append(SkippedPath(name, int(version), f"its file cannot be read ({error.strerror})"))
            continue
        if not _is_inside(path, home):
            skipped.append(SkippedPath(name, int(version), "its file is a link that leaves the repository"))
        elif not stat.S_ISREG(kept.st_mode):
            skipped.append(SkippedPath(name, int(version), f"{MODEL_FILE} is no file"))
        else:
            yield ModelFile(name, int(version), path, file_identity(kept))


def _is_inside(path: Path, home: Path) -> bool:
    return path.resolve().is_relative_to(home)


def _name_problem(name: str) -> str | None:
    """What is wrong with a name, None for a good one."""
    if len(name) > MAX_NAME_LENGTH:
        return f"its name is longer than {MAX_NAME_LENGTH} characters"
    # bytes that are no UTF-8 cannot be shown either
    if not name.isprintable():
        return "its name has letters that cannot be shown"
    return None


def _printable(name: str) -> str:
    """A name that is safe to send: what cannot be shown is written as an escape."""
    return ascii(name[:MAX_NAME_LENGTH])[1:-1] if _name_problem(name) else name
