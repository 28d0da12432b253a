"""The application as a whole: each route has an access level and is documented."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process_worker import NoSupervisor
from tests.support.route_table import route_table
from turnpike.common.distribution import VERSION
from turnpike.service.api.app import Application
from turnpike.service.config.settings import Settings
from turnpike.service.low_priority import LOWEST_PRIORITY, Caller, call_directly
from turnpike.service.registry.served_models import ModelRegistry
from turnpike.service.repository.scan import ModelFile

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def application() -> Application:
    """An application without a model."""
    return Application(Settings(), NoSupervisor())


def test_every_route_declares_its_key_level(application: Application) -> None:
    """Only health, the dashboard and the API reference are open. Changing the service needs the admin key."""
    levels: dict[str, set[str]] = {}
    for entry in route_table(application):
        levels.setdefault(entry.level, set()).add(entry.path)
    assert levels["open"] == {
        "/v2/health/live",
        "/v2/health/ready",
        "/",
        "/dashboard/{file:path}",
        "/docs",
        "/docs/{file}",
        "/openapi.json",
    }
    assert levels["admin"] == {
        "/v2/repository/models/{model}/load",
        "/v2/repository/models/{model}/unload",
    }
    assert len(levels["api"]) > 20


def test_every_endpoint_is_documented(application: Application) -> None:
    """docs/reference/http-api.md lists them with their methods, and no others."""
    text = (ROOT / "docs/reference/http-api.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`((?:GET|POST) /[^`]*)`", text))
    real = {
        f"{entry.method} {entry.path.replace('/versions/{version}', '')}"
        for entry in route_table(application)
        if entry.path not in {"/v2/", "/dashboard/{file:path}", "/docs/{file}"}
    }
    assert documented == real


def test_all_versions_agree() -> None:
    """The service and pyproject.toml agree. The command has no version of its own."""
    assert f'\nversion = "{VERSION}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_later_models_are_loaded_with_low_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests to served models go first. The first model is loaded at the usual priority."""
    application = Application(Settings(), NoSupervisor())

    def load(file: ModelFile, call: Caller = call_directly, **_: Any) -> int:
        return call(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    monkeypatch.setattr(application, "_load", load)
    file = ModelFile("net", 1, Path("model.onnx"), (0, 0, 0))
    served: list[Any] = []
    monkeypatch.setattr(ModelRegistry, "models", property(lambda registry: served))
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert application._load_model(file) == own
    served.append(object())
    assert application._load_model(file) == LOWEST_PRIORITY
