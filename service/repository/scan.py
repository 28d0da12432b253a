"""Finds model files in a repository (`<name>/<version>/model.onnx`), checks their names, and reads them."""

from __future__ import annotations

import mmap
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from turnpike.service.errors import ModelFileError, SettingError

MODEL_FILE = "model.onnx"

VERSION_PATTERN = re.compile(r"[1-9][0-9]{0,9}")
MAX_VERSION = 2**31 - 1
# characters; names are part of URLs, log lines and labels of metrics
MAX_NAME_LENGTH = 200
# protobuf has no larger messages
MAX_FILE_BYTES = (2 << 30) - 1

FileIdentity = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model file of the repository. `identity` (inode, mtime in ns, size) changes when it is replaced.

    `tried` is set once it has passed its trial, which a file without a manifest needs.
    """

    name: str
    version: int
    path: Path
    identity: FileIdentity
    tried: bool = field(default=False, compare=False)

    @property
    def size(self) -> int:
        return self.identity[2]

    def to_json(self) -> dict[str, Any]:
        """The file as a dict of plain values."""
        return {
            "name": self.name,
            "version": self.version,
            "path": str(self.path),
            "identity": list(self.identity),
            "tried": self.tried,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ModelFile:
        return cls(
            record["name"],
            record["version"],
            Path(record["path"]),
            tuple(record["identity"]),
            record["tried"],
        )


@dataclass(frozen=True, slots=True)
class SkippedPath:
    """A folder or file that looks like a model and is not served. `reason` has no path in it."""

    name: str
    version: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class RepositoryScan:
    """The model files of a repository by name, in the order of versions, and the paths that were skipped.

    `unfetched` has versions of a remote repository that were not downloaded, as they are not served.
    """

    models: dict[str, tuple[ModelFile, ...]] = field(default_factory=dict)
    skipped: tuple[SkippedPath, ...] = ()
    unfetched: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


class Versioned(Protocol):
    """A file with the number of its version."""

    @property
    def version(self) -> int: ...


VersionedFile = TypeVar("VersionedFile", bound=Versioned)


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """Which versions of a model are served: the latest, all, or those of a list."""

    listed: frozenset[int] | None = None
    latest: bool = False

    @classmethod
    def parse(cls, text: str) -> VersionPolicy:
        """Parse a setting: `latest`, `all`, or version numbers separated by commas."""
        if text == "latest":
            return cls(latest=True)
        if text == "all":
            return cls()
        numbers = [number.strip() for number in text.split(",")]
        if not all(VERSION_PATTERN.fullmatch(number) for number in numbers):
            raise SettingError(
                f"versions: expected latest, all, or version numbers such as 1,3, got {text!r}"
            )
        return cls(listed=frozenset(map(int, numbers)))

    def choose(self, files: Iterable[VersionedFile]) -> tuple[VersionedFile, ...]:
        """The files to serve, in the order of their versions."""
        ordered = sorted(files, key=lambda file: file.version)
        if self.listed is not None:
            ordered = [file for file in ordered if file.version in self.listed]
        return tuple(ordered[-1:] if self.latest else ordered)


def scan(root: Path, model: str | None = None, version: int | None = None) -> RepositoryScan:
    """Everything in a repository. Hidden files, drafts and folders without a model are ignored.

    Args:
        root: The folder.
        model: The only model to look for; None for all.
        version: Its only version to look for; None for all.

    Raises:
        SettingError: The repository cannot be read.
    """
    try:
        home = root.resolve(strict=True)
        with os.scandir(home) as entries:
            folders = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise SettingError(
            f"models: expected a folder that can be read, got {str(root)!r} ({error.strerror})"
        ) from error
    models: dict[str, tuple[ModelFile, ...]] = {}
    skipped: list[SkippedPath] = []
    for folder in folders:
        name = folder.name
        if name.startswith(".") or model not in (None, name):
            continue
        try:
            files = list(_scan_model(home, folder, skipped))
        except OSError as error:  # it was removed in the meantime, or we may not read it
            skipped.append(SkippedPath(printable(name), None, f"it cannot be read ({error.strerror})"))
            continue
        if version is not None:
            files = [file for file in files if file.version == version]
        if files:
            models[name] = tuple(sorted(files, key=lambda file: file.version))
    return RepositoryScan(models, tuple(skipped))


def is_version(name: str) -> bool:
    """Whether a folder's name is the number of a version."""
    return bool(VERSION_PATTERN.fullmatch(name)) and int(name) <= MAX_VERSION


def file_identity(status: os.stat_result) -> FileIdentity:
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def read_model_file(file: ModelFile) -> memoryview:
    """The content of a file; a ModelFileError if it was replaced since the scan."""
    try:
        with file.path.open("rb") as opened:
            expect_unchanged(file, opened.fileno())
            if file.size > MAX_FILE_BYTES:
                raise ModelFileError(
                    f"{file.path}: expected at most {MAX_FILE_BYTES} bytes, got {file.size}",
                    "its file is larger than 2 GiB",
                )
            content = memoryview(_allocate(file.size))
            if opened.readinto(content) != file.size:
                raise _changed_error(file)
            return content
    except OSError as error:
        raise ModelFileError(
            f"{file.path}: expected a file that can be read ({error.strerror})", "its file cannot be read"
        ) from error


def expect_unchanged(file: ModelFile, descriptor: int | None = None) -> None:
    """Raise a ModelFileError if the file at its path, or the opened one, is not the one that was scanned."""
    try:
        identity = file_identity(file.path.stat() if descriptor is None else os.fstat(descriptor))
    except OSError:
        identity = None
    if identity != file.identity:
        raise _changed_error(file)


def _changed_error(file: ModelFile) -> ModelFileError:
    return ModelFileError(
        f"{file.path}: expected the file that was scanned, and it has changed since then",
        "its file changed while it was loaded",
    )


def _allocate(size: int) -> bytearray | mmap.mmap:
    """Memory in huge pages, if the system has them.

    Freeing 100 MB of ordinary pages takes 6 ms, during which the interpreter's lock is held.
    """
    if not size or not hasattr(mmap, "MADV_HUGEPAGE"):
        return bytearray(size)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # the kernel has no huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _scan_model(home: Path, folder: os.DirEntry[str], skipped: list[SkippedPath]) -> Iterator[ModelFile]:
    """The files of one model. Appends to `skipped` what looks like a model and is not served.

    A scan of an unchanged repository should cost little, so paths are resolved only if they have links.
    """
    # the model's folder
    name = folder.name
    if not folder.is_dir():
        return
    if folder.is_symlink() and not _is_inside(folder.path, home):
        skipped.append(SkippedPath(printable(name), None, "its folder is a link that leaves the repository"))
        return
    with os.scandir(folder.path) as entries:
        versions = [entry for entry in entries if is_version(entry.name)]
    if versions and (problem := name_problem(name)):
        skipped.append(SkippedPath(printable(name), None, problem))
        return
    # the file of each version
    for version in versions:
        number, path = int(version.name), f"{version.path}/{MODEL_FILE}"
        try:
            status = os.lstat(path)
            is_link = stat.S_ISLNK(status.st_mode)
            if is_link:
                status = Path(path).stat()
        except FileNotFoundError:
            if Path(path).is_symlink():
                skipped.append(SkippedPath(name, number, "its file is a broken link"))
            continue
        except OSError as error:
            skipped.append(SkippedPath(name, number, f"its file cannot be read ({error.strerror})"))
            continue
        if (is_link or version.is_symlink()) and not _is_inside(path, home):
            skipped.append(SkippedPath(name, number, "its file is a link that leaves the repository"))
        elif not stat.S_ISREG(status.st_mode):
            skipped.append(SkippedPath(name, number, f"{MODEL_FILE} is not a file"))
        else:
            yield ModelFile(name, number, Path(path), file_identity(status))


def _is_inside(path: str, home: Path) -> bool:
    return Path(path).resolve().is_relative_to(home)


def name_problem(name: str) -> str | None:
    """What is wrong with a model's name, None if nothing is."""
    if len(name) > MAX_NAME_LENGTH:
        return f"its name is longer than {MAX_NAME_LENGTH} characters"
    # includes bytes that are not UTF-8
    if not name.isprintable():
        return "its name has characters that cannot be printed"
    return None


def printable(name: str) -> str:
    """A name that is safe to send: shortened, with escapes for what cannot be printed."""
    return ascii(name[:MAX_NAME_LENGTH])[1:-1] if name_problem(name) else name
