"""The middleware of every request: routing, keys, endpoint, errors as JSON, counters and access log."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from starlette.requests import ClientDisconnect

from turnpike.service.errors import TooLargeError
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.requests.auth import Authenticator
from turnpike.service.requests.hosts import AllowedHosts
from turnpike.service.requests.observer import RequestObserver
from turnpike.service.requests.request import ClientGoneError, Request
from turnpike.service.requests.response import LARGE_RESPONSE_BYTES, Response
from turnpike.service.requests.router import Match, Router

TOO_LARGE_ALONE = (
    "server: this request needs more memory than the worker has, even without other requests; "
    "send fewer rows at a time"
)

# Smaller answers are sent as they are. They nearly fit into the ten packets that TCP sends before it waits
# for the client (14.6 KB), so they would not arrive sooner, and compressing takes 0.2 ms for the shortest.
COMPRESSED_FROM_BYTES = 1 << 14

# answers a request without calling its endpoint, or returns None; what CORS needs
Preflight = Callable[[Request], Response | None]


class Compressor(Protocol):
    """Compresses the body of an answer, if its client accepts that."""

    async def compress(self, request: Request, response: Response) -> None:
        """Replace the body, or leave it as it is."""


class RequestMiddleware:
    """Handles every request: of our own server by HTTP or gRPC, and of any ASGI server.

    Args:
        router: The routes.
        auth: The keys of each level of routes.
        budget: The memory for bodies and answers.
        observer: Notified of each request.
        hosts: The hosts that requests may name; None for any.
        preflight: Called before the endpoint.
        compressor: Compresses large answers; None to send all as they are.
    """

    def __init__(
        self,
        router: Router,
        auth: Authenticator,
        budget: MemoryBudget,
        observer: RequestObserver,
        hosts: AllowedHosts | None = None,
        *,
        preflight: Preflight | None = None,
        compressor: Compressor | None = None,
    ) -> None:
        self._router = router
        self._auth = auth
        self._budget = budget
        self._compressor = compressor
        self._observer = observer
        self._preflight = preflight
        self._hosts = hosts

    async def handle(self, request: Request, match: Match | None = None) -> None:
        """Answer a request. Raises only CancelledError, when the server cuts the request off at its end.

        Args:
            request: The request.
            match: Its route, if it has been looked up elsewhere.
        """
        observer, head = self._observer, request.head
        observer.count_in(request)
        try:
            if match is None:
                match = self._router.match(head)
            route = match.route
            if self._hosts is not None and not route.any_host:
                self._hosts.check(head)
            response = None if self._preflight is None else self._preflight(request)
            if response is None:
                request.route_path = route.label
                request.path_params = match.params
                self._auth.check(route.level, head.headers)
                response = await route.endpoint(request)
            if response is not None:
                if len(response.body) < COMPRESSED_FROM_BYTES:
                    sending = request.respond(response)
                    if sending is not None:
                        await sending
                else:
                    await self._respond_large(request, response)
        except (ClientGoneError, ClientDisconnect):
            pass
        except CancelledError:
            if not request.client_gone:
                raise
        except Exception as error:  # whatever failed, the caller gets an answer
            if isinstance(error, MemoryError) and self._is_alone(request):
                # no other request holds memory that this one lacks, so it would fail again
                error = TooLargeError(TOO_LARGE_ALONE)
            error_answer = observer.error_response(error, request)
            # an answer that has begun stays incomplete, and its connection is closed
            if not request.status:
                sending = request.respond(error_answer)
                if sending is not None:
                    await sending
        finally:
            if request.budgeted_bytes:
                self._budget.release(request)
            observer.count_out(request)

    def _is_alone(self, request: Request) -> bool:
        return self._budget.bytes == request.budgeted_bytes and not self._budget.was_full()

    async def _respond_large(self, request: Request, response: Response) -> None:
        """Send an answer that may be compressed, and that may be too large for a write buffer."""
        self._release_all_but_times(request)
        if self._compressor is not None:
            await self._compressor.compress(request, response)
        if len(response.body) < LARGE_RESPONSE_BYTES:
            sending = request.respond(response)
            if sending is not None:
                await sending
        else:
            with self._budget.hold(len(response.body)):
                await request.respond_slowly(response)

    def _release_all_but_times(self, request: Request) -> None:
        """Free what a request no longer needs while its client reads the answer, which may take long."""
        request.complete_body = None
        self._budget.release(request)
        if request.result is not None:
            request.result = replace(request.result, arrays=(), processed=None)
