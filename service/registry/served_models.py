"""Model registry of one worker: finds models by name, loads new ones, and swaps them in one step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from turnpike.common.similar_names import similar_name
from turnpike.service.errors import ModelFileError, NotFoundError, NotReadyError, RequestError, UntriedError
from turnpike.service.registry.model import Model
from turnpike.service.repository.deployment import NEW, Deployment, UnavailableModel
from turnpike.service.repository.file_queue import SLOW_SECONDS, FileQueue
from turnpike.service.repository.scan import ModelFile

log = logging.getLogger(__name__)

Load = Callable[[ModelFile], Model]
# the versions of one model: by number, as text from a URL, and the highest one under None
Versions = dict[str | None, Model]

# How long `prepare` waits for files that are being loaded. What is loaded by then is served meanwhile.
PREPARE_SECONDS = 0.5
# files that the reason of not being ready names
MAX_NAMED = 3
# models with which an unknown name is compared, in less than 1 ms on the event loop
MAX_COMPARED = 20


class ModelRegistry:
    """The models that this worker serves, as the current deployment says.

    A new deployment arrives in two steps: `prepare` loads its files while the old models go on serving, and
    `commit` replaces them all at once. A request keeps the model that it found, so it is completed even if
    the model is replaced in the meantime.

    Args:
        load: Runs in a thread, one file at a time unless one is slow; its ModelFileError says why a file is
            not served.
        prepare_seconds: How long `prepare` waits for files that are being loaded.
        slow_seconds: Seconds after which a file counts as slow.
    """

    def __init__(
        self,
        load: Load,
        *,
        prepare_seconds: float = PREPARE_SECONDS,
        slow_seconds: float = SLOW_SECONDS,
    ) -> None:
        self._load = load
        self._prepare_seconds, self._slow_seconds = prepare_seconds, slow_seconds
        self._served: dict[str, Versions] = {}
        # all loaded models: those that are served, and those that are prepared
        self._loaded: dict[ModelFile, Model] = {}
        self._failed: dict[ModelFile, str] = {}
        self.restart()

    def restart(self) -> None:
        """Forget the deployment and what is being loaded, as in a new event loop. Loaded models stay."""
        self._deployment: Deployment | None = None
        self._loads = FileQueue(self._load_in_thread, self._slow_seconds)
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
        """Whether the first scan is complete, and at least one model is served unless there is none."""
        return self.unready_reason() is None

    def unready_reason(self, *, naming: bool = True) -> str | None:
        """Why this worker is not ready, safe to send, or None if it is ready.

        The reason names models, at most three, only if `naming` is true.
        """
        deployment = self._deployment
        if deployment is None or not deployment.complete:
            loading = [_numbered(file.name, file.version) for file in self._loading] if naming else []
            return _with_examples("the first scan is not complete", "loading ", loading)
        if self._served or not (deployment.models or deployment.failed):
            return None
        reasons = [
            f"{_numbered(model.name, model.version)}: {model.reason}" if naming else model.reason
            for model in self._all_failed()
        ]
        return _with_examples("no model is served", "", reasons)

    def index(self) -> list[dict[str, Any]]:
        """Every known version with its state, and the reason if it, or a newer file of it, is not served."""
        deployment = self._deployment or Deployment()
        states = {
            (unavailable.name, unavailable.version): ("UNAVAILABLE", unavailable.reason)
            for unavailable in (*deployment.left_out, *self._all_failed())
        }
        states |= {(file.name, file.version): ("LOADING", "") for file in self._loading}
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
        """Load the files of a deployment that are not loaded yet, while the models that are served stay.

        Returns soon in any case, with the files that `failed`, those that are `untried`, and those that are
        still `loading`. These go on, and the next call has what became of them.
        """
        deployment = Deployment.from_json(record)
        async with self._lock:
            self._keep({*deployment.files, *(self._deployment or Deployment()).files})
            errors = await self._load_files(deployment.files, self._prepare_seconds)
            untried = [file for file, error in errors.items() if isinstance(error, UntriedError)]
            failed = {file: error.public_message for file, error in errors.items() if file not in untried}
            # remember the failures now: the deployment that announces them comes after the last worker's
            # reply
            tried = {(file.name, file.version) for file in deployment.files}
            others = {
                file: reason
                for file, reason in self._failed.items()
                if (file.name, file.version) not in tried
            }
            self._failed = others | failed
            loading = [file for file in deployment.files if file not in self._loaded and file not in errors]
        return {
            "failed": [unavailable.to_json() for unavailable in _unavailable(failed)],
            "untried": [[file.name, file.version] for file in untried],
            "loading": [[file.name, file.version] for file in loading],
        }

    async def commit(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Serve a deployment from now on, drop all other models, and return what this worker could not load.

        A worker that started late loads here what the others have prepared. If a file fails, the model served
        under the same name stays.
        """
        deployment = Deployment.from_json(record)
        async with self._lock:
            if self._deployment is None or deployment.serial >= self._deployment.serial:
                self._keep({*deployment.files, *deployment.loading})
                errors = await self._load_files(deployment.files)
                self._failed = {file: error.public_message for file, error in errors.items()}
                self._serve(deployment)
            return {"failed": [unavailable.to_json() for unavailable in self._failures()]}

    @property
    def _loading(self) -> set[ModelFile]:
        """The files of which it is not known yet whether they can be served."""
        return {*(self._deployment or Deployment()).loading, *self._loads.unfinished}

    def _keep(self, files: Collection[ModelFile]) -> None:
        """Drop all other files, whether they are loaded or not yet."""
        self._loaded = {file: model for file, model in self._loaded.items() if file in files}
        self._loads.keep(files)

    async def _load_files(
        self, files: Sequence[ModelFile], seconds: float | None = None
    ) -> dict[ModelFile, ModelFileError]:
        """Load files, and return the errors that there are within `seconds`, or in the end."""
        for file in files:
            if file not in self._loaded:
                self._loads.add(file)
        await self._loads.wait(files, seconds)
        results = self._loads.take()
        self._loaded |= {
            file: model for file, model in results.items() if not isinstance(model, ModelFileError)
        }
        return {file: error for file, error in results.items() if isinstance(error, ModelFileError)}

    async def _load_in_thread(self, file: ModelFile) -> Model | ModelFileError:
        """Load a file, or find out why it cannot be served.

        It has a thread of its own. The threads that others share are waited for when the event loop ends, and
        a load may never end.
        """
        thread = ThreadPoolExecutor(1, "load")
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, self._load, file)
        except UntriedError as error:
            return error
        except ModelFileError as error:
            log.warning("%s/%d is not served: %s", file.name, file.version, error)
            return error
        except Exception:
            log.exception("%s/%d is not served", file.name, file.version)
            return ModelFileError(f"{file.path}: it could not be loaded", "it could not be loaded")
        finally:
            thread.shutdown(wait=False)

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

    def _all_failed(self) -> Iterable[UnavailableModel]:
        """What no worker serves because of its file, and what this worker could not load."""
        return (*(self._deployment or Deployment()).failed, *self._failures())

    def _missing_error(self, name: str, version: str | None) -> RequestError:
        """The error that says why a model is not served."""
        deployment = self._deployment or Deployment()
        model = f"model {name[:80]!r}" + ("" if version is None else f" version {version[:20]!r}")
        if any(file.name == name and version in (None, str(file.version)) for file in deployment.loading):
            return NotReadyError(f"{model} is not served yet: it is being loaded")
        for unavailable in (*self._all_failed(), *deployment.left_out):
            if unavailable.name == name and version in (None, str(unavailable.version)):
                return NotReadyError(f"{model} is not served: {unavailable.reason}")
        if self._deployment is None:
            return NotReadyError("the models are being loaded")
        if name in self._served:
            versions = ", ".join(map(str, self.versions(name)))
            return NotFoundError(f"{model}: expected a version that is served, one of {versions}")
        similar = similar_name(name[:80], sorted(self._served)[:MAX_COMPARED])
        hint = f"; did you mean {similar!r}?" if similar else ""
        return NotFoundError(f"{model}: expected a model that is served, as /v2/models lists them{hint}")


def _unavailable(failed: Mapping[ModelFile, str]) -> list[UnavailableModel]:
    return [UnavailableModel(file.name, file.version, reason) for file, reason in failed.items()]


def _numbered(name: str, version: int | None) -> str:
    return name if version is None else f"{name}/{version}"


def _with_examples(sentence: str, verb: str, entries: Iterable[str]) -> str:
    """A sentence with the first of these entries, each once, and the number of the others."""
    ordered = sorted(set(entries))
    if not ordered:
        return sentence
    more = f" and {len(ordered) - MAX_NAMED} more" if len(ordered) > MAX_NAMED else ""
    return f"{sentence}: {verb}{', '.join(ordered[:MAX_NAMED])}{more}"
