"""Answers that follow from a model's file alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.types import Message, Scope

from service.api.context import ServiceContext
from service.api.endpoint import MUCH
from service.api.model_facts import StaticModelEndpoint
from service.errors import OverloadedError
from service.http.body import MemoryBudget
from service.registry.model import Model
from tests.support.gates_app import OneModel
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import opened, put, sealed


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return opened(put(tmp_path, "net", 3, sealed(highway(layers=1))))


def parts_of(model: Model, most: int = 1 << 30) -> ServiceContext:
    held = MemoryBudget(most, limit=most, seconds=10)
    return cast("ServiceContext", SimpleNamespace(shelf=OneModel(model), held=held))


def answer(endpoint: StaticModelEndpoint, **version: str) -> bytes:
    """The body of an answer."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "http", "path_params": {"model": "net", **version}}
    asyncio.run(endpoint(scope, cast("Any", None), send))
    assert sent[0]["status"] == 200
    return b"".join(message["body"] for message in sent[1:])


def test_it_is_made_once_and_elsewhere(model: Model) -> None:
    """In a thread, so that nobody waits for it but who asks; then it is kept, for each that makes one."""
    threads = []

    def tell(told: Model) -> bytes:
        assert told is model
        threads.append(threading.current_thread())
        return b"{}"

    endpoint = StaticModelEndpoint(parts_of(model), tell)
    assert answer(endpoint) == answer(endpoint, version="3") == b"{}"
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()
    assert answer(StaticModelEndpoint(parts_of(model), lambda _: b"[]")) == b"[]"


def test_another_file_has_other_facts(tmp_path: Path, model: Model) -> None:
    """A version that takes a model's place is asked anew."""

    def tell(told: Model) -> bytes:
        return told.digest.encode()

    assert answer(StaticModelEndpoint(parts_of(model), tell)) == model.digest.encode()
    other = opened(put(tmp_path, "net", 4, sealed(highway(layers=2))))
    assert answer(StaticModelEndpoint(parts_of(other), tell)) == other.digest.encode()


def test_it_finds_what_it_is_told_to(model: Model) -> None:
    """Routes of gates have their own way, which refuses models without."""

    def find(parts: ServiceContext, params: Mapping[str, str]) -> Model:
        raise LookupError(params["model"])

    with pytest.raises(LookupError, match="net"):
        answer(StaticModelEndpoint(parts_of(model), lambda _: b"", find))


def test_much_is_counted_as_held(model: Model) -> None:
    """Answers that slow clients take in pieces are among the bytes that a worker may hold."""
    large = b"x" * MUCH
    assert answer(StaticModelEndpoint(parts_of(model, most=MUCH), lambda _: large)) == large
    model.cached_answers.clear()
    with pytest.raises(OverloadedError):
        answer(StaticModelEndpoint(parts_of(model, most=MUCH - 1), lambda _: large))
