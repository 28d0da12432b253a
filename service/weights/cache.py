"""The folder of the cache: one entry for each prepared model, a limit on their size, and locks.

    entries/   a folder for each prepared model, named by the model's digest and what else it depends on
    files/     for each model file that was read: its identity and its digest, so that it is not read again
    unfit/     a file for each model that could not be prepared
    locks/     a process holds one of these while it loads a model file, so that one prepares and others wait

Only this user can open the folder. An entry appears under its name when it is complete, and is removed when
its model's file is gone, or when others need its room.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from turnpike.common.cache_folder import cache_folder
from turnpike.common.durable_files import writing_problem
from turnpike.service.config.settings import Settings
from turnpike.service.weights.entry import Entry
from turnpike.service.weights.preparation import cpu_description
from turnpike.service.weights.private_files import (
    UntrustedError,
    identity_of,
    is_settled,
    make_private_folder,
    network_file_system,
    read_sealed,
    write_sealed,
)

log = logging.getLogger(__name__)

# Smaller files load in less than 40 ms of CPU time without the cache, and have little memory to share.
MIN_MODEL_BYTES = 4 << 20
# An entry has the weights twice: onnxruntime packs those of the file anew to find the packed ones.
SIZE_FACTOR = 2.1
# How long a process waits for another one that loads the same file, and how often it looks.
LOCK_SECONDS, POLL_SECONDS = 60.0, 0.01
# how long a model is not prepared again after that failed
RETRY_SECONDS = 3600
# what the names of unfinished and of removed entries begin with
DRAFT, TRASH = ".draft-", ".trash-"
FOLDER_LOCK = "folder"
# in turnpike's cache folder
FOLDER = "weights"


class ModelSlot:
    """What the cache knows of one model file. No other process loads the file as long as this one has it."""

    def __init__(self, cache: WeightsCache, path: Path, key: str) -> None:
        self.key = key
        self._path, self._record = path, cache.files / f"{key}.json"
        self._identity, self._read_at = identity_of(path.stat()), time.time_ns()

    @property
    def digest(self) -> str | None:
        """The SHA-256 digest of the file; None if it was not read yet, or may have changed since then."""
        record = read_sealed(self._record)
        known = isinstance(record, dict) and record.get("identity") == list(self._identity)
        return str(record["digest"]) if known else None

    def remember(self, digest: str) -> None:
        """Store the digest of the file, which was read after this object was created."""
        settled = is_settled(self._identity, self._read_at)
        identity = list(self._identity) if settled else None
        write_sealed(self._record, {"path": str(self._path), "identity": identity, "digest": digest})


class WeightsCache:
    """The entries in a folder, which is created.

    Args:
        folder: The folder.
        max_bytes: The bytes that all entries may have together.
        cpu: What `cpu_description` says.
        min_model_bytes: The size of the smallest model file that is prepared.
        lock_seconds: How long to wait for another process that loads the same file.

    Raises:
        UntrustedError: The folder is a link, or another user or machine can change it.
        OSError: The folder cannot be created or written.
    """

    def __init__(
        self,
        folder: Path,
        max_bytes: int,
        cpu: str,
        *,
        min_model_bytes: int = MIN_MODEL_BYTES,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self.cpu, self.min_model_bytes = cpu, min_model_bytes
        self._max_bytes, self._lock_seconds = max_bytes, lock_seconds
        self.entries, self.files = folder / "entries", folder / "files"
        self._unfit, self._locks = folder / "unfit", folder / "locks"
        for part in (folder, self.entries, self.files, self._unfit, self._locks):
            make_private_folder(part)
        if (kind := network_file_system(folder)) is not None:
            raise UntrustedError(f"{folder} is on a network ({kind}), where another machine may remove files")
        with self._locked(FOLDER_LOCK, 0):
            pass

    @classmethod
    def from_settings(cls, settings: Settings) -> WeightsCache | None:
        """The cache in the folder of this user; None if the settings turn it off, or it cannot be used."""
        if is_off(settings):
            return None
        cache = _open_cache(settings)
        if isinstance(cache, str):
            log.info("workers do not share weights: %s", cache)
            return None
        return cache

    @contextlib.contextmanager
    def slot(self, path: Path) -> Iterator[ModelSlot | None]:
        """Have this process alone load a file; None if another one has loaded it for too long.

        Raises:
            OSError: The file does not exist, or the cache cannot be written.
        """
        key = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()
        with self._locked(_lock_name(key), self._lock_seconds) as locked:
            yield ModelSlot(self, path.absolute(), key) if locked else None

    def find(self, name: str) -> Entry | None:
        """The entry of this name, not checked yet; None if there is none."""
        entry = Entry(self.entries / name)
        return entry if entry.folder.is_dir() else None

    @contextlib.contextmanager
    def draft(self, slot: ModelSlot, name: str, model_bytes: int) -> Iterator[Entry | None]:
        """A new entry to be filled, which is removed at the end unless it was published.

        None if the model cannot be prepared, or there is no room for it.

        Args:
            slot: The model's file.
            name: The name that the entry will have.
            model_bytes: The size of the file.
        """
        needed, unfit = int(SIZE_FACTOR * model_bytes), self._unfit / name
        if needed > self._max_bytes:
            log.info("weights of %d bytes are not shared: --weights-cache allows less", model_bytes)
        elif 2 * needed > shutil.disk_usage(self.entries).free:
            log.info("weights of %d bytes are not shared: the disk of %s is full", model_bytes, self.entries)
        elif not unfit.exists() or unfit.stat().st_mtime + RETRY_SECONDS < time.time():
            folder = self.entries / f"{DRAFT}{slot.key}"
            # of a process that ended meanwhile
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700)
            try:
                yield Entry(folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return
        yield None

    def publish(self, draft: Entry, name: str) -> Entry:
        """Give a complete draft its name. The entries that were not used for the longest time make room.

        Raises:
            OSError: It cannot be written.
        """
        draft.seal()
        with self._locked(FOLDER_LOCK, self._lock_seconds):
            self.remove(name)
            room = self._max_bytes - draft.size()
            for entry in sorted(self._all(), key=_last_use, reverse=True):
                room -= entry.size()
                if room < 0:
                    self.remove(entry.folder.name)
            draft.folder.rename(self.entries / name)
        (self._unfit / name).unlink(missing_ok=True)
        return Entry(self.entries / name)

    def give_up(self, name: str) -> None:
        """Do not prepare a model again for RETRY_SECONDS."""
        (self._unfit / name).touch(0o600)

    def remove(self, name: str) -> None:
        """Remove an entry. Processes that have mapped its files keep them."""
        trash = self.entries / f"{TRASH}{secrets.token_hex(4)}"
        with contextlib.suppress(OSError):  # there is none, or another process removes it
            (self.entries / name).rename(trash)
            shutil.rmtree(trash, ignore_errors=True)

    def remove_unused(self) -> None:
        """Remove the entries of models whose files are gone, and what killed processes left."""
        with contextlib.suppress(OSError), self._locked(FOLDER_LOCK, 0) as locked:
            if not locked:
                return
            used = set()
            for path in self.files.glob("*.json"):
                record = read_sealed(path)
                if isinstance(record, dict) and os.path.lexists(record["path"]):
                    used.add(record["digest"])
                else:
                    path.unlink(missing_ok=True)
            for entry in self._all():
                if entry.folder.name.partition("-")[0] not in used:
                    self.remove(entry.folder.name)
            for path in self._unfit.iterdir():
                if path.name.partition("-")[0] not in used:
                    path.unlink(missing_ok=True)
            for folder in self.entries.glob(f"{TRASH}*"):
                shutil.rmtree(folder, ignore_errors=True)
            for folder in self.entries.glob(f"{DRAFT}*"):
                with self._locked(_lock_name(folder.name.removeprefix(DRAFT)), 0) as abandoned:
                    if abandoned:
                        shutil.rmtree(folder, ignore_errors=True)

    def _all(self) -> list[Entry]:
        return [Entry(path) for path in self.entries.iterdir() if not path.name.startswith(".")]

    @contextlib.contextmanager
    def _locked(self, name: str, seconds: float) -> Iterator[bool]:
        """Hold a lock for the block; False if another process, or another thread, had it for `seconds`.

        A lock ends with its process.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._locks / name, flags, 0o600)
        try:
            yield _lock(descriptor, seconds)
        finally:
            os.close(descriptor)


def is_off(settings: Settings) -> bool:
    """Whether the settings ask for no cache: other devices have their own form of the weights."""
    return settings.weights_cache == 0 or settings.device != "cpu"


def cache_problem(settings: Settings) -> str | None:
    """Why the settings ask for a cache that cannot be used here; None if they do not, or it can.

    Creates no folder, since no model may be large enough.
    """
    if is_off(settings):
        return None
    with contextlib.suppress(RuntimeError):
        folder = cache_folder(FOLDER)
        if not folder.exists():
            return writing_problem(folder)
    cache = _open_cache(settings)
    return cache if isinstance(cache, str) else None


def _open_cache(settings: Settings) -> WeightsCache | str:
    """The cache in the folder of this user, or why it cannot be used."""
    cpu = cpu_description()
    if cpu is None:
        return "the system does not say what its CPU can do"
    try:
        return WeightsCache(cache_folder(FOLDER), settings.weights_cache, cpu)
    except RuntimeError:
        return "there is no home folder: set TURNPIKE_CACHE"
    except UntrustedError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename} cannot be written ({error.strerror})"


def _lock(descriptor: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)


def _lock_name(key: str) -> str:
    """One of 256 locks, so that their files stay few. Two files seldom share one, and then one waits."""
    return f"{key[:2]}.lock"


def _last_use(entry: Entry) -> int:
    return entry.folder.stat().st_mtime_ns
