"""Models that are loaded when the first request for them comes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from tests.support.rollout_workers import Workers, write
from turnpike.service.ray.model_on_request import HeldModel, ModelsOnRequest
from turnpike.service.repository.location import Location
from turnpike.service.repository.rollout import Rollout
from turnpike.service.requests.auth import Authenticator


class Service:
    """An application that notes what is served while it answers, behind the loading of models."""

    def __init__(self, root: Path, *keys: str) -> None:
        self.rollout = Rollout(Location(root), "latest", Workers(1).broadcast, on_request=True)
        self.served: list[list[str]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.loading = ModelsOnRequest(self.answer, Authenticator(keys), self.rollout)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.served.append(self.rollout.names)
        await self.may_answer.wait()

    async def request(self, path: str, *headers: tuple[bytes, bytes]) -> list[str]:
        """Send a request; returns what is served while it is answered."""

        async def unused(*_: Any) -> Any:
            raise AssertionError("expected the application not to use it")

        await self.loading({"type": "http", "path": path, "headers": list(headers)}, unused, unused)
        return self.served[-1]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("net", "other", "a:b"):
        write(tmp_path, name, 1)
    return tmp_path


def test_a_request_loads_its_model(root: Path) -> None:
    async def play() -> None:
        service = Service(root)
        await service.rollout.rescan()
        assert service.rollout.names == []
        assert await service.request("/v2/models/net/infer") == ["net/1"]
        assert await service.request("/v1/models/other:predict") == ["net/1", "other/1"]
        for path in ("/v2/models", "/v2/models/gone/infer", "/v1/models/gone:predict", "/metrics", "/"):
            assert await service.request(path) == ["net/1", "other/1"]

    asyncio.run(play())


def test_a_request_without_a_key_loads_nothing(root: Path) -> None:
    """It goes to the application, which refuses it."""

    async def play() -> None:
        service = Service(root, "a-long-enough-key")
        await service.rollout.rescan()
        assert await service.request("/v2/models/net/infer") == []
        assert await service.request("/v2/models/net/infer", (b"x-api-key", b"another")) == []
        assert await service.request("/v2/models/net/infer", (b"x-api-key", b"a-long-enough-key")) == [
            "net/1"
        ]

    asyncio.run(play())


def test_a_model_is_dropped_after_its_last_request(root: Path) -> None:
    async def play() -> None:
        service = Service(root)
        await service.rollout.rescan()
        held: list[HeldModel] = []

        async def hold(name: str) -> HeldModel:
            held.append(await service.loading.load(name))
            return held[-1]

        service.loading.hold = hold
        service.may_answer.clear()
        request = asyncio.create_task(service.request("/v2/models/net/infer"))
        while not service.served:
            await asyncio.sleep(0)
        dropping = asyncio.create_task(vars(held[0])["__del__"]())
        await asyncio.sleep(0.05)
        assert service.rollout.names == ["net/1"]
        service.may_answer.set()
        await request
        await dropping
        assert service.rollout.names == []

    asyncio.run(play())
