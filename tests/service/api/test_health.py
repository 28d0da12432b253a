"""The answers for probes: whether the service is ready, and why not."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.asgi import Reply, ask
from tests.support.in_process_worker import NoSupervisor
from turnpike.service.api.app import Application
from turnpike.service.config.settings import Settings
from turnpike.service.repository.deployment import Deployment, UnavailableModel

DAMAGED = UnavailableModel("digits", 1, "its file is damaged or not an ONNX model")


def application(deployment: Deployment | None = None, **settings: Any) -> Application:
    """An application with this deployment, as its supervisor sends it."""
    made = Application(Settings(access_log=False, **settings), NoSupervisor())
    if deployment is not None:
        asyncio.run(made.handlers["commit"](deployment.to_json()))
    return made


def answers(made: Application) -> tuple[Reply, Reply]:
    return ask(made, "GET", "/v2/health/live"), ask(made, "GET", "/v2/health/ready")


def expect_reason(made: Application, reason: str) -> None:
    """Both answers have it, and the process is alive all the same."""
    live, ready = answers(made)
    assert (live.status, ready.status) == (200, 503)
    assert live.json == ready.json == {"live": True, "ready": False, "reason": reason}


def test_a_service_that_is_ready_has_no_reason() -> None:
    """One without models is."""
    live, ready = answers(application(Deployment(1)))
    assert (live.status, ready.status) == (200, 200)
    assert live.json == ready.json == {"live": True, "ready": True}


def test_a_service_that_serves_none_of_its_models_says_why() -> None:
    expect_reason(
        application(Deployment(1, failed=(DAMAGED,))),
        "no model is served: digits/1: its file is damaged or not an ONNX model",
    )


def test_a_service_that_starts_or_stops_says_so() -> None:
    expect_reason(application(), "the first scan is not complete")
    stopping = application(Deployment(1))
    stopping.draining = True
    expect_reason(stopping, "the service is stopping")


def test_probes_learn_no_names_if_others_need_a_key() -> None:
    """They have no key."""
    expect_reason(
        application(Deployment(1, failed=(DAMAGED,)), api_keys=("secret",)),
        "no model is served: its file is damaged or not an ONNX model",
    )
