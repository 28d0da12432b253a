"""What all connections of one worker share: the rules they keep to, and whether they are to end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from uvicorn.server import ServerState

from service.http.head_cache import Heads, Way


@dataclass(frozen=True, slots=True)
class Rules:
    """What a connection may do: bytes of a request's head, seconds for it to arrive, seconds of silence."""

    max_header: int
    header_seconds: float
    idle_seconds: float


class Connections(ServerState):
    """What the connections of one worker share: if each is to end with its answer, and who counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.draining = False
        self.when_lost: Callable[[], object] | None = None
        # given status and sentence of what is answered to no request, it counts them and gives that an id
        self.when_refused: Callable[[int, str], str] | None = None
        # heads that went this way
        self.heads = Heads()
        # given the address of a POST and its headers: the shorter way to its answer, if there is one
        self.express: Callable[[bytes, dict[bytes, bytes]], Way | None] | None = None
