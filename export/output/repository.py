"""Writes model files to `<repository>/<name>/<version>/model.onnx`, the layout that Triton reads too."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from turnpike.common.durable_files import replacing_all, writing_problem
from turnpike.export.errors import ExportError, UsageError
from turnpike.export.output.model_bytes import embed_manifest
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.onnx_file.protobuf import content_digest
from turnpike.service.artifact.runtime import open_model
from turnpike.service.artifact.sample_rows import check_sample_rows

MODEL_FILE = "model.onnx"
# the twin without gates beside it, which neither our service nor Triton loads
PLAIN_FILE = "plain.onnx"


@dataclass(frozen=True)
class PlainTwin:
    """A proved graph without gates and levers, and its manifest."""

    manifest: Manifest
    data: bytes


# what happens to a version that exists already
IfTaken = Literal["next", "refuse", "replace"]


@dataclass(frozen=True)
class WrittenModel:
    """A file in the repository, and its plain twin if there is one to write.

    `written` is False if the identical file existed already.
    """

    path: Path
    manifest: Manifest
    written: bool
    plain: Path | None = None


def expect_version(version: int) -> int:
    """The version, or a UsageError unless it is a positive 31-bit number."""
    if not 1 <= version < 2**31:
        raise UsageError(f"--version: expected a whole number from 1, got {version}")
    return version


def expect_writable(folder: Path, option: str) -> Path:
    """The folder, or a UsageError if nothing can be written into it."""
    if problem := writing_problem(folder):
        raise UsageError(f"{option}: expected a folder that can be written, got {folder}: {problem}")
    return folder


def model_path(repository: Path, name: str, version: int) -> Path:
    return repository / name / str(version) / MODEL_FILE


def newest_version(repository: Path, name: str) -> int:
    """The highest version of a model in the repository; 0 if there is none."""
    folder = repository / name
    if not folder.is_dir():
        return 0
    versions = [int(path.name) for path in folder.iterdir() if re.fullmatch(r"[1-9][0-9]{0,9}", path.name)]
    return max(versions, default=0)


def expect_free_version(repository: Path, name: str, version: int, forms: Sequence[bytes]) -> None:
    """Raise a UsageError if the version is the file of none of these graphs, before a proof takes time."""
    path = model_path(repository, name, version)
    try:
        is_same = not path.exists() or content_digest(path.read_bytes()) in map(content_digest, forms)
    except ValueError:  # no model file at all
        is_same = False
    if not is_same:
        raise taken_version(path, version)


def taken_version(path: Path, version: int) -> UsageError:
    return UsageError(
        f"--version {version}: {path} exists, and this export makes another file: give --name if it is "
        "another model, leave out --version to write the next free version, or add --replace"
    )


def write_model(
    repository: Path, manifest: Manifest, data: bytes, *, if_taken: IfTaken, plain: PlainTwin | None = None
) -> WrittenModel:
    """Write a proved graph with its manifest to the manifest's version.

    A twin of a file that is replaced goes with it.

    Args:
        repository: Folder of the repository.
        manifest: The manifest to embed.
        data: The serialized graph.
        if_taken: What to do if that version exists and differs: write the "next" version, "refuse" with a
            UsageError, or "replace" it.
        plain: The twin to write beside the file.

    Returns:
        The path, the manifest with its final version and digest, and whether the file is new.
    """
    path = model_path(repository, manifest.name, manifest.version)
    manifest = manifest.model_copy(update={"content": content_digest(data)})
    complete = embed_manifest(data, manifest)
    is_same = path.is_file() and path.read_bytes() == complete
    if if_taken == "refuse" and path.exists() and not is_same:
        raise taken_version(path, manifest.version)
    if if_taken == "next" and path.exists() and not is_same:
        next_version = manifest.model_copy(update={"version": manifest.version + 1})
        return write_model(repository, next_version, data, if_taken="next", plain=plain)
    files, manifests = {path: complete}, {path: manifest}
    plain_path = path.with_name(PLAIN_FILE)
    if plain is not None:
        update = {"version": manifest.version, "content": content_digest(plain.data)}
        manifests[plain_path] = plain.manifest.model_copy(update=update)
        files[plain_path] = embed_manifest(plain.data, manifests[plain_path])
    changed = {
        file: content
        for file, content in files.items()
        if not (file.is_file() and file.read_bytes() == content)
    }
    if changed:
        write_checked(changed, lambda draft, file: expect_service_opens(draft, manifests[file]))
    return WrittenModel(path, manifest, path in changed, None if plain is None else plain_path)


def write_checked(files: Mapping[Path, bytes], check: Callable[[Path, Path], None]) -> None:
    """Write files of one folder that belong together to drafts, check these, and move all into place.

    Args:
        files: The content of each file.
        check: Is called with each draft and the file that it becomes.
    """
    with replacing_all(*files) as drafts:
        for draft, (path, content) in zip(drafts, files.items(), strict=True):
            draft.write_bytes(content)
            check(draft, path)
        for path in files:
            if path.name == MODEL_FILE:  # never beside the twin of another model, not even for a moment
                path.with_name(PLAIN_FILE).unlink(missing_ok=True)


def expect_service_opens(draft: Path, manifest: Manifest) -> None:
    """Raise an ExportError unless the service reads from the written file what was put into it."""
    runtime = open_model(draft)
    if runtime.manifest != manifest:
        raise ExportError(f"{draft}: the manifest read back differs from the one that was written")
    if manifest.plain and (extra := [tensor.name for tensor in (*runtime.levers, *runtime.hidden)]):
        raise ExportError(f"{draft}: expected a file without gates and levers, got {', '.join(extra)}")
    try:
        check_sample_rows(manifest, {tensor.name: tensor for tensor in runtime.inputs})
    except ValueError as error:
        raise ExportError(f"{draft}: {error}") from error
    if content_digest(draft.read_bytes()) != manifest.content:
        raise ExportError(f"{draft}: the graph read back differs from the one that was proved")
