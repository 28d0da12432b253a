"""What is tuned for: a model that lies in a repository, or in one that is made for it here."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import service
from service.repository.scan import MODEL_FILE, VERSION_PATTERN, VersionPolicy, scan
from tune.errors import UsageError

BUNDLED = Path(service.__file__).parent / "default"


@dataclass(frozen=True, slots=True)
class Subject:
    """The model that is loaded, its file, and the repository that is served; None for the bundled one."""

    name: str
    file: Path
    repository: Path | None


def subject(models: Path | None, wanted: str | None, versions: str, scratch: Path) -> Subject:
    """The model that is meant; a UsageError where there is none, or more than one to choose from."""
    if models is not None and not models.is_dir():
        models = repository_of(models, scratch)
    found = scan(models or BUNDLED).models
    chosen = {
        name: one[-1] for name, all_ in found.items() if (one := VersionPolicy.parse(versions).choose(all_))
    }
    names = ", ".join(chosen) or "none"
    if wanted is None and len(chosen) != 1:
        raise UsageError(f"--model: expected the name of one of the models there, which are {names}")
    name = wanted if wanted is not None else next(iter(chosen))
    if name not in chosen:
        raise UsageError(f"--model: expected one of the models there, which are {names}, got {name!r}")
    return Subject(name, chosen[name].path, models)


def repository_of(file: Path, scratch: Path) -> Path:
    """A repository that holds this file alone."""
    if file.suffix != ".onnx" or not file.is_file():
        raise UsageError(f"MODELS: expected a repository or an .onnx file, got {str(file)!r}")
    where = file.resolve()
    in_one = where.name == MODEL_FILE and VERSION_PATTERN.fullmatch(where.parent.name)
    home = scratch / "single" / (where.parent.parent.name if in_one else where.stem) / "1"
    home.mkdir(parents=True)
    try:
        os.link(where, home / MODEL_FILE)
    except OSError:
        # on another disk
        shutil.copyfile(where, home / MODEL_FILE)
    return scratch / "single"
