"""A route of one address that runs a model, found once for all requests to that address."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.routing import Route

from service.api.endpoint import ModelEndpoint, Steps
from service.http.auth import GuardedEndpoint
from service.http.body import MemoryBudget
from service.http.request_context import Course

# of an address so written, nothing is to be decoded
PLAIN = re.compile(rb"[A-Za-z0-9_.:/-]+")
# more addresses than are in use at any one time; and the longest that is kept, which the log shows whole
MOST, LONGEST = 1024, 200


@dataclass(frozen=True, slots=True)
class Lane:
    """Where the requests to an address go."""

    path: str
    route: str
    params: Mapping[str, str]
    guarded: GuardedEndpoint
    endpoint: ModelEndpoint

    @property
    def held(self) -> MemoryBudget:
        """What its requests and answers are held in."""
        return self.endpoint.parts.held

    def steps(self, course: Course, headers: Mapping[bytes, bytes], body: bytes) -> Steps:
        """The way from a whole body to that of the answer."""
        return self.endpoint.answer(course, self.params, headers, self.held.whole(body))


class Lanes:
    """The lanes of all raw routes that run models."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = [
            (route, route.endpoint, route.endpoint.endpoint)
            for route in routes
            if isinstance(route.endpoint, GuardedEndpoint)
            and isinstance(route.endpoint.endpoint, ModelEndpoint)
        ]
        self._known: dict[bytes, Lane | None] = {}

    def find(self, url: bytes) -> Lane | None:
        """The lane of a POST; None where the ordinary way has to see what it is."""
        try:
            return self._known[url]
        except KeyError:
            if len(url) > LONGEST:
                return None
            if len(self._known) >= MOST:
                self._known.clear()
            lane = self._known[url] = self._find(url)
            return lane

    def _find(self, url: bytes) -> Lane | None:
        if not PLAIN.fullmatch(url):
            return None
        path = url.decode()
        for route, guarded, endpoint in self._routes:
            match: Any = route.path_regex.fullmatch(path)
            if match is not None:
                return Lane(path, route.path, match.groupdict(), guarded, endpoint)
        return None
