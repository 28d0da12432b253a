"""An application of the user in a worker of `turnpike serve --app`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from turnpike.service.api.context import SupervisorClient
from turnpike.service.config.resolve import variable_of
from turnpike.service.config.settings import Settings
from turnpike.service.embedded.app_import import import_app
from turnpike.service.embedded.fast_routes import FastRoutes
from turnpike.service.embedded.lifespan_protocol import LifespanProtocol
from turnpike.service.errors import UnimplementedError
from turnpike.service.http.asgi import OUTER_REQUEST, AsgiEndpoint
from turnpike.service.http.connection.shared_state import ConnectionLimits, HttpApplication
from turnpike.service.requests.body import too_slow_text
from turnpike.service.requests.request import ClientGoneError, Request

log = logging.getLogger(__name__)

NO_WEBSOCKETS = "WebSocket: expected plain HTTP, as `turnpike serve --app` has no WebSockets; uvicorn has"


class SupervisedApp:
    """Passes requests to the application. The service in it gets its models from the supervisor.

    The routes of the service are answered without the application if nothing of the user's would see them, or
    if `--fast-routes` says so.
    """

    def __init__(self, settings: Settings, supervisor: SupervisorClient) -> None:
        # how many workers share the CPUs and the memory
        os.environ[variable_of("workers")] = str(settings.workers)
        os.environ[variable_of("access_log")] = str(settings.access_log)
        user_app = import_app(str(settings.app))
        self._service = user_app.service
        self._service.supervised_by(supervisor)
        self._application = self._service.application
        self._lifespan = LifespanProtocol(user_app.app)
        self._app = user_app.app
        self._endpoint = AsgiEndpoint(self._call, head_as_get=False)
        self._fast_routes = FastRoutes(user_app.app, user_app.service, forced=settings.fast_routes)
        self.grpc: HttpApplication | None = None
        self.connection_limits = ConnectionLimits(
            settings.max_header, settings.header_seconds, settings.idle_seconds
        )
        self.count_refused = self._application.observer.count_refused
        self.handlers: dict[str, Callable[[Any], Awaitable[Any]]] = self._application.handlers

    @property
    def draining(self) -> bool:
        """Whether the service is stopping."""
        return self._application.draining

    @draining.setter
    def draining(self, draining: bool) -> None:
        self._application.draining = draining

    async def start(self) -> None:
        """Start the service, and then the application."""
        await self._service.start()
        await self._lifespan.start()
        self._fast_routes.find()
        skipped = ", ".join(self._fast_routes.skipped)
        if not self._fast_routes.are_used:
            log.info("all requests go through the application, because of its %s", skipped)
        elif skipped:
            log.warning(
                "--fast-routes: requests for the routes of the service skip the application's %s", skipped
            )

    async def stop(self) -> None:
        """End the application and the service."""
        await self._lifespan.stop()
        await self._service.stop()

    async def handle(self, request: Request) -> None:
        """Answer a request."""
        match = self._fast_routes.match(request.head.method, request.head.path)
        if match is not None:
            await self._application.middleware.handle(request, match)
            return
        observer = self._application.observer
        observer.identify(request)
        request.outlives_client = True
        try:
            await self._endpoint(request)
        except ClientGoneError:
            pass
        except asyncio.CancelledError:
            if not request.client_gone:
                raise
        except Exception as error:  # Starlette raises an error again that it has answered
            answer = observer.error_response(error, request)
            if not request.status and (sending := request.respond(answer)) is not None:
                await sending
        finally:
            # the service counts and logs its own requests
            if not request.recorded:
                observer.note_end(request)

    async def _call(self, scope: Any, receive: Any, send: Any) -> None:
        request = scope[OUTER_REQUEST]
        if b"sec-websocket-key" in request.head.fields:
            raise UnimplementedError(NO_WEBSOCKETS)
        scope["state"] = dict(self._lifespan.state)
        receive = receiving_within(self._application.context.settings.body_seconds, receive)
        try:
            await self._app(scope, receive, send)
        finally:
            route = scope.get("route")
            request.route_path = getattr(route, "path", "unknown").replace(":path}", "}")


def receiving_within(seconds: float, receive: Receive) -> Receive:
    """Receives a request, and raises an HTTPException if its body takes too long.

    Only the time in which the application waits for the client counts.
    """
    seconds_left = seconds
    is_complete = False

    async def receive_in_time() -> Message:
        nonlocal seconds_left, is_complete
        if is_complete:
            # the end of the connection, which may take as long as the answer
            return await receive()
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout_at(began + seconds_left):
                message = await receive()
        except TimeoutError as error:
            raise HTTPException(408, too_slow_text(seconds), {"Connection": "close"}) from error
        seconds_left -= loop.time() - began
        is_complete = not message.get("more_body", False)
        return message

    return receive_in_time
