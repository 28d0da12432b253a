"""Downloads of public files into the cache; a file appears there only if its checksum is right."""

from __future__ import annotations

import hashlib
import http.client
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from turnpike.common.cache_folder import cache_folder
from turnpike.common.durable_files import WriteError, replacing
from turnpike.common.file_digest import sha256_of
from turnpike.models.errors import DataError

CHUNK_BYTES = 1 << 20
TIMEOUT_SECONDS = 30.0  # longest wait for the next bytes

DownloadProgress = Callable[[str, int, int | None], None]  # file name, bytes so far, total if known


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A public file that never changes.

    Attributes:
        name: File name, the same on all mirrors and in the cache.
        sha256: Its checksum.
        max_bytes: A download that is larger is stopped.
        mirrors: URLs of folders that have the file, ending in "/"; they are tried in this order.
    """

    name: str
    sha256: str
    max_bytes: int
    mirrors: tuple[str, ...]


def data_set_folder(name: str) -> Path:
    """The folder of a data set in the cache folder of this user."""
    try:
        return cache_folder(name)
    except RuntimeError as error:
        raise DataError("expected a home folder for the cache, there is none: set TURNPIKE_CACHE") from error


def fetch(
    remote: RemoteFile,
    folder: Path,
    *,
    progress: DownloadProgress | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> Path:
    """Return the path of a file in `folder`, after downloading it if it is missing or damaged.

    Args:
        remote: The file.
        folder: Where it is kept.
        progress: Called after every chunk.
        timeout: Longest wait for the next bytes, in seconds.
    """
    target = folder / remote.name
    reasons = []
    try:
        if target.is_file() and sha256_of(target) == remote.sha256:
            return target
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{target}: cannot use the cache ({_one_line(error)}); set TURNPIKE_CACHE") from error
    for mirror in remote.mirrors:
        try:
            with replacing(target) as draft:
                _download(mirror + remote.name, draft, remote, progress, timeout)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reasons.append(f"{urlsplit(mirror).hostname}: {_one_line(error)}")
        else:
            return target
    raise DataError(
        f"cannot download {remote.name} ({'; '.join(reasons)}); "
        f"download it by other means and pass its folder as --data-dir"
    )


def _download(
    url: str, draft: Path, remote: RemoteFile, progress: DownloadProgress | None, timeout: float
) -> None:
    """Write the body to `draft`; raise a ValueError if its size or checksum is wrong."""
    digest = hashlib.sha256()
    received = 0
    # the mirrors are constants of this package, so the URL never comes from a caller
    with urllib.request.urlopen(url, timeout=timeout) as response, draft.open("xb") as file:  # noqa: S310
        total = response.length
        while chunk := response.read(CHUNK_BYTES):
            received += len(chunk)
            if received > remote.max_bytes:
                raise ValueError(f"expected at most {remote.max_bytes} bytes, got more")
            digest.update(chunk)
            file.write(chunk)
            if progress is not None:
                progress(remote.name, received, total)
    if total is not None and received < total:
        raise ValueError(f"expected {total} bytes, the connection ended after {received}")
    if digest.hexdigest() != remote.sha256:
        raise ValueError(f"expected sha256 {remote.sha256[:12]}..., got {digest.hexdigest()[:12]}...")


def _one_line(error: BaseException) -> str:
    # errors of the network are OSErrors, too, and would be called errors of writing
    error = (error.__cause__ or error) if isinstance(error, WriteError) else error
    return " ".join(str(error).split()) or type(error).__name__
