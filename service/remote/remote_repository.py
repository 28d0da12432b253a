"""A repository on object storage, such as s3://bucket/models: what it has now, as files of the local cache.

This part runs in the supervisor, which forks workers and should stay small. So a child process
(`fetch.py`) uses the libraries of the store, and is killed if it is silent for too long.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

from turnpike.service.child_process import child_process
from turnpike.service.errors import SettingError, StoreError
from turnpike.service.remote.model_cache import ModelCache, default_cache_folder
from turnpike.service.repository.location import BUNDLED_REPOSITORY, Location, locate
from turnpike.service.repository.scan import FileIdentity, ModelFile, RepositoryScan, SkippedPath

log = logging.getLogger(__name__)

# a child that prints more is not ours
MAX_ANSWER_BYTES = 64 << 20


def open_repository(
    models: Path | str | None, policy: str, cache: Path | None, silence_limit: float
) -> Location | RemoteRepository:
    """The repository at a path or an address; the bundled one for None.

    Raises:
        SettingError: The path names nothing that can be served.
    """
    if isinstance(models, str):
        return RemoteRepository(models, policy, cache, silence_limit)
    return locate(models or BUNDLED_REPOSITORY)


class RemoteRepository:
    """The models at an address. Files that are served are downloaded to a cache.

    Args:
        address: The address.
        policy: Which versions to serve, as `VersionPolicy.parse` takes it. Others are not downloaded.
        cache: The folder of the cache; None for the usual one.
        silence_limit: Seconds without a sign of progress after which a scan is given up.
    """

    def __init__(self, address: str, policy: str, cache: Path | None, silence_limit: float) -> None:
        self.address = address
        self._policy = policy
        self._cache_folder = (cache or default_cache_folder()).absolute()
        self._cache = ModelCache(self._cache_folder)
        self._silence_limit = silence_limit
        # identities of cached files whose digest was checked since the start
        self._verified: dict[str, FileIdentity] = {}
        # reasons why files were refused, by the revision of each
        self._damaged: dict[str, str] = {}
        self._others: list[str] = []
        # sentences of the last scan, so that a poll does not log them again and again
        self._notes: list[str] = []
        self._has_listed = False

    def __str__(self) -> str:
        return self.address

    def other_entries(self) -> list[str]:
        """What the repository held at the last scan that cannot become a model."""
        return self._others

    async def find_models(
        self, failed: Collection[ModelFile] = (), *, explicit: bool = False
    ) -> RepositoryScan:
        """The models that can be served now.

        Until the store was listed once, its last listing and the files in the cache do in its place.

        Args:
            failed: Files that workers could not load. Older versions are downloaded as well.
            explicit: True to download files again that were refused as damaged.

        Raises:
            StoreError: The store cannot be listed, or was silent for too long.
            SettingError: A library is missing, or the address makes no sense.
        """
        if explicit:
            self._damaged = {}
        digests = [file.path.name for file in failed]
        try:
            answer = await self._fetch(digests, offline=False)
        except StoreError as error:
            if self._has_listed:
                raise
            try:
                answer = await self._fetch(digests, offline=True)
            except StoreError:
                raise error from None
            log.warning("the models of the last listing are served from %s: %s", self._cache_folder, error)
        self._has_listed = True
        self._damaged, self._others = answer["damaged"], answer["others"]
        for note in answer["notes"]:
            if explicit or note not in self._notes:
                log.warning("%s", note)
        self._notes = answer["notes"]
        models = {
            name: tuple(
                ModelFile(name, version, self._cache.path(digest), tuple(identity))
                for version, digest, identity in files
            )
            for name, files in answer["models"].items()
        }
        self._verified = {file.path.name: file.identity for files in models.values() for file in files}
        return RepositoryScan(
            models={name: files for name, files in models.items() if files},
            skipped=tuple(SkippedPath(*path) for path in answer["skipped"]),
            unfetched={name: tuple(versions) for name, versions in answer["unfetched"].items() if versions},
        )

    async def _fetch(self, failed: list[str], *, offline: bool) -> dict[str, Any]:
        """The answer of a child process to a request."""
        request = {
            "address": self.address,
            "cache": str(self._cache_folder),
            "policy": self._policy,
            "offline": offline,
            "verified": self._verified,
            "failed": failed,
            "damaged": self._damaged,
        }
        try:
            async with child_process("turnpike.service.remote.fetch", json.dumps(request).encode()) as child:
                output = await self._read_all(child.output)
        except OSError as error:
            raise StoreError(
                f"models: expected a process that lists {self.address!r}, and none can be started ({error})"
            ) from error
        line = output.rstrip().rpartition(b"\n")[2]
        try:
            answer = json.loads(line)
        except ValueError:
            text = line.decode(errors="replace")[:300]
            raise StoreError(
                f"models: expected a listing of {self.address!r}, and the process that lists it ended "
                f"without one: {text or 'it printed nothing'}"
            ) from None
        if "setting_error" in answer:
            raise SettingError(answer["setting_error"])
        if "store_error" in answer:
            raise StoreError(answer["store_error"])
        return answer

    async def _read_all(self, output: asyncio.StreamReader) -> bytes:
        """Everything that the child prints, unless nothing comes for too long."""
        received = bytearray()
        while True:
            try:
                async with asyncio.timeout(self._silence_limit):
                    chunk = await output.read(1 << 16)
            except TimeoutError:
                raise StoreError(
                    f"models: expected a sign of progress from {self.address!r} within "
                    f"{self._silence_limit:g} s (--store-seconds), got none"
                ) from None
            if not chunk:
                return bytes(received)
            received += chunk
            if len(received) > MAX_ANSWER_BYTES:
                raise StoreError(
                    f"models: expected a listing of at most {MAX_ANSWER_BYTES} bytes for {self.address!r}, "
                    "got more"
                )
