"""The cache of files from remote repositories. The name of each file is the SHA-256 digest of its content.

A file appears under its name whole or not at all, so all services of a machine can share the folder. Beside
the files, the cache has the last listing of each repository, for a start while its store cannot be reached.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turnpike.common.cache_folder import cache_folder
from turnpike.common.durable_files import move_durably
from turnpike.common.file_digest import sha256_of
from turnpike.service.errors import SettingError
from turnpike.service.repository.scan import FileIdentity, file_identity

DIGEST_PATTERN = re.compile(r"[0-9a-f]{64}")
DRAFT_PREFIX = ".draft-"


def default_cache_folder() -> Path:
    """`models` in the cache folder of this user."""
    try:
        return cache_folder("models")
    except RuntimeError as error:
        raise SettingError("model_cache: expected a folder, as there is no home folder, got none") from error


class ModelCache:
    """The files and listings in a folder, which is created.

    Raises:
        SettingError: The folder cannot be created.
    """

    def __init__(self, folder: Path) -> None:
        self._files, self._listings = folder / "files", folder / "listings"
        try:
            for part in (self._files, self._listings):
                part.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SettingError(
                f"model_cache: expected a folder that can be written, got {str(folder)!r} ({error.strerror})"
            ) from error

    def path(self, digest: str) -> Path:
        """Where the file with this digest is, or would be."""
        if not DIGEST_PATTERN.fullmatch(digest):
            raise ValueError(f"expected a SHA-256 digest, got {digest!r}")
        return self._files / digest

    def identity(self, digest: str) -> FileIdentity:
        return file_identity(self.path(digest).stat())

    def has(self, digest: str, verified: FileIdentity | None = None) -> bool:
        """Whether the file is there with the content that its name says.

        `verified` is the identity for which that was checked before: such a file is not read again.
        """
        path = self.path(digest)
        try:
            return file_identity(path.stat()) == verified or sha256_of(path) == digest
        except OSError:
            return False

    @contextlib.contextmanager
    def draft(self) -> Iterator[Path]:
        """A new empty file for a download, which is removed at the end unless it was added.

        Its lock shows other processes that somebody still writes it.
        """
        self._remove_abandoned_drafts()
        descriptor, path = self._locked_draft()
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def add(self, draft: Path) -> str:
        """Move a complete draft to its name; returns its digest."""
        digest = sha256_of(draft)
        move_durably(draft, self.path(digest))
        return digest

    def read_listing(self, address: str) -> list[dict[str, Any]]:
        """The objects of a repository as they were stored last; empty if that was never or is damaged."""
        try:
            record = json.loads(self._listing(address).read_text(encoding="utf-8"))
            objects = record["objects"] if record["address"] == address else []
            return [entry for entry in objects if _is_valid(entry)]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def write_listing(self, address: str, objects: list[dict[str, Any]]) -> None:
        """Store the objects of a repository: `name`, `version`, `revision` and `digest` of each."""
        with self.draft() as draft:
            text = json.dumps({"address": address, "objects": objects})
            draft.write_text(text, encoding="utf-8")
            move_durably(draft, self._listing(address))

    def _listing(self, address: str) -> Path:
        return self._listings / f"{hashlib.sha256(address.encode()).hexdigest()}.json"

    def _locked_draft(self) -> tuple[int, Path]:
        while True:
            descriptor, name = tempfile.mkstemp(prefix=DRAFT_PREFIX, dir=self._files)
            with contextlib.suppress(OSError):  # the file system has no locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            path = Path(name)
            # before it was locked, another process may have taken it for an abandoned one
            if path.exists():
                return descriptor, path
            os.close(descriptor)

    def _remove_abandoned_drafts(self) -> None:
        """Remove what downloads left that were killed."""
        for path in self._files.glob(f"{DRAFT_PREFIX}*"):
            with contextlib.suppress(OSError), path.open("rb") as draft:
                fcntl.flock(draft, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _is_valid(entry: Any) -> bool:
    """Whether an entry of a stored listing has the fields that were written."""
    digest = entry["digest"]
    return (
        isinstance(entry["name"], str)
        and isinstance(entry["version"], int)
        and isinstance(entry["revision"], str)
        and (digest is None or bool(DIGEST_PATTERN.fullmatch(digest)))
    )
