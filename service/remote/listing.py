"""Lists the model files of a remote repository through fsspec, and checks the names that a store sends.

No name in a listing becomes a path on this machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turnpike.common.distribution import needs_extra
from turnpike.service.errors import SettingError, StoreError
from turnpike.service.repository.location import VOLUME_FOLDER
from turnpike.service.repository.scan import MODEL_FILE, SkippedPath, is_version, name_problem, printable

# what to install for the usual protocols; for others, fsspec has a sentence
PACKAGES = {
    "abfs": "adlfs",
    "az": "adlfs",
    "gcs": "gcsfs",
    "gs": "gcsfs",
    "hf": "huggingface_hub",
    "s3": "s3fs",
    "s3a": "s3fs",
    "sftp": "paramiko",
}
# Fields of a listing that change when an object is replaced. Others, such as the time of the last access, may
# change without that. If a store has none of these, all of its fields count.
REVISION_FIELDS = (
    *("ETag", "etag", "md5Hash", "md5", "content_md5", "crc32c", "checksum", "generation", "VersionId"),
    *("version_id", "blob_id", "sha", "LastModified", "last_modified", "updated", "mtime", "modified", "ino"),
)
# texts of libraries are cut to this many characters, and other files of a repository to this many names
MAX_ERROR_LENGTH, MAX_OTHERS = 300, 1000


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A model file as it is listed. `revision` changes when it is replaced; `size` is None if not listed."""

    name: str
    version: int
    path: str
    size: int | None
    revision: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The model files of a repository, what looks like one and is not, and the names of other things."""

    files: tuple[RemoteFile, ...]
    skipped: tuple[SkippedPath, ...] = ()
    others: tuple[str, ...] = ()


def open_store(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it.

    Raises:
        SettingError: A library is missing, or the address makes no sense.
    """
    protocol = address.partition("://")[0]
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise SettingError(needs_extra(f"models: {address!r}", "fsspec", "serve,remote")) from error
    try:
        return url_to_fs(address)
    except ImportError as error:
        advice = f"pip install {PACKAGES[protocol]}" if protocol in PACKAGES else one_line(error)
        raise SettingError(
            f"models: expected the library of {protocol}:// for {address!r}, "
            f"got {one_line(error.__cause__ or error)}: {advice}"
        ) from error
    except ValueError as error:
        raise SettingError(
            f"models: expected an address that fsspec knows, got {address!r} ({one_line(error)})"
        ) from error
    except Exception as error:
        raise StoreError(
            f"models: expected a store that can be opened, got {address!r} ({one_line(error)})"
        ) from error


def list_repository(store: Any, root: str, address: str) -> Listing:
    """The listing of a repository: a path in a store, and its address for errors.

    Raises:
        StoreError: It cannot be listed, or has no files at all.
        SettingError: It is no repository, but a model in one.
    """
    try:
        entries = _find(store, root)
    except Exception as error:
        raise StoreError(
            f"models: expected a repository that can be listed, got {address!r} ({one_line(error)})"
        ) from error
    # most stores do not tell an empty folder from a missing one
    if not entries:
        raise StoreError(f"models: expected a repository with models, got {address!r}, which has no files")
    listing = parse_listing(entries, root)
    is_model = any(is_version(name) or name == MODEL_FILE for name in listing.others)
    if not listing.files and (is_model or root in entries):
        raise SettingError(
            f"models: expected the address of a repository, with files <name>/<version>/{MODEL_FILE}, "
            f"got {address!r}, which is that of a model or version: give that of the folder above"
        )
    return listing


def parse_listing(entries: Mapping[str, Mapping[str, Any]], root: str) -> Listing:
    """The model files among the entries of a store. Their names are checked like those of local folders.

    Args:
        entries: What the store says about each file, by its path.
        root: The path of the repository. Files that are not below it are ignored.
    """
    prefix = f"{root.rstrip('/')}/"
    files: list[RemoteFile] = []
    skipped: dict[tuple[str, int | None], SkippedPath] = {}
    others: set[str] = set()
    for path, info in entries.items():
        relative = path.removeprefix(prefix)
        name, *rest = relative.split("/")
        if relative == path or not name or name.startswith("."):
            continue
        others.add(name)
        if len(rest) != 2 or rest[1] != MODEL_FILE or not is_version(rest[0]):
            continue
        version = int(rest[0])
        if problem := name_problem(name):
            skipped[name, None] = SkippedPath(printable(name), None, problem)
        elif info.get("type") != "file":
            skipped[name, version] = SkippedPath(name, version, f"{MODEL_FILE} is not a file")
        else:
            files.append(RemoteFile(name, version, path, info.get("size"), _revision(path, info)))
    others -= {file.name for file in files} | {name for name, _ in skipped}
    return Listing(
        files=tuple(sorted(files, key=lambda file: (file.name, file.version))),
        skipped=tuple(skipped.values()),
        others=tuple(sorted(map(printable, others))[:MAX_OTHERS]),
    )


def current_revision(store: Any, path: str) -> str:
    """The revision of a file now. It is listed again, as stores describe single files in other words."""
    store.invalidate_cache()
    entries = _find(store, path.rpartition("/")[0])
    return _revision(path, entries.get(path, {}))


def _revision(path: str, info: Mapping[str, Any]) -> str:
    """A digest that changes when an object is replaced."""
    known = {field: info[field] for field in REVISION_FIELDS if info.get(field) is not None}
    facts = sorted((field, str(value)) for field, value in (known or info).items())
    return hashlib.sha256(json.dumps([path, info.get("size"), facts]).encode()).hexdigest()


def _find(store: Any, root: str) -> dict[str, Mapping[str, Any]]:
    """What a store says about each file below a path."""
    from fsspec.asyn import AsyncFileSystem
    from fsspec.spec import AbstractFileSystem

    # the class of a store lists all files at once if it has a method of its own for that
    if type(store).find is not AbstractFileSystem.find or (
        getattr(type(store), "_find", None) not in (None, AsyncFileSystem._find)
    ):
        return store.find(root, detail=True)
    # such a store lists one folder at a time, and its `find` leaves out folders that cannot be read
    found: dict[str, Mapping[str, Any]] = {}
    folders = [root]
    for depth in range(3):
        entries = [entry for folder in folders for entry in store.ls(folder, detail=True)]
        found |= {entry["name"]: entry for entry in entries if entry["type"] != "directory"}
        folders = [
            entry["name"]
            for entry in entries
            for name in [entry["name"].rstrip("/").rpartition("/")[2]]
            if entry["type"] == "directory"
            and (is_version(name) if depth else not name.startswith(".") and name != VOLUME_FOLDER)
        ]
    return found


def one_line(error: BaseException) -> str:
    """The class and text of a library's error."""
    text = " ".join(str(error).split()) or "no reason given"
    return f"{type(error).__name__}: {text}"[:MAX_ERROR_LENGTH]
