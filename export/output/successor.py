"""Compares a network with the newest version of the model that it would follow in a repository.

A server that watches the repository answers with the new version in place of that one, so a network that
predicts something else must not become one by accident.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from turnpike.export.errors import UsageError
from turnpike.export.input_spec import valid_name
from turnpike.export.network import Network
from turnpike.export.output.repository import model_path, newest_version
from turnpike.service.artifact.manifest import Manifest, read_manifest

MAX_LISTED = 5


@dataclass(frozen=True)
class Predecessor:
    """The newest version of a model, 0 if there is none; its manifest, if the file has one."""

    version: int
    manifest: Manifest | None

    @property
    def hides_categories(self) -> bool:
        """Whether it was written without the words of its table's columns."""
        features = () if self.manifest is None else self.manifest.features
        return any(feature.kind == "category" and not feature.categories for feature in features)

    @property
    def kept_hidden(self) -> str:
        """Says that words are left out without being asked for, because this version has none."""
        name = "" if self.manifest is None else self.manifest.name
        return (
            f"the words of categories are left out, as in version {self.version} of {name}: --name makes a "
            "model that has them"
        )


def predecessor(repository: Path, name: str) -> Predecessor:
    """The newest version of the model of this name."""
    version = newest_version(repository, name)
    path = model_path(repository, name, version)
    return Predecessor(version, read_manifest(path.read_bytes(), str(path)) if path.is_file() else None)


def expect_same_prediction(network: Network, newest: Predecessor) -> None:
    """Raise a UsageError if the newest version is known to predict something else than the network."""
    if newest.manifest is None:
        return
    old, new = _prediction(newest.manifest), _prediction(network)
    if not old or not new or old == new or not _differ(newest.manifest, network):
        return
    suffix = valid_name(network.target) or network.task
    raise UsageError(
        f"version {newest.version} of {network.name!r} predicts {old}, and this network {new}: a server "
        f"would answer with it in place of that version. Give --name {network.name}-{suffix}, or "
        f"--version {newest.version + 1} if it is to follow"
    )


def column_warnings(network: Network, newest: Predecessor) -> tuple[str, ...]:
    """A warning if the network reads other columns than the newest version."""
    before = [] if newest.manifest is None else [feature.name for feature in newest.manifest.features]
    now = [feature.name for feature in network.features]
    added, removed = (
        [name for name in one if name not in other] for one, other in ((now, before), (before, now))
    )
    if not before or not now or not (added or removed):
        return ()
    changes = [f"new are {_listed(added)}"] * bool(added) + [f"missing are {_listed(removed)}"] * bool(
        removed
    )
    return (
        f"the columns are not those of version {newest.version} of {network.name!r}, so its callers may be "
        f"refused: {' and '.join(changes)}",
    )


def _prediction(model: Manifest | Network) -> str:
    """What a model predicts, in words; empty if that is not known."""
    if model.target:
        return f"{model.target!r} ({'a number' if model.task == 'number' else 'classes'})"
    return "a number" if model.task == "number" else "classes" if model.labels else ""


def _differ(old: Manifest, new: Network) -> bool:
    return old.task != new.task or bool(old.target and new.target and old.target != new.target)


def _listed(names: list[str]) -> str:
    more = len(names) - MAX_LISTED
    return ", ".join(map(repr, names[:MAX_LISTED])) + (f" and {more} more" if more > 0 else "")
