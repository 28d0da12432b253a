"""Writes model files to `<repository>/<name>/<version>/model.onnx`, the layout that Triton reads too."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from export.errors import ExportError, UsageError
from export.output.model_bytes import embed_manifest
from models.atomic import replacing
from service.artifact.manifest import Manifest
from service.artifact.protobuf import content_digest
from service.artifact.runtime import open_model
from service.artifact.sample_rows import check_sample_rows

MODEL_FILE = "model.onnx"


@dataclass(frozen=True)
class WrittenModel:
    """A file in the repository; `written` is False if the identical file existed already."""

    path: Path
    manifest: Manifest
    written: bool


def expect_version(version: int) -> int:
    """The version, or a UsageError unless it is a positive 31-bit number."""
    if not 1 <= version < 2**31:
        raise UsageError(f"--version: expected a whole number from 1, got {version}")
    return version


def expect_repository(repository: Path) -> Path:
    """The repository, or a UsageError if it or a parent is a file."""
    for folder in (repository, *repository.parents):
        if folder.exists():
            if not folder.is_dir():
                raise UsageError(f"--to: expected a folder, and {folder} is a file")
            break
    return repository


def model_path(repository: Path, name: str, version: int) -> Path:
    return repository / name / str(version) / MODEL_FILE


def newest_version(repository: Path, name: str) -> int:
    """The highest version of a model in the repository; 0 if there is none."""
    folder = repository / name
    if not folder.is_dir():
        return 0
    versions = [int(path.name) for path in folder.iterdir() if re.fullmatch(r"[1-9][0-9]{0,9}", path.name)]
    return max(versions, default=0)


def write_model(repository: Path, manifest: Manifest, data: bytes, *, next_free: bool) -> WrittenModel:
    """Write a proved graph with its manifest to the manifest's version.

    Args:
        repository: Folder of the repository.
        manifest: The manifest to embed.
        data: The serialized graph.
        next_free: If that version exists and differs, keep it and write the version after it instead of
            replacing it.

    Returns:
        The path, the manifest with its final version and digest, and whether the file is new.
    """
    path = model_path(repository, manifest.name, manifest.version)
    manifest = manifest.model_copy(update={"content": content_digest(data)})
    complete = embed_manifest(data, manifest)
    if path.is_file() and path.read_bytes() == complete:
        return WrittenModel(path, manifest, written=False)
    if next_free and path.exists():
        next_version = manifest.model_copy(update={"version": manifest.version + 1})
        return write_model(repository, next_version, data, next_free=False)
    write_checked(path, complete, lambda draft: expect_service_opens(draft, manifest))
    return WrittenModel(path, manifest, written=True)


def write_checked(path: Path, data: bytes, check: Callable[[Path], None]) -> None:
    """Write the bytes to a draft beside `path`, check the draft, and move it into place.

    If anything fails, an existing file stays as it is, and folders created here are removed.
    """
    with created_folders(path.parent), replacing(path) as draft:
        draft.write_bytes(data)
        check(draft)


@contextlib.contextmanager
def created_folders(folder: Path) -> Iterator[None]:
    """Create a folder and its parents, and remove those that were created again if the block fails."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):  # not created yet, or used by another process by now
                path.rmdir()
        raise


def expect_service_opens(draft: Path, manifest: Manifest) -> None:
    """Raise an ExportError unless the service reads from the written file what was put into it."""
    runtime = open_model(draft)
    if runtime.manifest != manifest:
        raise ExportError(f"{draft}: the manifest read back differs from the one that was written")
    try:
        check_sample_rows(manifest, {tensor.name: tensor for tensor in runtime.inputs})
    except ValueError as error:
        raise ExportError(f"{draft}: {error}") from error
    if content_digest(draft.read_bytes()) != manifest.content:
        raise ExportError(f"{draft}: the graph read back differs from the one that was proved")
