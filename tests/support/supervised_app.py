"""An application of a user in this process, on our server as in a worker of `turnpike serve --app`."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.support.in_process_worker import MODEL_FILE, NAME, NoSupervisor
from turnpike.service.config.settings import Settings
from turnpike.service.embedded.supervised_app import SupervisedApp
from turnpike.service.http.connection.connection_counts import ConnectionCounts, SharedPort
from turnpike.service.http.connection.listener import listen
from turnpike.service.http.connection.server import DrainTiming, Server
from turnpike.service.repository.deployment import Deployment
from turnpike.service.repository.scan import ModelFile, file_identity

MODULE = "an_application_of_a_test"


class ServedApp(NamedTuple):
    """An application that is served."""

    port: int
    worker: SupervisedApp
    server: Server


@contextlib.asynccontextmanager
async def supervised_app(app: Any, **settings: Any) -> AsyncIterator[ServedApp]:
    """An application with a service in it, on a port of this machine."""
    module = ModuleType(MODULE)
    module.app = app  # type: ignore[attr-defined]
    listener = listen("127.0.0.1", 0)
    all_settings = Settings(drain_wait=0, drain_seconds=5, app=f"{MODULE}:app", **settings)
    with patch.dict(sys.modules, {MODULE: module}), patch.dict("os.environ"):
        worker = SupervisedApp(all_settings, NoSupervisor())
    await worker.start()
    file = ModelFile(NAME, 1, MODEL_FILE, file_identity(MODEL_FILE.stat()))
    assert not (await worker.handlers["commit"](Deployment(1, {NAME: (file,)}).to_json()))["failed"]
    timing = DrainTiming(handshake=0.01, quiet=0.02, step=0.002)
    server = Server(all_settings, SharedPort(listener, ConnectionCounts(1)), 1, worker, timing)
    try:
        yield ServedApp(listener.getsockname()[1], worker, server)
    finally:
        last = asyncio.Event()
        last.set()
        await server.drain(last)
        await worker.stop()
