"""Fake workers that record what a rollout asks of them, and a repository of fake files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tests.support.tiny_repository import put_model
from turnpike.service.repository.deployment import Deployment
from turnpike.service.repository.location import Location
from turnpike.service.repository.rollout import Rollout


class Workers:
    """Records requests and answers as workers do. The last worker fails on files with the content `bad`."""

    def __init__(self, count: int = 2) -> None:
        self.count = count
        self.bad = b"bad"
        self.requests: list[tuple[str, Deployment]] = []

    async def broadcast(self, name: str, argument: Any) -> list[Any]:
        deployment = Deployment.from_json(json.loads(json.dumps(argument)))
        assert deployment.to_json() == argument
        self.requests.append((name, deployment))
        if name == "commit":
            return [{"serial": deployment.serial}] * self.count
        failed = [
            {"name": file.name, "version": file.version, "reason": "its file is damaged"}
            for file in deployment.files
            if file.path.read_bytes() == self.bad
        ]
        answer: dict[str, Any] = {"loading": [], "untried": []}
        return [{"failed": [], **answer}] * (self.count - 1) + [{"failed": failed, **answer}]

    @property
    def committed(self) -> Deployment:
        """The deployment of the last request, which must be a commit."""
        (name, deployment) = self.requests[-1]
        assert name == "commit"
        return deployment


def write(root: Path, name: str, version: int, content: bytes = b"good") -> None:
    put_model(root, name, version, content)


def run(*coroutines: Coroutine[Any, Any, Any]) -> Any:
    """Run the coroutines one after another, and return the result of the last."""

    async def in_order() -> Any:
        return [await coroutine for coroutine in coroutines][-1]

    return asyncio.run(in_order())


def start(root: Path, workers: Workers, policy: str = "latest") -> Rollout:
    rollout = Rollout(Location(root), policy, workers.broadcast)
    run(rollout.rescan())
    return rollout
