"""Where a file goes: `<repository>/<name>/<version>/model.onnx`, the layout that Triton reads too."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from export.errors import ExportError, RequestError
from export.output.model_bytes import embed_manifest
from models.atomic import replacing
from service.artifact.manifest import Manifest
from service.artifact.protobuf import content_digest
from service.artifact.runtime import open_model
from service.artifact.sample_rows import check_sample_rows


def write_checked(path: Path, data: bytes, check: Callable[[Path], None]) -> None:
    """Write the bytes beside `path`, check the file that they made, and put it in place.

    Whatever stops it, the old file stays, and no folder is left that was not there.
    """
    with created_folders(path.parent), replacing(path) as draft:
        draft.write_bytes(data)
        check(draft)


@contextlib.contextmanager
def created_folders(folder: Path) -> Iterator[None]:
    """Make a folder and those above it, and take those that were made away again if the block fails."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for one in made:
            with contextlib.suppress(OSError):  # not made yet, or in use by someone else by now
                one.rmdir()
        raise


MODEL_FILE = "model.onnx"


def expect_version(version: int) -> int:
    """The version, or a RequestError unless it counts from 1."""
    if not 1 <= version < 2**31:
        raise RequestError(f"--version: expected a whole number from 1, got {version}")
    return version


def expect_repository(repository: Path) -> Path:
    """The repository, or a RequestError where a file stands in its place."""
    for folder in (repository, *repository.parents):
        if folder.exists():
            if not folder.is_dir():
                raise RequestError(f"--to: expected a folder, and {folder} is a file")
            break
    return repository


def model_path(repository: Path, name: str, version: int) -> Path:
    return repository / name / str(version) / MODEL_FILE


def newest_version(repository: Path, name: str) -> int:
    """The highest version that is there, 0 where there is none."""
    folder = repository / name
    if not folder.is_dir():
        return 0
    found = [int(entry.name) for entry in folder.iterdir() if re.fullmatch(r"[1-9][0-9]{0,9}", entry.name)]
    return max(found, default=0)


@dataclass(frozen=True)
class WrittenModel:
    """Where a file came to stand; `written` is False where the very same file stood there already."""

    path: Path
    manifest: Manifest
    written: bool


def write_model(repository: Path, manifest: Manifest, data: bytes, *, next_free: bool) -> WrittenModel:
    """Write a proved graph with its manifest.

    With `next_free`, a newest version that is another file stays, and this one takes the version after it.
    """
    path = model_path(repository, manifest.name, manifest.version)
    manifest = manifest.model_copy(update={"content": content_digest(data)})
    sealed = embed_manifest(data, manifest)
    if path.is_file() and path.read_bytes() == sealed:
        return WrittenModel(path, manifest, written=False)
    if next_free and path.exists():
        return write_model(
            repository,
            manifest.model_copy(update={"version": manifest.version + 1}),
            data,
            next_free=False,
        )
    write_checked(path, sealed, lambda draft: expect_service_opens(draft, manifest))
    return WrittenModel(path, manifest, written=True)


def expect_service_opens(draft: Path, manifest: Manifest) -> None:
    """Stop with an ExportError unless the service reads from the written file what was put into it."""
    runtime = open_model(draft)
    if runtime.manifest != manifest:
        raise ExportError(f"{draft}: the manifest read back is not the one that was written")
    try:
        check_sample_rows(manifest, {tensor.name: tensor for tensor in runtime.inputs})
    except ValueError as error:
        raise ExportError(f"{draft}: {error}") from error
    if content_digest(draft.read_bytes()) != manifest.content:
        raise ExportError(f"{draft}: the graph read back is not the one that was proved")
