"""Decides what all workers serve: looks into the repository, has new files tried, and swapped in.

It lives in the supervisor and never opens a model itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from service.errors import SettingError
from service.repository.deployment import NOT_CHOSEN, UNLOADED, Deployment, UnavailableModel
from service.repository.scan import ModelFile, RepositoryScan, VersionPolicy, scan

log = logging.getLogger(__name__)

Broadcast = Callable[[str, Any], Awaitable[list[Any]]]
Outcome = dict[str, Any]


class Rollout:
    """Looks, loads and unloads, one at a time. `broadcast` asks something of all workers and gives their
    answers: "prepare" to load what a plan has, "commit" to serve it."""

    def __init__(self, root: Path, policy: str, broadcast: Broadcast) -> None:
        self._root = root
        self._policy = VersionPolicy.parse(policy)
        self._not_chosen = NOT_CHOSEN + policy
        self._broadcast = broadcast
        self._plan = Deployment()
        self._unloaded: frozenset[str] = frozenset()
        # files that were tried in vain, until another one stands in their place
        self._failed: dict[ModelFile, str] = {}
        # what the last look saw, and that part of it which the plan was made of
        self._seen = self._taken = RepositoryScan()
        self._lock = asyncio.Lock()

    @property
    def plan(self) -> dict[str, Any]:
        """What is served, for a worker that comes later: it prepares and commits this."""
        return self._plan.to_json()

    @property
    def names(self) -> list[str]:
        """The models that are served, with their versions."""
        return [f"{found.name}/{found.version}" for found in self._plan.files]

    @property
    def failed(self) -> tuple[UnavailableModel, ...]:
        """What is there and cannot be served."""
        return self._plan.failed

    async def rescan(self, *, explicit: bool = True) -> None:
        """Serve what the repository has now. A SettingError where it cannot be read at the first look.

        A look that nobody asked for takes only files that are as they were at the look before: those
        that are still being written must wait.
        """
        async with self._lock:
            try:
                contents = scan(self._root)
            except SettingError as error:
                if self._plan.serial == 0:
                    raise
                log.warning("what is served stays as it is: %s", error)
                return
            taken = contents if explicit else self._settled(contents)
            self._seen = contents
            if explicit:
                self._failed = {}
            await self._apply(taken)

    async def load(self, name: str) -> Outcome:
        """Serve a model that was unloaded or has new files: `ok`, or a `reason` and whether it is `known`."""
        async with self._lock:
            said = f"model {name[:80]!r}"
            try:
                contents = scan(self._root)
            except SettingError as error:
                log.warning("%s", error)
                return _failure(f"{said} cannot be loaded: the repository cannot be read")
            if name not in contents.models:
                reasons = [skipped.reason for skipped in contents.skipped if skipped.name == name]
                if reasons:
                    return _failure(f"{said} cannot be loaded: {reasons[0]}")
                return _failure(f"{said}: expected a model of the repository", known=False)
            self._unloaded -= {name}
            before = self._plan.models.get(name)
            await self._apply(self._with([name], contents))
            why = self._why_not(name, before)
            return {"ok": True} if why is None else _failure(f"{said} cannot be loaded: {why}")

    async def reload_failed(self, names: Iterable[str]) -> None:
        """Have models served that a worker could not load though they are planned.

        New files in their place are taken, where they are good. A file that no worker has any more is
        served no more: an older version takes its place, where there is one.
        """
        async with self._lock:
            try:
                contents = self._with(names, scan(self._root))
            except SettingError as error:
                log.warning("%s", error)
                contents = self._taken
            await self._apply(contents, verified=False)

    async def unload(self, name: str) -> Outcome:
        """Serve a model no more, until it is loaded again or the service starts anew."""
        async with self._lock:
            if name not in self._taken.models:
                return _failure(f"model {name[:80]!r}: expected a model of the repository", known=False)
            self._unloaded |= {name}
            await self._apply(self._taken)
            return {"ok": True}

    def _with(self, names: Iterable[str], contents: RepositoryScan) -> RepositoryScan:
        """What was taken, but some models as they are now; the others wait for a look of their own."""
        there = {name: contents.models[name] for name in names if name in contents.models}
        self._failed = {found: why for found, why in self._failed.items() if found.name not in there}
        return RepositoryScan({**self._taken.models, **there}, contents.skipped)

    def _why_not(self, name: str, before: tuple[ModelFile, ...] | None) -> str | None:
        """Why a load brought nothing, None where it did; `before` is what was served until then."""
        served = self._plan.models.get(name, ())
        least = served[0].version if served else 0
        failed = [(one.version or 0, one.reason) for one in self._plan.failed if one.name == name]
        newer = [one for one in failed if one[0] >= least]
        if not served:
            return max(newer)[1] if newer else "none of its versions is among those to serve"
        if served != before or not newer:
            return None
        numbers = ", ".join(str(found.version) for found in served)
        goes_on = f"version {numbers} goes on" if len(served) == 1 else f"versions {numbers} go on"
        return f"{max(newer)[1]}; {goes_on}"

    def _settled(self, contents: RepositoryScan) -> RepositoryScan:
        """What two looks saw alike; a model that is changing stays as it was taken."""
        models: dict[str, tuple[ModelFile, ...]] = {}
        for name in sorted(contents.models.keys() | self._taken.models.keys()):
            now = contents.models.get(name, ())
            taken = now if now == self._seen.models.get(name, ()) else self._taken.models.get(name, ())
            if taken:
                models[name] = taken
        return RepositoryScan(models, contents.skipped)

    async def _apply(self, contents: RepositoryScan, *, verified: bool = True) -> None:
        """Have the workers serve what is there, or where that fails what comes nearest to it.

        Unless it is `sure` that what is planned is served, they are asked about that, too.
        """
        self._taken = contents
        self._failed = {
            found: why for found, why in self._failed.items() if found in contents.models.get(found.name, ())
        }
        while True:
            plan = self._planned(contents)
            if verified and plan.models == self._plan.models:
                break
            answers = await self._broadcast("prepare", plan.to_json())
            if None in answers or not answers:
                # a worker ended, by chance or by these files: a second one tells
                answers = await self._broadcast("prepare", plan.to_json())
            failed = _failures(answers, plan, self._plan)
            if not failed:
                break
            self._failed |= failed
        if plan == self._plan and plan.serial > 0:
            return
        self._plan = Deployment(self._plan.serial + 1, plan.models, plan.failed, plan.left_out)
        await self._broadcast("commit", self._plan.to_json())
        log.info("serving %s", ", ".join(self.names) or "no model")

    def _planned(self, contents: RepositoryScan) -> Deployment:
        """The plan for what is there, but for what was tried in vain; that leaves what is served as it is."""
        models: dict[str, tuple[ModelFile, ...]] = {}
        for name, found in contents.models.items():
            if name in self._unloaded:
                continue
            served = {one.version: one for one in self._plan.models.get(name, ()) if one not in self._failed}
            good = [one for one in found if one not in self._failed]
            kept = [served[one.version] for one in found if one in self._failed and one.version in served]
            chosen = self._policy.choose([*good, *kept])
            if not chosen and any(one in self._failed for one in found):
                chosen = tuple(served.values())
            if chosen:
                models[name] = chosen
        return Deployment(self._plan.serial, models, *self._unserved(contents, models))

    def _unserved(
        self, contents: RepositoryScan, models: Mapping[str, tuple[ModelFile, ...]]
    ) -> tuple[tuple[UnavailableModel, ...], tuple[UnavailableModel, ...]]:
        """What is there beside the models of a plan: what failed, and what is not wanted."""
        failed, left_out = [], []
        for name, found in contents.models.items():
            served = {one.version for one in models.get(name, ())}
            for one in found:
                if name in self._unloaded:
                    left_out.append(UnavailableModel(name, one.version, UNLOADED))
                elif one in self._failed:
                    failed.append(UnavailableModel(name, one.version, self._failed[one]))
                elif one.version not in served:
                    left_out.append(UnavailableModel(name, one.version, self._not_chosen))
        failed += [UnavailableModel(one.name, one.version, one.reason) for one in contents.skipped]
        return tuple(failed), tuple(left_out)


def _failures(answers: list[Any], plan: Deployment, before: Deployment) -> dict[ModelFile, str]:
    """The new files that any worker could not load, and why; all of them where one did not live to say.

    What is served already was opened once, and fails in a worker that came too late for it: such a file
    has failed when no worker has it.
    """
    if None in answers or not answers:
        fresh = (found for found in plan.files if found not in before.files)
        return dict.fromkeys(fresh, "a worker ended while it was loaded")
    failed: dict[ModelFile, str] = {}
    for found in plan.files:
        reasons = [
            one["reason"]
            for answer in answers
            for one in answer["failed"]
            if (one["name"], one["version"]) == (found.name, found.version)
        ]
        if reasons and (found not in before.files or len(reasons) == len(answers)):
            failed[found] = reasons[0]
    return failed


def _failure(reason: str, *, known: bool = True) -> Outcome:
    return {"ok": False, "known": known, "reason": reason}
