"""Runs the start and the end of an ASGI application, as an ASGI server does."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from starlette.types import ASGIApp, Message

from turnpike.service.errors import ServiceError

log = logging.getLogger(__name__)


class LifespanProtocol:
    """The lifespan of one application. `state` is what it keeps for its requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._to_app: asyncio.Queue[Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[Message] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self.state: dict[str, Any] = {}

    async def start(self) -> None:
        """Return when the application has started. One that does not know the protocol is ready at once.

        Raises:
            ServiceError: The application cannot start.
        """
        self._task = asyncio.create_task(self._run())
        answer = await self._ask("startup")
        if answer["type"] == "lifespan.startup.failed":
            raise ServiceError(f"--app: the application cannot start: {answer.get('message', '')}")

    async def stop(self) -> None:
        """Return when the application has ended."""
        if self._task is not None and not self._task.done():
            answer = await self._ask("shutdown")
            if answer["type"] == "lifespan.shutdown.failed":
                log.error("the application failed at its end: %s", answer.get("message", ""))

    async def _ask(self, event: str) -> Message:
        await self._to_app.put({"type": f"lifespan.{event}"})
        return await self._from_app.get()

    async def _run(self) -> None:
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        try:
            await self._app(scope, self._to_app.get, self._from_app.put)
        except Exception:
            # raised by an application that does not know the protocol
            log.debug("the application has no lifespan", exc_info=True)
        finally:
            # also if it was cancelled: somebody may wait for its answer
            self._from_app.put_nowait({"type": "lifespan.ended"})
