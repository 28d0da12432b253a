"""Lists a remote repository through fsspec, and downloads to the cache what the service serves of it.

`RemoteRepository` runs `main` in a short-lived process: libraries of stores take memory and start threads,
and a store may never answer. The request comes from standard input as one JSON object, and the last line of
the output is one, too. Empty lines before it are signs of progress.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turnpike.service.artifact.manifest import METADATA_KEY
from turnpike.service.artifact.onnx_file.protobuf import content_digest, read_metadata
from turnpike.service.errors import ModelFileError, SettingError, StoreError
from turnpike.service.memory.process_limit import offer_to_oom_killer
from turnpike.service.remote.listing import (
    Listing,
    RemoteFile,
    current_revision,
    list_repository,
    one_line,
    open_store,
)
from turnpike.service.remote.model_cache import ModelCache
from turnpike.service.repository.scan import MAX_FILE_BYTES, FileIdentity, SkippedPath, VersionPolicy

# between two looks at a download
PROGRESS_SECONDS = 0.5
# requests have priority over a scan
NICENESS = 10
# Failed downloads in a row after which a scan tries no others: the store has failed, and each takes long.
MAX_FAILED_DOWNLOADS = 3


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What `RemoteRepository` asks for.

    Args:
        address: The repository.
        cache: The folder of the cache.
        policy: Which versions are served, as `VersionPolicy.parse` takes it.
        offline: Use the last listing and the files in the cache.
        verified: Identities of cached files that need not be read again, by digest.
        failed: Digests of files that workers could not load. An older version is downloaded, too.
        damaged: Reasons why a download was refused, by revision. It is not downloaded again.
    """

    address: str
    cache: Path
    policy: str
    offline: bool
    verified: Mapping[str, FileIdentity]
    failed: frozenset[str]
    damaged: Mapping[str, str]

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> FetchRequest:
        return cls(
            address=record["address"],
            cache=Path(record["cache"]),
            policy=record["policy"],
            offline=record["offline"],
            verified={digest: tuple(identity) for digest, identity in record["verified"].items()},
            failed=frozenset(record["failed"]),
            damaged=record["damaged"],
        )


class DamagedError(ModelFileError):
    """A download that is complete, and is not the file that its manifest describes."""


def main() -> None:
    """Answer the request of standard input."""
    record = json.load(sys.stdin)
    os.nice(NICENESS)
    offer_to_oom_killer()
    try:
        answer = fetch(FetchRequest.from_json(record))
    except StoreError as error:
        answer = {"store_error": str(error)}
    except SettingError as error:
        answer = {"setting_error": str(error)}
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
    sys.stdout.flush()
    # leaves out what libraries do at the end, which may wait for the store
    os._exit(0)


def fetch(request: FetchRequest) -> dict[str, Any]:
    """The answer to a request, as JSON: models, the versions that were left out, and problems.

    Raises:
        StoreError: The repository cannot be listed.
        SettingError: A library is missing, or the address makes no sense.
    """
    return _Fetch(request).run()


class _Fetch:
    """One listing, with the downloads that follow from it."""

    def __init__(self, request: FetchRequest) -> None:
        self._request = request
        self._cache = ModelCache(request.cache)
        # what was stored of each model and version when the repository was listed last
        self._stored = {
            (entry["name"], entry["version"]): entry for entry in self._cache.read_listing(request.address)
        }
        self._skipped: list[SkippedPath] = []
        self._damaged: dict[str, str] = {}
        # sentences for the log
        self._notes: list[str] = []
        self._store: Any = None
        self._listing = Listing(())
        # downloads in a row
        self._failed_downloads = 0

    def run(self) -> dict[str, Any]:
        # list what there is
        if self._request.offline:
            listing = self._stored_listing()
        else:
            self._store, root = open_store(self._request.address)
            listing = list_repository(self._store, root, self._request.address)
        self._listing = listing
        # download, model by model
        policy = VersionPolicy.parse(self._request.policy)
        models: dict[str, list[tuple[int, str, FileIdentity]]] = {}
        digests: dict[RemoteFile, str] = {}
        for name in sorted({file.name for file in listing.files}):
            files = [file for file in listing.files if file.name == name]
            digests |= self._obtain_chosen(files, policy)
            models[name] = [
                (file.version, digests[file], self._cache.identity(digests[file]))
                for file in files
                if file in digests
            ]
        # remember
        if not self._request.offline:
            self._store_listing()
        skipped = [*listing.skipped, *self._skipped]
        known = {(file.name, file.version) for file in digests} | {
            (path.name, path.version) for path in skipped
        }
        unfetched = [file for file in listing.files if (file.name, file.version) not in known]
        return {
            "models": models,
            "unfetched": {name: [file.version for file in unfetched if file.name == name] for name in models},
            "skipped": [[path.name, path.version, path.reason] for path in skipped],
            "damaged": self._damaged,
            "others": listing.others,
            "notes": self._notes,
        }

    def _stored_listing(self) -> Listing:
        files = [
            RemoteFile(name, version, "", None, entry["revision"])
            for (name, version), entry in self._stored.items()
        ]
        if not any(entry["digest"] for entry in self._stored.values()):
            raise StoreError(f"models: expected files of {self._request.address!r} in the cache, got none")
        return Listing(tuple(sorted(files, key=lambda file: file.version)))

    def _obtain_chosen(self, files: list[RemoteFile], policy: VersionPolicy) -> dict[RemoteFile, str]:
        """The digests of the files of a model that are served. Older ones replace those that cannot be."""
        digests: dict[RemoteFile, str] = {}
        unusable: set[RemoteFile] = set()
        while True:
            missing = [
                file
                for file in policy.choose([file for file in files if file not in unusable])
                if file not in digests
            ]
            if not missing:
                return digests
            for file in missing:
                digest = self._obtain(file)
                if digest is not None:
                    digests[file] = digest
                if digest is None or digest in self._request.failed:
                    unusable.add(file)

    def _obtain(self, file: RemoteFile) -> str | None:
        """The digest of a file that is in the cache now; None if there is none.

        If a new file cannot be downloaded, the old one stays.
        """
        _report_progress()
        key = (file.name, file.version)
        entry = self._stored.get(key, {"revision": "", "digest": None})
        digest = entry["digest"]
        if digest and not self._cache.has(digest, self._request.verified.get(digest)):
            self._notes.append(f"{self._where(file)}: its file in the cache is missing or damaged")
            digest = None
        if digest and entry["revision"] == file.revision:
            return digest
        reason = "its file is not in the cache" if self._request.offline else self._refusal(file)
        if reason is None:
            try:
                new_digest = self._download(file)
            except ModelFileError as error:
                reason = error.public_message
                self._notes.append(str(error))
                if isinstance(error, DamagedError):
                    self._damaged[file.revision] = reason
                # those say something about one file, and not about the store
                elif not isinstance(error.__cause__, PermissionError | FileNotFoundError):
                    self._failed_downloads += 1
            else:
                self._failed_downloads = 0
                self._stored[key] = _entry(file, new_digest)
                # a scan that is killed later has not downloaded it in vain
                self._store_listing()
                return new_digest
        self._skipped.append(SkippedPath(file.name, file.version, reason))
        return digest

    def _refusal(self, file: RemoteFile) -> str | None:
        """Why a file is not downloaded, None if it should be."""
        if file.size is not None and file.size > MAX_FILE_BYTES:
            return "its file is larger than 2 GiB"
        if self._failed_downloads >= MAX_FAILED_DOWNLOADS:
            return "its file was not downloaded, as other downloads failed"
        reason = self._request.damaged.get(file.revision)
        if reason is not None:
            self._damaged[file.revision] = reason
        return reason

    def _download(self, file: RemoteFile) -> str:
        """Download a file and add it to the cache; returns its digest.

        Raises:
            ModelFileError: The download fails.
            DamagedError: What came is not the file that its manifest describes.
        """
        where = self._where(file)
        with self._cache.draft() as draft:
            try:
                with _progress_of(draft):
                    self._store.get_file(file.path, str(draft))
                    revision = current_revision(self._store, file.path)
            except Exception as error:
                raise ModelFileError(
                    f"{where}: expected a file that can be downloaded ({one_line(error)})",
                    "its file cannot be downloaded",
                ) from error
            size = draft.stat().st_size
            if file.size is not None and size != file.size:
                raise ModelFileError(
                    f"{where}: expected the {file.size} bytes that are listed, got {size}",
                    "its download was incomplete",
                )
            # parts of two files may have come
            if revision != file.revision:
                raise ModelFileError(
                    f"{where}: expected the file that was listed, and it has changed since then",
                    "its file changed while it was downloaded",
                )
            expect_own_content(draft, where)
            _report_progress()
            try:
                return self._cache.add(draft)
            except OSError as error:
                raise ModelFileError(
                    f"{where}: expected room in the cache ({error.strerror})", "its file cannot be stored"
                ) from error

    def _store_listing(self) -> None:
        """Store what is listed. A file that was not downloaded again keeps its old revision and digest."""
        entries = [
            self._stored.get((file.name, file.version)) or _entry(file, None) for file in self._listing.files
        ]
        if entries != self._cache.read_listing(self._request.address):
            try:
                self._cache.write_listing(self._request.address, entries)
            except OSError as error:
                self._notes.append(f"{self._request.address}: its listing cannot be stored ({error})")

    def _where(self, file: RemoteFile) -> str:
        return f"{self._request.address}: {file.name}/{file.version}"


def expect_own_content(path: Path, where: str) -> None:
    """Raise a DamagedError if a file is no model file, or another one than its manifest describes."""
    try:
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        expected, digest = _manifest_content(data), content_digest(data)
    except (OSError, ValueError) as error:
        raise DamagedError(
            f"{where}: expected a model file, got something else ({error})", "its file is damaged"
        ) from error
    if expected and expected != digest:
        raise DamagedError(
            f"{where}: expected the graph and weights of its manifest, with digest {expected[:12]}, "
            f"got {digest[:12]}: the file or its download is damaged",
            "its graph or weights are not those of its manifest",
        )


def _manifest_content(data: memoryview) -> str:
    """The digest in the manifest of a file, empty if there is none; the loader checks the rest of it."""
    text = read_metadata(data, METADATA_KEY)
    manifest = None if text is None else json.loads(bytes(text))
    content = manifest.get("content") if isinstance(manifest, dict) else None
    return content if isinstance(content, str) else ""


def _entry(file: RemoteFile, digest: str | None) -> dict[str, Any]:
    return {"name": file.name, "version": file.version, "revision": file.revision, "digest": digest}


def _report_progress() -> None:
    """Show the service that something happens: silence ends this process."""
    with contextlib.suppress(OSError):
        os.write(1, b"\n")


@contextlib.contextmanager
def _progress_of(draft: Path) -> Iterator[None]:
    """Report progress while a file is written. Few libraries can do so themselves."""
    ended = threading.Event()

    def watch() -> None:
        # the size may be the final one from the start
        written = 0
        while not ended.wait(PROGRESS_SECONDS):
            with contextlib.suppress(OSError):
                before, written = written, draft.stat().st_mtime_ns
                if written != before:
                    _report_progress()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
