"""The model that is tuned for: found in a repository, or put into a temporary one."""

from __future__ import annotations

import mmap
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from turnpike import service
from turnpike.service.artifact.manifest import METADATA_KEY
from turnpike.service.artifact.onnx_file.protobuf import METADATA_FIELD, submessages
from turnpike.service.repository.scan import MODEL_FILE, VERSION_PATTERN, VersionPolicy, scan
from turnpike.tune.errors import UsageError

BUNDLED = Path(service.__file__).parent / "default"


@dataclass(frozen=True, slots=True)
class TunedModel:
    """The model to tune for, its file, and the repository to serve; no repository for the bundled model."""

    name: str
    file: Path
    repository: Path | None

    @property
    def is_export(self) -> bool:
        """Whether `turnpike export` wrote the file, which cannot be exported again."""
        try:
            with self.file.open("rb") as file:
                model = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            keys = [key for entry in submessages(model, METADATA_FIELD) for key in submessages(entry, 1)]
            return METADATA_KEY.encode() in keys
        except (OSError, ValueError):
            # exporting the file reports what is wrong with it
            return False


def find_model(models: Path | None, name: str | None, versions: str, scratch: Path) -> TunedModel:
    """Find the model to tune for; a UsageError if there is none, or several to choose from.

    Args:
        models: A repository or a model file; None for the bundled model.
        name: Name of the model; None for the only one.
        versions: The setting that says which versions are served.
        scratch: Temporary folder, for the repository of a single file.
    """
    if models is not None and not models.is_dir():
        models = single_file_repository(models, scratch)
    policy = VersionPolicy.parse(versions)
    served = {model: policy.choose(files) for model, files in scan(models or BUNDLED).models.items()}
    newest = {model: files[-1] for model, files in served.items() if files}
    names = ", ".join(newest) or "none"
    if name is None and len(newest) != 1:
        raise UsageError(f"--model: expected the name of one of the models there, which are {names}")
    name = name if name is not None else next(iter(newest))
    if name not in newest:
        raise UsageError(f"--model: expected one of the models there, which are {names}, got {name!r}")
    return TunedModel(name, newest[name].path, models)


def single_file_repository(file: Path, scratch: Path) -> Path:
    """Make a repository that holds only this file."""
    if file.suffix != ".onnx" or not file.is_file():
        raise UsageError(f"MODELS: expected a repository or an .onnx file, got {str(file)!r}")
    path = file.resolve()
    in_repository = path.name == MODEL_FILE and VERSION_PATTERN.fullmatch(path.parent.name)
    folder = scratch / "single" / (path.parent.parent.name if in_repository else path.stem) / "1"
    folder.mkdir(parents=True)
    try:
        os.link(path, folder / MODEL_FILE)
    except OSError:
        # a hard link cannot cross file systems
        shutil.copyfile(path, folder / MODEL_FILE)
    return scratch / "single"
