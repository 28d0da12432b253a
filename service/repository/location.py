"""The argument of `turnpike serve`: a repository, a run that holds one, or a model, version or file.

Paths come from the command line and the settings alone; no request names one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Protocol

from turnpike.service.errors import SettingError
from turnpike.service.repository.scan import (
    MODEL_FILE,
    ModelFile,
    RepositoryScan,
    file_identity,
    is_version,
    scan,
)

# served if no repository is given
BUNDLED_REPOSITORY = Path(__file__).parents[1] / "default"
# the folder of models in the folder of a run, and the files that training leaves there
RUN_REPOSITORY = "repository"
CHECKPOINTS = ("model.safetensors", "last.safetensors")
# a folder that was probably meant is searched among this many entries, so deep, and this many are named
MAX_SEARCHED, MAX_DEPTH, MAX_SUGGESTIONS = 2000, 3, 3
# an address such as s3://bucket, of which a Path keeps one slash
ADDRESS_AS_PATH = re.compile(r"[a-z][a-z0-9+.-]+:/")
# made by the file system itself at the top of a volume
VOLUME_FOLDER = "lost+found"


@dataclass(frozen=True, slots=True)
class Location:
    """A repository, of which only one model or version may be served, or a file outside of any repository."""

    root: Path
    model: str | None = None
    version: int | None = None
    file: Path | None = None

    def __str__(self) -> str:
        return str(self.root)

    async def find_models(
        self, failed: Collection[ModelFile] = (), *, explicit: bool = False
    ) -> RepositoryScan:
        """The same as `scan`, for callers that also know remote repositories."""
        return self.scan()

    def scan(self) -> RepositoryScan:
        """The models that can be served now.

        Raises:
            SettingError: The repository cannot be read.
        """
        if self.file is None:
            return scan(self.root, self.model, self.version)
        try:
            identity = file_identity(self.file.stat())
        except OSError as error:
            raise SettingError(
                f"models: expected a file that can be read, got {str(self.file)!r} ({error.strerror})"
            ) from error
        name = str(self.model)
        return RepositoryScan({name: (ModelFile(name, 1, self.file, identity),)})

    def other_entries(self) -> list[str]:
        """What a repository holds that cannot become a model: files and folders of other things."""
        return [
            entry.name
            for entry in _entries(self.root)
            if entry.name != VOLUME_FOLDER and not (entry.is_dir() and _may_become_model(entry))
        ]


class HasOtherEntries(Protocol):
    """A repository on this machine or a remote one. Its text is where it is."""

    def other_entries(self) -> list[str]:
        """What it holds that cannot become a model."""


def warning_of_other_folder(repository: HasOtherEntries) -> str:
    """What to say of a repository without models if it looks like a folder of other things, else nothing."""
    others = repository.other_entries()
    if not others:
        return ""
    more = f" and {len(others) - MAX_SUGGESTIONS} more" if len(others) > MAX_SUGGESTIONS else ""
    return (
        f"no model in '{repository}', "
        f"which holds other things ({', '.join(others[:MAX_SUGGESTIONS])}{more}): "
        "if it is the right folder, export a model to it"
    )


def locate(path: Path) -> Location:
    """Find out what a path names.

    Raises:
        SettingError: It names nothing that can be served. The message says what was probably meant.
    """
    got = f"got {str(path)!r}"
    if names_address(path) and not path.exists():
        raise SettingError(
            f"expected a path, {got}: only `turnpike serve` reads remote repositories, "
            "so copy the model to this machine first"
        )
    if path.is_file():
        return _locate_file(path, got)
    if not (path.is_dir() and os.access(path, os.R_OK | os.X_OK)):
        reason = "" if path.exists() else ": there is nothing of that name"
        raise SettingError(f"expected a folder of models that can be read, {got}{reason}")
    if _has_models(path):
        return Location(path)
    resolved = path.resolve()
    if _is_model(resolved):
        return Location(resolved.parent, resolved.name)
    if (path / MODEL_FILE).is_file():
        return _locate_file(path / MODEL_FILE, got)
    if _has_models(path / RUN_REPOSITORY):
        return Location(path / RUN_REPOSITORY)
    if any((path / name).is_file() for name in CHECKPOINTS):
        raise _not_exported(path, got)
    if suggestions := list(islice(_servable_below(path), MAX_SUGGESTIONS)):
        raise SettingError(
            f"expected a folder of models, {got}, which has none of its own; did you mean "
            f"{' or '.join(map(str, suggestions))}?"
        )
    # models may be exported to it later
    return Location(path)


def names_address(path: Path) -> bool:
    """Whether a path was meant as the address of a remote repository."""
    return bool(ADDRESS_AS_PATH.match(str(path)))


def _locate_file(path: Path, got: str) -> Location:
    if path.name in CHECKPOINTS:
        raise _not_exported(path.parent, got)
    if path.suffix != ".onnx":
        raise SettingError(f"expected a folder of models or an .onnx file, {got}")
    if not os.access(path, os.R_OK):
        raise SettingError(f"expected a file that can be read, {got}")
    path = path.resolve()
    version, folder = path.parent.name, path.parent.parent
    if path.name == MODEL_FILE and is_version(version) and folder.name:
        return Location(folder.parent, folder.name, int(version))
    name = path.parent.name if path.name == MODEL_FILE else path.stem
    return Location(path.parent, name or path.stem, file=path)


def _not_exported(run: Path, got: str) -> SettingError:
    # `turnpike serve` reads the folder of the run next time, too
    return SettingError(
        f"expected a folder of models, {got}, which was trained and not exported: "
        f"turnpike export {run} --to {run / RUN_REPOSITORY}"
    )


def _servable_below(path: Path) -> Iterator[Path]:
    """The .onnx files, repositories and runs below a folder, the nearest first."""
    level = [path]
    left = MAX_SEARCHED
    for _ in range(MAX_DEPTH):
        folders = []
        for entry in chain.from_iterable(map(_entries, level)):
            left -= 1
            if left < 0:
                return
            if _is_servable(entry):
                yield entry
            elif entry.is_dir():
                folders.append(entry)
        level = folders


def _is_servable(entry: Path) -> bool:
    if not entry.is_dir():
        return entry.suffix == ".onnx"
    is_run = any((entry / name).is_file() for name in CHECKPOINTS)
    return is_run or _has_models(entry) or _has_models(entry / RUN_REPOSITORY)


def _has_models(path: Path) -> bool:
    """Whether a folder is a repository with a model."""
    return any(map(_is_model, _subfolders(path)))


def _subfolders(folder: Path) -> list[Path]:
    return [entry for entry in islice(_entries(folder), MAX_SEARCHED) if entry.is_dir()]


def _entries(folder: Path) -> list[Path]:
    """The entries of a folder in order, without hidden ones; none if it is no folder that can be read."""
    try:
        return sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError:
        return []


def _is_model(folder: Path) -> bool:
    """Whether a folder is that of a model: it holds versions with a file each."""
    return any(is_version(entry.name) and (entry / MODEL_FILE).exists() for entry in _entries(folder))


def _may_become_model(folder: Path) -> bool:
    """Whether a folder is empty or holds versions, whose files may come later."""
    entries = _entries(folder)
    return not entries or any(is_version(entry.name) for entry in entries)
