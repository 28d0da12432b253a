"""One service in the process of a FastAPI application: starts and stops with it, and answers its requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from starlette.types import Receive, Scope, Send

from turnpike.service.api.app import Application
from turnpike.service.api.context import SupervisorClient
from turnpike.service.embedded.embedded_settings import EmbeddedSettings
from turnpike.service.embedded.in_process_supervisor import InProcessSupervisor
from turnpike.service.errors import NotReadyError, SettingError
from turnpike.service.http.asgi import OUTER_REQUEST, AsgiRequest
from turnpike.service.registry.hooks import Hooks, unknown_model
from turnpike.service.repository.location import BUNDLED_REPOSITORY, locate
from turnpike.service.requests.observer import CLIENT_CLOSED_REQUEST
from turnpike.service.requests.request import Request
from turnpike.service.requests.response import Response
from turnpike.service.requests.router import Match

log = logging.getLogger(__name__)

# the reason of not being ready at the first request, if no lifespan has started the service before
UNSTARTED = (
    "the service starts at its first request, which may take some seconds; "
    "with FastAPI(lifespan=turnpike.lifespan) it starts with the application"
)
# routes that answer before the service has started, and do not wait for it
PROBES = frozenset({"live", "ready"})


class EmbeddedService:
    """The routes, models and counters of one service.

    It starts with the lifespan of the application, or else at the first request. It runs in one event loop at
    a time. In a new loop it starts again and keeps its models: a `TestClient` without `with` has a loop for
    each request.
    """

    def __init__(self, resolved: EmbeddedSettings, hooks: Mapping[str, Hooks] | None = None) -> None:
        self.resolved = resolved
        self._supervisor = InProcessSupervisor(resolved.settings)
        self.application = Application(resolved.settings, self._supervisor, hooks)
        self.application.unstarted_reason = UNSTARTED
        if resolved.settings.models is None:
            # what is bundled does not change, so no model can come later
            bundled = set(locate(BUNDLED_REPOSITORY).scan().models)
            for name in (hooks or {}).keys() - bundled:
                raise SettingError(unknown_model(name, bundled))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Task[None] | None = None
        # the event loop in which it has started
        self._started_in: asyncio.AbstractEventLoop | None = None

    def supervised_by(self, supervisor: SupervisorClient) -> None:
        """Get models and counters from the supervisor of `turnpike serve`. Called before the start."""
        self._supervisor.serve_supervisor = supervisor

    async def start(self) -> None:
        """Start in this event loop, unless it has done so already.

        Returns when models are served. Under `turnpike serve --app` it returns at once: the supervisor sends
        the models, and lets the worker accept connections when they are served.

        Raises:
            RuntimeError: It runs in another event loop.
            ServiceError: It cannot start, for example because there is no repository.
        """
        self.application.unstarted_reason = None
        await asyncio.shield(self._begin_start())

    async def stop(self) -> None:
        """Stop following the repository. Called after the last request; it may be started again."""
        if self._starting is None or self._loop is not asyncio.get_running_loop():
            return
        starting, self._starting, self._loop, self._started_in = self._starting, None, None, None
        self.application.draining = True
        await asyncio.wait([starting])
        await self._supervisor.stop()
        await self.application.stop()

    async def answer(self, match: Match, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request of an ASGI server, of which FastAPI has found the route."""
        if match.route.name in PROBES:
            self._begin_start()
        elif self._started_in is not asyncio.get_running_loop():
            match = await self._started(match)
        request = AsgiRequest(scope, receive, send)
        outer: Request | None = scope.get(OUTER_REQUEST)
        if outer is None:
            await self.application.middleware.handle(request, match)
            return
        # our own server has passed the request to the application
        request.head.chosen_id = outer.id
        outer.recorded = True
        outer.on_client_gone = request.abandon
        try:
            await self.application.middleware.handle(request, match)
        finally:
            outer.on_client_gone = None
        if request.client_gone and not request.status:
            # nobody gets it, but middleware of the user may expect an answer
            await send({"type": "http.response.start", "status": CLIENT_CLOSED_REQUEST, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    async def _started(self, match: Match) -> Match:
        """The match after the start; if that failed, one whose endpoint says so. The next request retries."""
        task = self._begin_start()
        try:
            # a client that leaves does not end the start for the others
            await asyncio.shield(task)
        except Exception:
            log.exception("the service cannot start")
            return Match(match.route.answered_by(_cannot_start), match.params)
        return match

    def _begin_start(self) -> asyncio.Task[None]:
        loop = asyncio.get_running_loop()
        if self._starting is None or self._has_other_loop() or _has_failed(self._starting):
            if self._loop is not None and self._has_other_loop() and self._loop.is_running():
                raise RuntimeError("expected one event loop, got another while the service runs in the first")
            self._loop = loop
            self._starting = loop.create_task(self._start())
            # a probe does not wait for it, and nobody else may learn of its error
            self._starting.add_done_callback(_has_failed)
        return self._starting

    def _has_other_loop(self) -> bool:
        return self._loop is not asyncio.get_running_loop()

    async def _start(self) -> None:
        if self._supervisor.serve_supervisor is not None:
            await self.application.start()
            self._started_in = self._loop
            return
        # what an earlier event loop has left
        self.application.observer.record()
        self.application.registry.restart()
        self.application.context.bodies.restart()
        self.application.draining = False
        await self.application.start()
        try:
            await self._supervisor.start(self.application.handlers)
        except BaseException:
            await self._supervisor.stop()
            raise
        self.application.unstarted_reason = None
        self._started_in = self._loop


def _has_failed(task: asyncio.Task[None]) -> bool:
    """Whether a task has ended with an error, which counts as retrieved then."""
    return task.done() and (task.cancelled() or task.exception() is not None)


async def _cannot_start(_: Request) -> Response:
    raise NotReadyError("the service cannot start; its log says why")
