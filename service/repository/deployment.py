"""The deployment: which files all workers serve. `Rollout` decides it and sends it to the workers as JSON."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from turnpike.service.repository.scan import ModelFile

# beginnings of the reasons why a good file is not served
UNLOADED, NOT_CHOSEN = "unloaded", "--versions "
ON_REQUEST = "the first request for it loads it"
NEW = "a new file is loaded once a second scan finds it unchanged"


def not_chosen_reason(policy: str, versions: Collection[int]) -> str:
    """Why a version is not served: which others the setting `versions` serves."""
    if not versions:
        return f"{NOT_CHOSEN}{policy} serves none of this model"
    served = "version" if len(versions) == 1 else "versions"
    return f"{NOT_CHOSEN}{policy} serves {served} {', '.join(map(str, sorted(versions)))}"


@dataclass(frozen=True, slots=True)
class UnavailableModel:
    """A version that is not served, or a whole model if `version` is None. `reason` is safe to send."""

    name: str
    version: int | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Deployment:
    """The files to serve, by model and in the order of their versions.

    `failed` cannot be served, `left_out` is not supposed to be, and `loading` will be served or have failed
    in a later deployment. `serial` counts the deployments. `complete` says that each file of the first scan
    is loaded or has failed.
    """

    serial: int = 0
    models: Mapping[str, tuple[ModelFile, ...]] = field(default_factory=dict)
    failed: tuple[UnavailableModel, ...] = ()
    left_out: tuple[UnavailableModel, ...] = ()
    loading: tuple[ModelFile, ...] = ()
    complete: bool = True

    @property
    def files(self) -> tuple[ModelFile, ...]:
        return tuple(file for versions in self.models.values() for file in versions)

    def without(self, files: Collection[ModelFile]) -> Deployment:
        """The same deployment without some of its files."""
        kept = {
            name: tuple(file for file in versions if file not in files)
            for name, versions in self.models.items()
        }
        models = {name: versions for name, versions in kept.items() if versions}
        return replace(self, models=models)

    def to_json(self) -> dict[str, Any]:
        """The deployment as dicts, lists and plain values."""
        return {
            "serial": self.serial,
            "models": {name: [file.to_json() for file in files] for name, files in self.models.items()},
            "failed": [model.to_json() for model in self.failed],
            "left_out": [model.to_json() for model in self.left_out],
            "loading": [file.to_json() for file in self.loading],
            "complete": self.complete,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Deployment:
        return cls(
            serial=record["serial"],
            models={name: tuple(map(ModelFile.from_json, files)) for name, files in record["models"].items()},
            failed=tuple(UnavailableModel(**model) for model in record["failed"]),
            left_out=tuple(UnavailableModel(**model) for model in record["left_out"]),
            loading=tuple(map(ModelFile.from_json, record["loading"])),
            complete=record["complete"],
        )
