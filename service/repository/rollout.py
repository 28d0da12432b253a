"""Rollout: scans the repository and has all workers load and serve the same versions.

Each change takes two steps: "prepare" has every worker load the new files, and "commit" has every worker
serve them. Files that a worker cannot load are left out, and what is served stays. Runs in the supervisor,
which opens no model itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from turnpike.service.errors import SettingError
from turnpike.service.repository.deployment import (
    NEW,
    NOT_CHOSEN,
    ON_REQUEST,
    UNLOADED,
    Deployment,
    UnavailableModel,
)
from turnpike.service.repository.scan import ModelFile, RepositoryScan, VersionPolicy

log = logging.getLogger(__name__)

Broadcast = Callable[[str, Any], Awaitable[list[Any]]]
Outcome = dict[str, Any]

# reason for a file that is not served
WORKER_ENDED = "a worker ended while it was loaded"


class Repository(Protocol):
    """Where the models are: a `Location` on this machine, or a `RemoteRepository`."""

    async def find_models(
        self, failed: Collection[ModelFile] = (), *, explicit: bool = False
    ) -> RepositoryScan:
        """The models that can be served now.

        Args:
            failed: Files that workers could not load, so that older versions are needed, too.
            explicit: True for a scan that somebody asked for, False for a poll.

        Raises:
            SettingError: The repository cannot be read.
        """


class Rollout:
    """Scans, loads and unloads. Scans take place one at a time, and so do changes of what is served.

    Args:
        repository: Where the models are.
        policy: Which versions to serve, as `VersionPolicy.parse` takes it.
        broadcast: Sends a request ("prepare" or "commit", and a deployment) to all workers and returns their
            answers, None for a worker that ended. Workers that hang are left out.
        on_request: Serve only the models that `want` names, instead of all.
    """

    def __init__(
        self, repository: Repository, policy: str, broadcast: Broadcast, *, on_request: bool = False
    ) -> None:
        self._repository = repository
        self._policy = VersionPolicy.parse(policy)
        self._not_chosen = NOT_CHOSEN + policy
        self._broadcast = broadcast
        self._deployment = Deployment()
        # models that a caller unloaded
        self._unloaded: frozenset[str] = frozenset()
        # the models to serve, None for all
        self._wanted: set[str] | None = set() if on_request else None
        # files that could not be loaded, with the reason, until they are replaced
        self._failed: dict[ModelFile, str] = {}
        # what the last scan saw, and the part of it that the deployment is based on
        self._last_scan = self._accepted = RepositoryScan()
        # why the last scan failed, so that a poll does not log it again and again
        self._scan_error = ""
        # a scan of a remote repository may take long, and a model can be unloaded meanwhile
        self._scanning, self._lock = asyncio.Lock(), asyncio.Lock()

    @property
    def deployment_record(self) -> dict[str, Any]:
        """The deployment as JSON, for a worker that starts later."""
        return self._deployment.to_json()

    @property
    def names(self) -> list[str]:
        """The models that are served, as name/version."""
        return [f"{file.name}/{file.version}" for file in self._deployment.files]

    @property
    def failed(self) -> tuple[UnavailableModel, ...]:
        """Files of the repository that cannot be served."""
        return self._deployment.failed

    async def rescan(self, *, explicit: bool = True) -> None:
        """Scan the repository and serve what it has now.

        A scan that is not `explicit` (a poll) accepts only models that have not changed since the last scan,
        as the files of others may not be complete yet.

        Raises:
            SettingError: The repository cannot be read and nothing has been served yet.
        """
        async with self._scanning:
            try:
                contents = await self._repository.find_models(
                    () if explicit else self._failed, explicit=explicit
                )
            except SettingError as error:
                if self._deployment.serial == 0:
                    raise
                if explicit or str(error) != self._scan_error:
                    log.warning("the models that are served stay: %s", error)
                self._scan_error = str(error)
                return
            self._scan_error = ""
            async with self._lock:
                accepted = contents if explicit else self._unchanged_since_last_scan(contents)
                self._last_scan = contents
                if explicit:
                    self._failed = {}
                await self._apply(accepted)

    async def load(self, name: str) -> Outcome:
        """Serve a model that was unloaded or has new files.

        Returns `ok`, and if that is false a `reason` and whether the model is `known`.
        """
        async with self._scanning:
            model = f"model {name[:80]!r}"
            try:
                contents = await self._repository.find_models(explicit=True)
            except SettingError as error:
                log.warning("%s", error)
                return _failure(f"{model} cannot be loaded: the repository cannot be read")
            if name not in contents.models and name not in contents.unfetched:
                reasons = [skipped.reason for skipped in contents.skipped if skipped.name == name]
                if reasons:
                    return _failure(f"{model} cannot be loaded: {reasons[0]}")
                return _failure(f"{model}: expected a model of the repository", known=False)
            async with self._lock:
                self._unloaded -= {name}
                before = self._deployment.models.get(name)
                await self._apply(self._accept_models([name], contents))
                if not self._is_wanted(name):
                    return {"ok": True}
                reason = self._load_failure(name, before)
            return {"ok": True} if reason is None else _failure(f"{model} cannot be loaded: {reason}")

    async def reload_failed(self, names: Iterable[str]) -> None:
        """Deploy models again that a worker could not load although they are deployed.

        Takes new files that replaced theirs, if they are good. Files that no worker has any more are replaced
        by an older version, if there is one.
        """
        async with self._scanning:
            try:
                found = await self._repository.find_models(self._failed)
            except SettingError as error:
                log.warning("%s", error)
                found = None
            async with self._lock:
                contents = self._accepted if found is None else self._accept_models(names, found)
                await self._apply(contents, verified=False)

    async def unload(self, name: str) -> Outcome:
        """Stop serving a model until it is loaded again or the service restarts."""
        async with self._lock:
            if name not in self._accepted.models:
                return _failure(f"model {name[:80]!r}: expected a model of the repository", known=False)
            self._unloaded |= {name}
            await self._apply(self._accepted)
            return {"ok": True}

    def knows(self, name: str) -> bool:
        """Whether the repository has a model of this name."""
        return name in self._accepted.models

    async def want(self, name: str) -> None:
        """Serve a model from now on, if only some are served."""
        async with self._lock:
            if self._wanted is not None:
                self._wanted.add(name)
                await self._apply(self._accepted)

    async def drop(self, name: str) -> None:
        """Serve a model no longer, if only some are served."""
        async with self._lock:
            if self._wanted is not None:
                self._wanted.discard(name)
                await self._apply(self._accepted)

    def _is_wanted(self, name: str) -> bool:
        return self._wanted is None or name in self._wanted

    def _accept_models(self, names: Iterable[str], contents: RepositoryScan) -> RepositoryScan:
        """The accepted scan with these models as they are now. Changes of others wait for the next scan."""
        models = {name: contents.models[name] for name in names if name in contents.models}
        self._failed = {file: reason for file, reason in self._failed.items() if file.name not in models}
        self._last_scan = replace(contents, models={**self._last_scan.models, **models})
        return replace(contents, models={**self._accepted.models, **models})

    def _load_failure(self, name: str, before: tuple[ModelFile, ...] | None) -> str | None:
        """Why a load changed nothing, None if it succeeded. `before` are the files served until then."""
        served = self._deployment.models.get(name, ())
        lowest_served = served[0].version if served else 0
        failed = [
            (model.version or 0, model.reason) for model in self._deployment.failed if model.name == name
        ]
        newer = [failure for failure in failed if failure[0] >= lowest_served]
        if not served:
            return max(newer)[1] if newer else "none of its versions is among those to serve"
        if served != before or not newer:
            return None
        versions = ", ".join(str(file.version) for file in served)
        still_served = (
            f"version {versions} is still served"
            if len(served) == 1
            else f"versions {versions} are still served"
        )
        return f"{max(newer)[1]}; {still_served}"

    def _unchanged_since_last_scan(self, contents: RepositoryScan) -> RepositoryScan:
        """Models that two scans saw alike. Those that are changing stay as they were accepted."""
        models: dict[str, tuple[ModelFile, ...]] = {}
        for name in sorted(contents.models.keys() | self._accepted.models.keys()):
            files = contents.models.get(name, ())
            if files != self._last_scan.models.get(name, ()):
                files = self._accepted.models.get(name, ())
            if files:
                models[name] = files
        return replace(contents, models=models)

    async def _apply(self, contents: RepositoryScan, *, verified: bool = True) -> None:
        """Have the workers serve these files, except those that they cannot load.

        If it is not `verified` that the current deployment is served, the workers prepare it again too.
        """
        self._accepted = contents
        # forget failures of files that were replaced
        self._failed = {
            file: reason
            for file, reason in self._failed.items()
            if file in contents.models.get(file.name, ())
        }
        # prepare, leaving out files that fail, until every worker has every file
        while True:
            deployment = self._choose_files(contents)
            if verified and deployment.models == self._deployment.models:
                break
            failed = await self._prepare(deployment)
            if not failed:
                break
            self._failed |= failed
            contents = self._accepted = await self._with_older_versions(contents)
        # commit
        if deployment == self._deployment and deployment.serial > 0:
            return
        self._deployment = Deployment(
            self._deployment.serial + 1, deployment.models, deployment.failed, deployment.left_out
        )
        await self._broadcast("commit", self._deployment.to_json())
        found = [f"{model.name}/{model.version}" for model in deployment.left_out if model.reason == NEW]
        if found:
            log.info("found %s: %s", ", ".join(found), NEW)
        else:
            log.info("serving %s", ", ".join(self.names) or "no model")

    async def _with_older_versions(self, contents: RepositoryScan) -> RepositoryScan:
        """A scan with more versions of models that failed, if there are some that were not fetched."""
        names = {file.name for file in self._failed} & contents.unfetched.keys()
        if not names:
            return contents
        try:
            found = await self._repository.find_models(self._failed)
        except SettingError as error:
            log.warning("%s", error)
            return contents
        models = {name: found.models[name] for name in names if name in found.models}
        return replace(found, models={**contents.models, **models})

    async def _prepare(self, deployment: Deployment) -> dict[ModelFile, str]:
        """Have the workers load a deployment; returns the files that cannot be served, with the reasons."""
        failed = await self._try(deployment)
        if failed is not None:
            return failed
        new = [file for file in deployment.files if file not in self._deployment.files]
        if len(new) < 2:
            return dict.fromkeys(new, WORKER_ENDED)
        # add one new file at a time, and leave out those with which a worker ends
        all_failed: dict[ModelFile, str] = {}
        for number, file in enumerate(new, 1):
            failed = await self._try(deployment.without({*all_failed, *new[number:]}))
            all_failed |= {file: WORKER_ENDED} if failed is None else failed
        return all_failed

    async def _try(self, deployment: Deployment) -> dict[ModelFile, str] | None:
        """Have the workers load a deployment; returns the files that fail, None if a worker ends twice."""
        for _ in range(2):  # a worker may end by chance
            answers = await self._broadcast("prepare", deployment.to_json())
            if answers and None not in answers:
                return _failures(answers, deployment, self._deployment)
        return None

    def _choose_files(self, contents: RepositoryScan) -> Deployment:
        """The deployment for a scan, without files that failed. They do not change what is served."""
        models: dict[str, tuple[ModelFile, ...]] = {}
        for name, files in contents.models.items():
            if name in self._unloaded or not self._is_wanted(name):
                continue
            served = {
                file.version: file
                for file in self._deployment.models.get(name, ())
                if file not in self._failed
            }
            good = [file for file in files if file not in self._failed]
            # a version whose new file failed is served from its old file, which workers have in memory
            old = [served[file.version] for file in files if file in self._failed and file.version in served]
            chosen = self._policy.choose([*good, *old])
            if not chosen and any(file in self._failed for file in files):
                chosen = tuple(served.values())
            if chosen:
                models[name] = chosen
        return Deployment(self._deployment.serial, models, *self._unserved(contents, models))

    def _unserved(
        self, contents: RepositoryScan, models: Mapping[str, tuple[ModelFile, ...]]
    ) -> tuple[tuple[UnavailableModel, ...], tuple[UnavailableModel, ...]]:
        """The files that are not in `models`: those that failed, and those left out on purpose or as yet."""
        failed, left_out = [], []
        for name, files in contents.models.items():
            served_versions = {file.version for file in models.get(name, ())}
            for file in files:
                if name in self._unloaded:
                    left_out.append(UnavailableModel(name, file.version, UNLOADED))
                elif not self._is_wanted(name):
                    left_out.append(UnavailableModel(name, file.version, ON_REQUEST))
                elif file in self._failed:
                    failed.append(UnavailableModel(name, file.version, self._failed[file]))
                elif file.version not in served_versions:
                    left_out.append(UnavailableModel(name, file.version, self._not_chosen))
        left_out += [
            UnavailableModel(name, version, UNLOADED if name in self._unloaded else self._not_chosen)
            for name, versions in contents.unfetched.items()
            for version in versions
            if all(
                version != file.version for file in (*contents.models.get(name, ()), *models.get(name, ()))
            )
        ]
        for name, files in self._last_scan.models.items():
            known = contents.models.get(name, ())
            reason = UNLOADED if name in self._unloaded else NEW
            left_out += [UnavailableModel(name, file.version, reason) for file in files if file not in known]
        failed += [UnavailableModel(path.name, path.version, path.reason) for path in contents.skipped]
        return tuple(failed), tuple(left_out)


def _failures(answers: list[Any], deployment: Deployment, current: Deployment) -> dict[ModelFile, str]:
    """Files that cannot be served, with the reasons: new files that any worker could not load.

    Files of the current deployment were loaded before. They may fail in a worker that started after they were
    replaced, so they count only if every worker failed.
    """
    failed: dict[ModelFile, str] = {}
    for file in deployment.files:
        reasons = [
            failure["reason"]
            for answer in answers
            for failure in answer["failed"]
            if (failure["name"], failure["version"]) == (file.name, file.version)
        ]
        if reasons and (file not in current.files or len(reasons) == len(answers)):
            failed[file] = reasons[0]
    return failed


def _failure(reason: str, *, known: bool = True) -> Outcome:
    return {"ok": False, "known": known, "reason": reason}
