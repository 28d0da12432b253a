"""The middleware of every request: routing, keys, endpoint, errors as JSON, counters and access log."""

from __future__ import annotations

from asyncio import CancelledError
from dataclasses import replace

from starlette.requests import ClientDisconnect

from turnpike.service.errors import TooLargeError
from turnpike.service.http.auth import Authenticator
from turnpike.service.http.compression import COMPRESSED_FROM_BYTES, AnswerCompressor
from turnpike.service.http.cors import Cors
from turnpike.service.http.hosts import AllowedHosts
from turnpike.service.http.observer import RequestObserver
from turnpike.service.http.request import ClientGoneError, Request
from turnpike.service.http.response import LARGE_RESPONSE_BYTES, Response
from turnpike.service.http.router import Router
from turnpike.service.memory.budget import MemoryBudget

TOO_LARGE_ALONE = (
    "server: this request needs more memory than the worker has, even without other requests; "
    "send fewer rows at a time"
)


class RequestMiddleware:
    """Handles every request, whether it came through our own server or an ASGI server."""

    def __init__(
        self,
        router: Router,
        auth: Authenticator,
        budget: MemoryBudget,
        observer: RequestObserver,
        cors: Cors | None = None,
        hosts: AllowedHosts | None = None,
        *,
        compresses: bool = True,
    ) -> None:
        """`compresses` says whether large answers may be compressed as HTTP does it."""
        self._router = router
        self._auth = auth
        self._budget = budget
        self._compressor = AnswerCompressor(budget) if compresses else None
        self._observer = observer
        self._cors = cors
        self._hosts = hosts

    async def handle(self, request: Request) -> None:
        """Answer a request. Raises only CancelledError, when the server cuts the request off at its end."""
        observer, head = self._observer, request.head
        observer.started(request)
        try:
            match = head.match
            if match is None:
                match = self._router.match(head)
                if self._hosts is not None and not match.route.any_host:
                    self._hosts.check(head)
                # kept with a head that is received again, so its host must have been checked
                head.match = match
            response = None if self._cors is None else self._cors.apply(request)
            if response is None:
                route = match.route
                request.route_path = route.path
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
            if isinstance(error, MemoryError) and self._budget.bytes == request.budgeted_bytes:
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
            observer.finished(request)

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
