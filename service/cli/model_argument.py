"""The argument MODEL of `turnpike predict` and `turnpike inspect`: a path that leads to one model file."""

from __future__ import annotations

from pathlib import Path

from turnpike.service.errors import SettingError
from turnpike.service.repository.location import locate
from turnpike.service.repository.scan import ModelFile


def find_model(path: Path) -> ModelFile:
    """The file, or the newest version of the only model in a folder: of a model, a run or a repository."""
    try:
        models = locate(path).scan().models
    except SettingError as error:
        raise SettingError(f"MODEL: {error}") from error
    if len(models) != 1:
        names = f"a repository of {', '.join(models)}: name the folder of one" if models else "none"
        raise SettingError(f"MODEL: expected a model in {str(path)!r}, got {names}")
    (files,) = models.values()
    return files[-1]
