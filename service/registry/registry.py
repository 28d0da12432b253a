"""Model registry of one worker: finds models by name, loads new ones, and swaps them in one step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turnpike.service.errors import ModelFileError, NotFoundError, NotReadyError, RequestError
from turnpike.service.registry.model import Model
from turnpike.service.repository.deployment import NEW, Deployment, UnavailableModel
from turnpike.service.repository.scan import ModelFile

log = logging.getLogger(__name__)

Load = Callable[[ModelFile], Model]
# the versions of one model: by number, as text from a URL, and the highest one under None
Versions = dict[str | None, Model]


class ModelRegistry:
    """The models that this worker serves, as the current deployment says.

    A new deployment arrives in two steps: `prepare` loads its files while the old models go on serving, and
    `commit` replaces them all at once. A request keeps the model that it found, so it is completed even if
    the model is replaced in the meantime.
    """

    def __init__(self, load: Load) -> None:
        """`load` runs in a thread, one file at a time; its ModelFileError says why a file is not served."""
        self._load = load
        self._deployment: Deployment | None = None
        self._served: dict[str, Versions] = {}
        # all loaded models: those that are served, and those that are prepared
        self._loaded: dict[ModelFile, Model] = {}
        self._failed: dict[ModelFile, str] = {}
        self._loading: ModelFile | None = None
        self._lock = asyncio.Lock()

    def find(self, name: str, version: str | None = None) -> Model:
        """Return a model, by default in its highest version; raises NotFoundError or NotReadyError."""
        try:
            return self._served[name][version]
        except KeyError:
            raise self._missing_error(name, version) from None

    def is_ready(self, name: str, version: str | None = None) -> bool:
        """Whether a version is served now; raises NotFoundError if there is no such version at all."""
        try:
            self.find(name, version)
        except NotReadyError:
            return False
        return True

    def names(self) -> list[str]:
        """The names of the models that are served."""
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
        """Whether a deployment is in effect, and serves at least one model unless it is empty."""
        deployment = self._deployment
        return deployment is not None and bool(self._served or not (deployment.models or deployment.failed))

    def index(self) -> list[dict[str, Any]]:
        """Every known version with its state, and the reason if it, or a newer file of it, is not served."""
        deployment = self._deployment or Deployment()
        states = {
            (unavailable.name, unavailable.version): ("UNAVAILABLE", unavailable.reason)
            for unavailable in (*deployment.left_out, *deployment.failed, *self._failures())
        }
        if self._loading is not None:
            states[self._loading.name, self._loading.version] = ("LOADING", "")
        for model in self.models:
            _, reason = states.get((model.name, model.version), ("", ""))
            if reason and reason != NEW:
                reason = f"an older file is served, the new one is not: {reason}"
            states[model.name, model.version] = ("READY", reason)
        return [
            {
                "name": name,
                # a model without any known version has none
                "version": "" if version is None else str(version),
                "state": state,
                "reason": reason,
            }
            for (name, version), (state, reason) in sorted(
                states.items(), key=lambda entry: (entry[0][0], entry[0][1] or 0)
            )
        ]

    async def prepare(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Load the files of a deployment that are not loaded yet, and return those that failed.

        The models that are served stay as they are.
        """
        deployment = Deployment.from_json(record)
        async with self._lock:
            failed = await self._load_files(deployment.files, (self._deployment or Deployment()).files)
            # remember the failures now: the deployment that announces them comes after the last worker's
            # reply
            tried = {(file.name, file.version) for file in deployment.files}
            others = {
                file: reason
                for file, reason in self._failed.items()
                if (file.name, file.version) not in tried
            }
            self._failed = others | failed
        return {"failed": [unavailable.to_json() for unavailable in _unavailable(failed)]}

    async def commit(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Serve a deployment from now on, drop all other models, and return what this worker could not load.

        A worker that started late loads here what the others have prepared. If a file fails, the model served
        under the same name stays.
        """
        deployment = Deployment.from_json(record)
        async with self._lock:
            if self._deployment is None or deployment.serial >= self._deployment.serial:
                self._failed = await self._load_files(deployment.files)
                self._serve(deployment)
            return {"failed": [unavailable.to_json() for unavailable in self._failures()]}

    async def _load_files(
        self, wanted: Sequence[ModelFile], keep: Sequence[ModelFile] = ()
    ) -> dict[ModelFile, str]:
        """Load the wanted files, drop all others but those to keep, and return the failures with reasons."""
        self._loaded = {file: model for file, model in self._loaded.items() if file in wanted or file in keep}
        failed: dict[ModelFile, str] = {}
        for file in wanted:
            if file in self._loaded:
                continue
            self._loading = file
            try:
                self._loaded[file] = await asyncio.to_thread(self._load, file)
            except ModelFileError as error:
                failed[file] = error.public_message
                log.warning("%s/%d is not served: %s", file.name, file.version, error)
            except Exception:
                failed[file] = "it could not be loaded"
                log.exception("%s/%d is not served", file.name, file.version)
            finally:
                self._loading = None
        return failed

    def _serve(self, deployment: Deployment) -> None:
        """Replace all models by those of the deployment."""
        served: dict[str, Versions] = {}
        for name, files in deployment.models.items():
            previous = self._served.get(name, {})
            # in place of a file that failed, the same version goes on; without any, all versions do
            models = [self._loaded.get(file) or previous.get(str(file.version)) for file in files]
            available = [model for model in models if model is not None] or list(previous.values())
            for model in sorted(available, key=lambda model: model.version):
                served.setdefault(name, {}).update({str(model.version): model, None: model})
        self._deployment, self._served = deployment, served

    def _failures(self) -> list[UnavailableModel]:
        """What this worker could not load, though other workers may have."""
        return _unavailable(self._failed)

    def _missing_error(self, name: str, version: str | None) -> RequestError:
        """The error that says why a model is not served."""
        deployment = self._deployment or Deployment()
        model = f"model {name[:80]!r}" + ("" if version is None else f" version {version[:20]!r}")
        for unavailable in (*deployment.failed, *self._failures(), *deployment.left_out):
            if unavailable.name == name and version in (None, str(unavailable.version)):
                return NotReadyError(f"{model} is not served: {unavailable.reason}")
        if self._deployment is None:
            return NotReadyError("the models are being loaded")
        if name in self._served:
            versions = ", ".join(map(str, self.versions(name)))
            return NotFoundError(f"{model}: expected a version that is served, one of {versions}")
        return NotFoundError(f"{model}: expected a model that is served, as /v2/models lists them")


def _unavailable(failed: Mapping[ModelFile, str]) -> list[UnavailableModel]:
    return [UnavailableModel(file.name, file.version, reason) for file, reason in failed.items()]
