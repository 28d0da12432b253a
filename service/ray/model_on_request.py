"""Loads a model when the first request for it comes, if a replica holds only some of the models at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from turnpike.service.errors import RequestError
from turnpike.service.repository.rollout import Rollout
from turnpike.service.requests.auth import Authenticator

# what a path that names a model begins with
MODEL_PATHS = ("/v1/models/", "/v2/models/")
# between looks at whether a model that shall go is still used
POLL_SECONDS = 0.02


@dataclass
class HeldModel:
    """A model that a replica holds. Ray calls `__del__` of the object before it drops a model for another."""

    name: str
    # requests that use it
    users: int = 0


class ModelsOnRequest:
    """An ASGI application that has the model of a request loaded, and then passes the request on.

    Args:
        app: Answers the requests.
        auth: Checks the keys, since a client without one must not have models loaded.
        rollout: Loads and drops the models; it must have been made with `on_request`.
    """

    def __init__(self, app: ASGIApp, auth: Authenticator, rollout: Rollout) -> None:
        self._app = app
        self._auth = auth
        self._rollout = rollout
        # the least recently used model goes first; set by the replica, whose class Ray wraps
        self.hold: Callable[[str], Awaitable[HeldModel]] = self.load

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held = await self._held_model(scope)
        if held is None:
            await self._app(scope, receive, send)
            return
        held.users += 1
        try:
            await self._app(scope, receive, send)
        finally:
            held.users -= 1

    async def load(self, name: str) -> HeldModel:
        """Load a model."""
        held = HeldModel(name)

        async def drop() -> None:
            while held.users:
                await asyncio.sleep(POLL_SECONDS)
            await self._rollout.drop(name)

        # not a method of the class: Python itself would call it, too, and not wait for it
        vars(held)["__del__"] = drop
        await self._rollout.want(name)
        return held

    async def _held_model(self, scope: Scope) -> HeldModel | None:
        """The model that a request is for, loaded; None if it names none, or its client may not use any."""
        name = self._model_name(scope)
        if name is None:
            return None
        try:
            self._auth.check("api", scope["headers"])
        except RequestError:
            # the application answers with the error
            return None
        return await self.hold(name)

    def _model_name(self, scope: Scope) -> str | None:
        """The model of the repository that a path names, such as /v1/models/NAME:predict."""
        path = scope["path"] if scope["type"] == "http" else ""
        for prefix in MODEL_PATHS:
            if path.startswith(prefix):
                segment = path.removeprefix(prefix).partition("/")[0]
                names = (segment, segment.rpartition(":")[0])
                return next(filter(self._rollout.knows, names), None)
        return None
