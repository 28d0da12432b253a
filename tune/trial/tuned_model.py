"""The model that is tuned for: found in a repository, or put into a temporary one."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path

from turnpike import service
from turnpike.service.artifact.manifest import METADATA_KEY
from turnpike.service.artifact.onnx_file.protobuf import METADATA_FIELD, submessages
from turnpike.service.errors import SettingError
from turnpike.service.repository.location import locate
from turnpike.service.repository.scan import VersionPolicy
from turnpike.tune.errors import UsageError

BUNDLED = Path(service.__file__).parent / "default"


@dataclass(frozen=True, slots=True)
class TunedModel:
    """The model to tune for, its file, and what to serve: a folder or file; None for the bundled model."""

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


def find_model(models: Path | None, name: str | None, versions: str) -> TunedModel:
    """Find the model to tune for; a UsageError if there is none, or several to choose from.

    Args:
        models: What `turnpike serve` takes: a repository, a run, a model's folder or a file; None for the
            bundled model.
        name: Name of the model; None for the only one.
        versions: The setting that says which versions are served.
    """
    try:
        found = locate(models or BUNDLED).scan().models
    except SettingError as error:
        raise UsageError(f"MODELS: {error}") from error
    policy = VersionPolicy.parse(versions)
    served = {model: policy.choose(files) for model, files in found.items()}
    newest = {model: files[-1] for model, files in served.items() if files}
    if not newest:
        raise UsageError(f"MODELS: expected a model, got none in {str(models or BUNDLED)!r}")
    names = ", ".join(newest)
    if name is None and len(newest) != 1:
        raise UsageError(f"--model: expected the name of one of the models there, which are {names}")
    name = name if name is not None else next(iter(newest))
    if name not in newest:
        raise UsageError(f"--model: expected one of the models there, which are {names}, got {name!r}")
    return TunedModel(name, newest[name].path, models)
