"""Rollout: scans the repository and has all workers load and serve the same versions.

Each change takes two steps: "prepare" has every worker load the new files, and "commit" has every worker
serve them. Files that a worker cannot load are left out, and what is served stays. Files that take long, or
that have a trial first, follow in a later change. Runs in the supervisor, which opens no model itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from turnpike.service.errors import NotReadyError, SettingError
from turnpike.service.repository.deployment import (
    NEW,
    ON_REQUEST,
    UNLOADED,
    Deployment,
    UnavailableModel,
    not_chosen_reason,
)
from turnpike.service.repository.file_queue import SLOW_SECONDS, FileQueue
from turnpike.service.repository.scan import ModelFile, RepositoryScan, VersionPolicy

log = logging.getLogger(__name__)

Broadcast = Callable[[str, Any], Awaitable[list[Any]]]
Outcome = dict[str, Any]
# tries a file; why it cannot be served, None if it passed
Trial = Callable[[ModelFile], Awaitable[str | None]]

# reason for a file that is not served
WORKER_ENDED = "a worker ended while it was loaded"
# how often workers may end while a file is loading, since one may end by chance
MAX_ENDS = 2
# pause between two looks at files that workers are loading
POLL_SECONDS = 0.02


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


async def no_trial(_: ModelFile) -> str | None:
    """The trial of a service that serves only files with a manifest, which need none."""
    return "it has no manifest, and there are no trials here"


@dataclass(frozen=True, slots=True)
class Preparation:
    """What became of the files of a deployment: why some cannot be served, and what is not known yet.

    `loading` files may be served soon, and `untried` ones need a trial first.
    """

    failed: Mapping[ModelFile, str]
    loading: frozenset[ModelFile] = frozenset()
    untried: frozenset[ModelFile] = frozenset()


class Rollout:
    """Scans, loads and unloads. Scans take place one at a time, and so do changes of what is served.

    No change waits for a file that takes long. The caller that asked for it waits, and makes further changes.

    Args:
        repository: Where the models are.
        policy: Which versions to serve, as `VersionPolicy.parse` takes it.
        broadcast: Sends a request ("prepare" or "commit", and a deployment) to all workers and returns their
            answers, None for a worker that ended. Workers that hang are left out.
        on_request: Serve only the models that `want` names, instead of all.
        trial: Tries a file without a manifest, where it can do no harm, before any worker loads it.
        slow_seconds: Seconds after which a trial does not delay the next one any more.
    """

    def __init__(
        self,
        repository: Repository,
        policy: str,
        broadcast: Broadcast,
        *,
        on_request: bool = False,
        trial: Trial = no_trial,
        slow_seconds: float = SLOW_SECONDS,
    ) -> None:
        self._repository = repository
        self._policy, self._policy_text = VersionPolicy.parse(policy), policy
        self._broadcast = broadcast
        self._deployment = Deployment()
        # models that a caller unloaded
        self._unloaded: frozenset[str] = frozenset()
        # the models to serve, None for all
        self._wanted: set[str] | None = set() if on_request else None
        # files that could not be loaded, with the reason, until they are replaced
        self._failed: dict[ModelFile, str] = {}
        # running trials, and the files that have passed theirs
        self._trials = FileQueue(trial, slow_seconds)
        self._tried: set[ModelFile] = set()
        # ends of workers while a file was loading, alone or with others; files that all workers have loaded
        self._ends_alone, self._ends = Counter[ModelFile](), Counter[ModelFile]()
        self._loadable: set[ModelFile] = set()
        # files of the first scan of which it is not known yet whether they can be served; None before it
        self._awaited: frozenset[ModelFile] | None = None
        # set with the first deployment
        self.deployed = asyncio.Event()
        self._stopped = False
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
    def largest_bytes(self) -> int:
        """The size of the largest file that is served."""
        return max((file.size for file in self._deployment.files), default=0)

    @property
    def failed(self) -> tuple[UnavailableModel, ...]:
        """Files of the repository that cannot be served."""
        return self._deployment.failed

    async def rescan(self, *, explicit: bool = True) -> None:
        """Scan the repository and serve what it has now.

        A scan that is not `explicit` (a poll) accepts only models that have not changed since the last scan,
        as the files of others may not be complete yet. It does not wait for files that take long.

        Raises:
            SettingError: The repository cannot be read and nothing has been served yet.
            NotReadyError: The rollout was stopped.
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
                self._accept(accepted)
                if self._awaited is None:
                    self._awaited = self._accepted_files
                if not explicit:
                    await self._advance()
        if explicit:
            await self._settle()

    async def load(self, name: str) -> Outcome:
        """Serve a model that was unloaded or has new files, and wait until it is served or has failed.

        Returns `ok`, and if that is false a `reason` and whether the model is `known`.

        Raises:
            NotReadyError: The rollout was stopped.
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
                self._accept(self._accept_models([name], contents))
        await self._settle([name])
        reason = self._load_failure(name, before) if self._is_wanted(name) else None
        return {"ok": True} if reason is None else _failure(f"{model} cannot be loaded: {reason}")

    async def reload_failed(self, names: Collection[str]) -> None:
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
                if found is not None:
                    self._accept(self._accept_models(names, found))
        await self._settle(names, verified=False)

    async def unload(self, name: str) -> Outcome:
        """Stop serving a model until it is loaded again or the service restarts."""
        async with self._lock:
            if name not in self._accepted.models:
                return _failure(f"model {name[:80]!r}: expected a model of the repository", known=False)
            self._unloaded |= {name}
            await self._advance()
            return {"ok": True}

    def stop(self) -> None:
        """End all trials. Who waits for one, or for a file that is being loaded, gets a NotReadyError."""
        self._stopped = True
        self._trials.keep(())

    def knows(self, name: str) -> bool:
        """Whether the repository has a model of this name."""
        return name in self._accepted.models

    async def want(self, name: str) -> None:
        """Serve a model from now on, if only some are served."""
        async with self._lock:
            if self._wanted is not None:
                self._wanted.add(name)
        await self._settle([name])

    async def drop(self, name: str) -> None:
        """Serve a model no longer, if only some are served."""
        async with self._lock:
            if self._wanted is not None:
                self._wanted.discard(name)
                await self._advance()

    def _expect_running(self) -> None:
        if self._stopped:
            raise NotReadyError("the service is stopping")

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
        if name in self._unloaded:
            return UNLOADED
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

    @property
    def _accepted_files(self) -> frozenset[ModelFile]:
        return frozenset(file for files in self._accepted.models.values() for file in files)

    def _accept(self, contents: RepositoryScan) -> None:
        """Base the deployment on a scan, and forget what is known of files that were replaced."""
        self._accepted = contents
        files = self._accepted_files
        self._failed = {file: reason for file, reason in self._failed.items() if file in files}
        self._tried &= files
        self._loadable &= files
        for ends in (self._ends_alone, self._ends):
            for file in ends.keys() - files:
                del ends[file]

    async def _settle(self, names: Collection[str] | None = None, *, verified: bool = True) -> None:
        """Have the workers serve what was accepted, until each file of these models is served or has failed.

        Without names, wait for all models.
        """
        while True:
            async with self._lock:
                undecided = await self._advance(verified=verified)
            waited_for = {file for file in undecided if names is None or file.name in names}
            if not waited_for:
                return
            if waited_for <= set(self._trials.unfinished):
                await self._trials.wait(waited_for, None, for_all=False)
            else:
                await asyncio.sleep(POLL_SECONDS)

    async def _advance(self, *, verified: bool = True) -> frozenset[ModelFile]:
        """Have the workers serve what they can by now. Returns the files that are still loading or on trial.

        If it is not `verified` that the current deployment is served, the workers prepare it again too.
        """
        self._expect_running()
        # prepare, leaving out files that fail or need a trial, until every worker has every other file
        while True:
            await self._leave_out(self._end_trials())
            target = self._choose_files()
            self._trials.keep(target.files)
            # of the files that may have ended workers, only the first is loaded at a time
            suspects = [file for file in target.files if self._ends[file] >= MAX_ENDS]
            held_back = frozenset([*self._trials.unfinished, *suspects[1:]])
            prepared = await self._prepare(target.without(held_back), verified=verified)
            for file in suspects:
                if file in self._loadable or file in prepared.failed:
                    del self._ends[file]
            for file in target.files:
                if file in prepared.untried:
                    self._trials.add(file)
            if not prepared.failed and not prepared.untried:
                break
            await self._leave_out(prepared.failed)
        undecided = held_back | prepared.loading
        if self._awaited is not None:
            self._awaited &= undecided
        await self._commit(self._with_unserved(self._without_undecided(target, undecided)))
        return undecided

    async def _commit(self, deployment: Deployment) -> None:
        if deployment == self._deployment and deployment.serial > 0:
            return
        self._deployment = replace(deployment, serial=deployment.serial + 1)
        await self._broadcast("commit", self._deployment.to_json())
        self.deployed.set()
        found = [f"{model.name}/{model.version}" for model in deployment.left_out if model.reason == NEW]
        if found:
            log.info("found %s: %s", ", ".join(found), NEW)
        else:
            loading = ", ".join(f"{file.name}/{file.version}" for file in deployment.loading)
            log.info(
                "serving %s%s",
                ", ".join(self.names) or "no model",
                f"; still loading {loading}" if loading else "",
            )

    def _end_trials(self) -> dict[ModelFile, str]:
        """Take the outcomes of trials; returns the files that have failed, with the reasons."""
        outcomes = self._trials.take()
        self._tried |= {file for file, reason in outcomes.items() if reason is None}
        return {file: reason for file, reason in outcomes.items() if reason is not None}

    async def _leave_out(self, failed: Mapping[ModelFile, str]) -> None:
        """Serve none of these files, but older versions in their place."""
        if failed:
            self._failed |= failed
            self._accepted = await self._with_older_versions(self._accepted)

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

    async def _prepare(self, deployment: Deployment, *, verified: bool) -> Preparation:
        """Have the workers load what is new in a deployment, or all of it if it is not `verified`."""
        new = [file for file in deployment.files if file not in self._deployment.files]
        if verified and not new:
            return Preparation({})
        answers = await self._broadcast("prepare", deployment.to_json())
        self._expect_running()
        if not answers or None in answers:
            return self._blame([file for file in new if file not in self._loadable])
        prepared = _preparation(answers, deployment, self._deployment)
        self._loadable |= set(new).difference(prepared.failed, prepared.loading, prepared.untried)
        if verified:
            # a worker that starts loads the others when it commits
            prepared = replace(prepared, loading=prepared.loading.intersection(new))
        # a worker that was still reading these files when they passed their trial loads them the next time
        passed = prepared.untried & self._tried
        if passed:
            prepared = replace(prepared, untried=prepared.untried - passed, loading=prepared.loading | passed)
        return prepared

    def _blame(self, loading: Collection[ModelFile]) -> Preparation:
        """A worker has ended while these files were loading. A file fails if it was the only one, twice.

        Several files are tried again together, and after that one at a time.
        """
        ends = self._ends_alone if len(loading) == 1 else self._ends
        ends.update(loading)
        failed = [file for file in loading if self._ends_alone[file] >= MAX_ENDS]
        for file in failed:
            del self._ends_alone[file]
        return Preparation(dict.fromkeys(failed, WORKER_ENDED), frozenset(loading).difference(failed))

    def _choose_files(self) -> Deployment:
        """The files to serve of those that were accepted, without those that failed.

        Failures do not change what is served.
        """
        models: dict[str, tuple[ModelFile, ...]] = {}
        for name, files in self._accepted.models.items():
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
                models[name] = tuple(replace(file, tried=file in self._tried) for file in chosen)
        return Deployment(self._deployment.serial, models)

    def _without_undecided(self, target: Deployment, undecided: Collection[ModelFile]) -> Deployment:
        """The target without files of which it is not known yet whether they can be served.

        In place of such a file, the same version goes on; without any, all versions do.
        """
        models: dict[str, tuple[ModelFile, ...]] = {}
        for name, files in target.models.items():
            served = {file.version: file for file in self._deployment.models.get(name, ())}
            files_or_none = [served.get(file.version) if file in undecided else file for file in files]
            available = tuple(file for file in files_or_none if file is not None) or tuple(served.values())
            if available:
                models[name] = available
        loading = tuple(file for file in target.files if file in undecided)
        complete = self._awaited is not None and not self._awaited
        return replace(target, models=models, loading=loading, complete=complete)

    def _with_unserved(self, deployment: Deployment) -> Deployment:
        """The deployment, with the files that failed and those that are left out on purpose or as yet."""
        contents = self._accepted
        failed, left_out = [], []
        known_versions = {(file.name, file.version) for file in (*deployment.files, *deployment.loading)}

        chosen = frozenset(known_versions)

        def not_chosen(name: str) -> str:
            return not_chosen_reason(self._policy_text, [number for other, number in chosen if other == name])

        for name, files in contents.models.items():
            for file in files:
                if name in self._unloaded:
                    left_out.append(UnavailableModel(name, file.version, UNLOADED))
                elif not self._is_wanted(name):
                    left_out.append(UnavailableModel(name, file.version, ON_REQUEST))
                elif file in self._failed:
                    failed.append(UnavailableModel(name, file.version, self._failed[file]))
                elif (name, file.version) not in known_versions:
                    left_out.append(UnavailableModel(name, file.version, not_chosen(name)))
        known_versions |= {(file.name, file.version) for file in self._accepted_files}
        left_out += [
            UnavailableModel(name, version, UNLOADED if name in self._unloaded else not_chosen(name))
            for name, versions in contents.unfetched.items()
            for version in versions
            if (name, version) not in known_versions
        ]
        for name, files in self._last_scan.models.items():
            known = contents.models.get(name, ())
            reason = UNLOADED if name in self._unloaded else NEW
            left_out += [UnavailableModel(name, file.version, reason) for file in files if file not in known]
        failed += [UnavailableModel(path.name, path.version, path.reason) for path in contents.skipped]
        return replace(deployment, failed=tuple(failed), left_out=tuple(left_out))


def _preparation(answers: list[Any], deployment: Deployment, current: Deployment) -> Preparation:
    """What the workers' answers say together. A file is still loading, or untried, if any worker says so."""
    files = {(file.name, file.version): file for file in deployment.files}

    def said_of(key: str) -> frozenset[ModelFile]:
        return frozenset(files[name, version] for answer in answers for name, version in answer[key])

    failed = _failures(answers, deployment, current)
    return Preparation(failed, said_of("loading").difference(failed), said_of("untried").difference(failed))


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
