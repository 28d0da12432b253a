"""What all workers are to serve: made by the director, sent as JSON, kept on each worker's shelf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.repository.scan import ModelFile

# how the reasons begin for which a good file is not served
UNLOADED, NOT_CHOSEN = "unloaded", "not chosen by versions="


@dataclass(frozen=True, slots=True)
class UnavailableModel:
    """A version that is not served, or a model where `version` is None; `reason` is safe to send."""

    name: str
    version: int | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Deployment:
    """Versions of each model in order, what failed, what is there and not wanted; the serial counts plans."""

    serial: int = 0
    models: Mapping[str, tuple[ModelFile, ...]] = field(default_factory=dict)
    failed: tuple[UnavailableModel, ...] = ()
    left_out: tuple[UnavailableModel, ...] = ()

    @property
    def files(self) -> tuple[ModelFile, ...]:
        """Every file to serve."""
        return tuple(found for versions in self.models.values() for found in versions)

    def to_json(self) -> dict[str, Any]:
        """The same as dicts, lists and plain values."""
        return {
            "serial": self.serial,
            "models": {
                name: [
                    {"version": found.version, "path": str(found.path), "identity": list(found.identity)}
                    for found in versions
                ]
                for name, versions in self.models.items()
            },
            "failed": [failed.to_json() for failed in self.failed],
            "left_out": [one.to_json() for one in self.left_out],
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Deployment:
        """The plan of what `to_json` made."""
        return cls(
            serial=record["serial"],
            models={
                name: tuple(
                    ModelFile(name, one["version"], Path(one["path"]), tuple(one["identity"]))
                    for one in versions
                )
                for name, versions in record["models"].items()
            },
            failed=tuple(UnavailableModel(**one) for one in record["failed"]),
            left_out=tuple(UnavailableModel(**one) for one in record["left_out"]),
        )
