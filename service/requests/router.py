"""Finds the endpoint of a request by its method and path."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from starlette.exceptions import HTTPException

from turnpike.service.bounded_cache import BoundedCache
from turnpike.service.requests.auth import AccessLevel
from turnpike.service.requests.request import Request, RequestHead
from turnpike.service.requests.response import Response

# An endpoint returns its answer, or None if it has sent one itself. It takes the requests of its transport,
# such as the calls of gRPC.
Endpoint = Callable[[Any], Awaitable[Response | None]]

# More than the pairs of method and path that are in use at a time. A known pair takes 0.3 µs, and a search of
# the routes 2 to 11 µs.
MAX_CACHED_MATCHES = 1024
# longer paths are not cached
MAX_CACHED_PATH_LENGTH = 200
# a parameter in a path that `re.escape` has escaped
PARAMETER = re.compile(r"\\\{(\w+)(:path)?\\\}")


@dataclass(frozen=True, slots=True)
class Route:
    """An endpoint and the pattern of its path: `{name}` is one segment, `{name:path}` all that follow."""

    # the pattern without `:path`, for metrics, the log and the documentation
    label: str
    # as `Router.add` got it
    pattern: str
    method: str
    level: AccessLevel
    endpoint: Endpoint
    name: str
    regex: re.Pattern[str]
    # its OpenAPI operation, without what follows from the fields above
    operation: Mapping[str, Any]
    # whether it answers requests for hosts that `--allowed-hosts` does not list
    any_host: bool

    def answers(self, method: str) -> bool:
        """Whether it answers this method; GET includes HEAD."""
        return self.method == method or (self.method == "GET" and method == "HEAD")

    def answered_by(self, endpoint: Endpoint) -> Route:
        """The same route with another endpoint, which needs no key."""
        return replace(self, level="open", endpoint=endpoint)


@dataclass(frozen=True, slots=True)
class Match:
    """The route of a request, and the named segments of its path."""

    route: Route
    params: Mapping[str, str]


class Router:
    """The routes of the service. Requests that match none go to the endpoint `fallback`."""

    def __init__(self, fallback: Endpoint) -> None:
        self.routes: list[Route] = []
        self.fallback = Match(_route("", "unknown", "open", fallback, "fallback", {}, any_host=False), {})
        self._matches: BoundedCache[tuple[str, str], Match] = BoundedCache(MAX_CACHED_MATCHES)

    def add(
        self,
        method: str,
        path: str,
        level: AccessLevel,
        endpoint: Endpoint,
        name: str,
        operation: Mapping[str, Any],
        *,
        any_host: bool = False,
    ) -> None:
        """Add a route.

        Args:
            method: The HTTP method; GET includes HEAD.
            path: The pattern of the path, such as `/v2/models/{model}`.
            level: The level of the keys that may call it; see `auth`.
            endpoint: Called with each request.
            name: Identifies the operation in the OpenAPI document.
            operation: The rest of the operation, see `service.api.openapi.operation`. If it is empty, the
                document leaves the route out.
            any_host: Answer requests for any host. Probes send the address of the container.
        """
        self.routes.append(_route(method, path, level, endpoint, name, operation, any_host=any_host))

    def match(self, head: RequestHead) -> Match:
        """Look up the route of a head.

        Its endpoint raises a 405 if the path has routes only for other methods.
        """
        key = (head.method, head.path)
        match = self._matches.get(key)
        if match is None:
            match = self._search(*key)
            if len(head.path) <= MAX_CACHED_PATH_LENGTH:
                self._matches.add(key, match)
        return match

    def find(self, method: str, path: str) -> Match | None:
        """The route of a path that answers this method; None if there is none."""
        match = self._search(method, path)
        found = match is not self.fallback and match.route.answers(method)
        return match if found else None

    def _search(self, method: str, path: str) -> Match:
        first: Match | None = None
        for route in self.routes:
            path_match: Any = route.regex.fullmatch(path)
            # `/v1/models/net:predict` is not the model `net:predict`: the first pattern that fits decides
            if path_match is not None and (first is None or route.label == first.route.label):
                match = Match(route, path_match.groupdict())
                if route.answers(method):
                    return match
                first = first or match
        if first is None:
            return self.fallback
        return Match(wrong_method(first.route), first.params)


def _route(
    method: str,
    path: str,
    level: AccessLevel,
    endpoint: Endpoint,
    name: str,
    operation: Mapping[str, Any],
    *,
    any_host: bool,
) -> Route:
    regex = PARAMETER.sub(lambda match: f"(?P<{match[1]}>{'.*' if match[2] else '[^/]+'})", re.escape(path))
    return Route(
        path.replace(":path}", "}"),
        path,
        method,
        level,
        endpoint,
        name,
        re.compile(regex),
        operation,
        any_host,
    )


def wrong_method(route: Route) -> Route:
    """A route for the same path whose endpoint raises a 405."""

    async def method_not_allowed(_: Request) -> Response:
        raise HTTPException(405, headers={"Allow": route.method})

    return route.answered_by(method_not_allowed)
