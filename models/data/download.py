"""Fetch a public file into the cache, and let it appear there only when its checksum is right."""

from __future__ import annotations

import hashlib
import http.client
import os
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from models.errors import DataError

CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 30.0  # seconds without a byte

DownloadProgress = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in all where known


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file that never changes, the folders (URLs that end in /) that have it, and its greatest size."""

    name: str
    sha256: str
    most_bytes: int
    mirrors: tuple[str, ...]


def cache_folder(name: str) -> Path:
    """Where a data set is kept: in TURNPIKE_CACHE, XDG_CACHE_HOME/turnpike or ~/.cache/turnpike."""
    own = os.environ.get("TURNPIKE_CACHE")
    if own:
        return Path(own) / name
    shared = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # the XDG specification says to ignore relative paths
        root = Path(shared) if Path(shared).is_absolute() else Path.home() / ".cache"
    except RuntimeError as exc:
        raise DataError("expected a home folder for the cache, there is none: set TURNPIKE_CACHE") from exc
    return root / "turnpike" / name


def fetch(
    remote: RemoteFile,
    folder: Path,
    *,
    progress: DownloadProgress | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> Path:
    """The file in `folder`: the one already there if its checksum is right, else the first good download."""
    target = folder / remote.name
    reasons = []
    try:
        if target.is_file() and sha256_of(target) == remote.sha256:
            return target
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise DataError(f"{target}: cannot use the cache ({_one_line(exc)}); set TURNPIKE_CACHE") from exc
    for mirror in remote.mirrors:
        part = folder / f".{remote.name}.{uuid.uuid4().hex}.part"
        try:
            _download(mirror + remote.name, part, remote, progress, timeout)
            part.replace(target)
        except (OSError, http.client.HTTPException, ValueError) as exc:
            reasons.append(f"{urlsplit(mirror).hostname}: {_one_line(exc)}")
        else:
            return target
        finally:
            part.unlink(missing_ok=True)
    raise DataError(
        f"cannot download {remote.name} ({'; '.join(reasons)}); "
        f"get it by other means and name its folder with --data-dir"
    )


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(
    url: str, part: Path, remote: RemoteFile, progress: DownloadProgress | None, timeout: float
) -> None:
    """Write the body to `part`; a ValueError says what is wrong with it."""
    digest = hashlib.sha256()
    done = 0
    # the mirrors are constants of this package, never a caller's word
    with urllib.request.urlopen(url, timeout=timeout) as response, part.open("xb") as file:  # noqa: S310
        total = response.length
        while chunk := response.read(CHUNK_BYTES):
            done += len(chunk)
            if done > remote.most_bytes:
                raise ValueError(f"expected at most {remote.most_bytes} bytes, got more")
            digest.update(chunk)
            file.write(chunk)
            if progress is not None:
                progress(remote.name, done, total)
    if total is not None and done < total:
        raise ValueError(f"expected {total} bytes, the connection ended after {done}")
    if digest.hexdigest() != remote.sha256:
        raise ValueError(f"expected sha256 {remote.sha256[:12]}..., got {digest.hexdigest()[:12]}...")


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__
