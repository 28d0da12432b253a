"""The models that one worker serves: found by name, loaded beside what is served, and swapped in one step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from service.errors import ModelFileError, NotFoundError, NotReadyError, RequestError
from service.registry.model import Model
from service.repository.deployment import Deployment, UnavailableModel
from service.repository.scan import ModelFile

log = logging.getLogger(__name__)

Load = Callable[[ModelFile], Model]
# of one model: by its version as an address has it, and the highest one by None
Versions = dict[str | None, Model]


class ModelRegistry:
    """A request holds on to the model it found, so one that is swapped out meanwhile still answers it."""

    def __init__(self, load: Load) -> None:
        """`load` runs in a thread, one file at a time; its ModelFileError says why a file is not served."""
        self._load = load
        self._plan: Deployment | None = None
        self._served: dict[str, Versions] = {}
        # what is served or prepared
        self._open: dict[ModelFile, Model] = {}
        self._failed: dict[ModelFile, str] = {}
        self._loading: ModelFile | None = None
        self._lock = asyncio.Lock()

    def find(self, name: str, version: str | None = None) -> Model:
        """The model of a name, its highest version unless told otherwise; Unknown or NotReady without it."""
        try:
            return self._served[name][version]
        except KeyError:
            raise self._missing(name, version) from None

    def is_ready(self, name: str, version: str | None = None) -> bool:
        """Whether it is served now; Unknown where there is no such model or version at all."""
        try:
            self.find(name, version)
        except NotReadyError:
            return False
        return True

    def names(self) -> list[str]:
        """The models that are served."""
        return sorted(self._served)

    def versions(self, name: str) -> list[int]:
        """The versions of a model that are served, in order."""
        return sorted({model.version for model in self._served.get(name, {}).values()})

    @property
    def models(self) -> list[Model]:
        """Every version that is served."""
        return [self._served[name][str(version)] for name in self.names() for version in self.versions(name)]

    @property
    def ready(self) -> bool:
        """Whether a plan is carried out, and there is a model to serve unless there was none to load."""
        plan = self._plan
        return plan is not None and bool(self._served or not (plan.models or plan.failed))

    def index(self) -> list[dict[str, Any]]:
        """Every version that is known, with its state, and why it or a new file of it is not served."""
        plan = self._plan or Deployment()
        states = {
            (one.name, one.version): ("UNAVAILABLE", one.reason)
            for one in (*plan.left_out, *plan.failed, *self._failures())
        }
        if self._loading is not None:
            states[self._loading.name, self._loading.version] = ("LOADING", "")
        for model in self.models:
            _, reason = states.get((model.name, model.version), ("", ""))
            said = reason and f"an older file is served, the new one is not: {reason}"
            states[model.name, model.version] = ("READY", said)
        return [
            {
                "name": name,
                # of a model none of whose versions is known
                "version": "" if version is None else str(version),
                "state": state,
                "reason": reason,
            }
            for (name, version), (state, reason) in sorted(
                states.items(), key=lambda entry: (entry[0][0], entry[0][1] or 0)
            )
        ]

    async def prepare(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Load what a plan has and is not served yet; answers what failed. What is served stays as it is."""
        plan = Deployment.from_json(record)
        async with self._lock:
            failed = await self._bring(plan.files, (self._plan or Deployment()).files)
            # known from now on: the plan that tells everyone comes when the last worker has answered
            tried = {(found.name, found.version) for found in plan.files}
            others = {one: why for one, why in self._failed.items() if (one.name, one.version) not in tried}
            self._failed = others | failed
        return {"failed": [one.to_json() for one in _unserved(failed)]}

    async def commit(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Serve what a plan says from now on, and let go of the rest; answers what this worker lacks.

        A worker that comes late loads here what others have prepared; where that fails, what it serves
        under the same name stays.
        """
        plan = Deployment.from_json(record)
        async with self._lock:
            if self._plan is None or plan.serial >= self._plan.serial:
                self._failed = await self._bring(plan.files)
                self._serve(plan)
            return {"failed": [one.to_json() for one in self._failures()]}

    async def _bring(
        self, wanted: Sequence[ModelFile], kept: Sequence[ModelFile] = ()
    ) -> dict[ModelFile, str]:
        """Have the files wanted open, beside those to keep; says which could not be, and why."""
        self._open = {found: model for found, model in self._open.items() if found in wanted or found in kept}
        failed: dict[ModelFile, str] = {}
        for found in wanted:
            if found in self._open:
                continue
            self._loading = found
            try:
                self._open[found] = await asyncio.to_thread(self._load, found)
            except ModelFileError as error:
                failed[found] = error.public_message
                log.warning("%s/%d is not served: %s", found.name, found.version, error)
            except Exception:
                failed[found] = "it could not be loaded"
                log.exception("%s/%d is not served", found.name, found.version)
            finally:
                self._loading = None
        return failed

    def _serve(self, plan: Deployment) -> None:
        served: dict[str, Versions] = {}
        for name, versions in plan.models.items():
            before = self._served.get(name, {})
            models = [self._open.get(found) or before.get(str(found.version)) for found in versions]
            there = [model for model in models if model is not None] or list(before.values())
            for model in sorted(there, key=lambda model: model.version):
                served.setdefault(name, {}).update({str(model.version): model, None: model})
        self._plan, self._served = plan, served

    def _failures(self) -> list[UnavailableModel]:
        """What this worker could not load, though others may have."""
        return _unserved(self._failed)

    def _missing(self, name: str, version: str | None) -> RequestError:
        """Why there is no such model now."""
        plan = self._plan or Deployment()
        said = f"model {name[:80]!r}" + ("" if version is None else f" version {version[:20]!r}")
        for one in (*plan.failed, *self._failures(), *plan.left_out):
            if one.name == name and version in (None, str(one.version)):
                return NotReadyError(f"{said} is not served: {one.reason}")
        if self._plan is None:
            return NotReadyError("the models are being loaded")
        if name in self._served:
            there = ", ".join(map(str, self.versions(name)))
            return NotFoundError(f"{said}: expected a version that is served, one of {there}")
        return NotFoundError(f"{said}: expected a model that is served, as /v2/models lists them")


def _unserved(failed: Mapping[ModelFile, str]) -> list[UnavailableModel]:
    return [UnavailableModel(found.name, found.version, reason) for found, reason in failed.items()]
