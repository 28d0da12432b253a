"""Random frames, and what each must lead to by a model of RFC 9113 that is written apart from the service.

Another connection of the same worker is answered all the time. All states of a stream meet all frames, and
faults that are planted in the service are found.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import pytest

from tests.support.echo_calls import LATE, UNARY, Connection, EchoServer, run
from tests.support.h2_client import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    H2Client,
    frame,
    reset,
    settings,
    window_update,
)
from turnpike.service.grpc.connection import frames, header_blocks, http2_connection
from turnpike.service.grpc.connection.http2_connection import Http2Connection

PROTOCOL, CLOSED, SIZE, FLOW = "PROTOCOL_ERROR", "STREAM_CLOSED", "FRAME_SIZE_ERROR", "FLOW_CONTROL_ERROR"
TRAILERS = b"\x00\x01a\x01b"
# What a stream is to the client: not used yet, a number of the server, its own, passed over; sending; all was
# sent; ended by the client in whatever way; ended by the service, while the client may be sending.
State = Literal["idle", "even", "passed over", "open", "sent", "ended", "ended here"]
STATES: tuple[State, ...] = ("idle", "even", "passed over", "open", "sent", "ended", "ended here")


class Outcome(NamedTuple):
    """The error of the connection or of the stream, if there is one, and the next state of the stream."""

    connection: str | None = None
    stream: str | None = None
    state: State | None = None


class Model:
    """The streams of one connection as RFC 9113 sees them."""

    def __init__(self) -> None:
        self.states: dict[int, State] = {}
        self.last = 0
        # bytes that Content-Length has announced and that were not sent
        self.left: dict[int, int] = {}

    def state(self, stream_id: int) -> State:
        if stream_id % 2 == 0:
            return "even"
        return self.states.get(stream_id, "idle" if stream_id > self.last else "passed over")

    def opens(self, stream_id: int) -> None:
        self.last = max(self.last, stream_id)

    def headers(self, stream_id: int, kind: str) -> Outcome:
        """HEADERS that open a call, that end with it, or that are trailers."""
        state, is_last = self.state(stream_id), kind in ("call", "trailers")
        if state in ("even", "passed over"):
            return Outcome(PROTOCOL)
        if state == "idle":
            self.opens(stream_id)
            if kind == "trailers":
                return Outcome(None, PROTOCOL, "ended")
            if kind == "fails":
                return Outcome(None, "NO_ERROR", "ended here")
            if kind == "announces":
                self.left[stream_id] = 10
            return Outcome(state="sent" if is_last else "open")
        if state == "open":
            if kind == "trailers" and not self.left.get(stream_id):
                return Outcome(state="sent")
            return Outcome(None, PROTOCOL, "ended" if is_last else "ended here")
        return self.late(state, is_last)

    def data(self, stream_id: int, size: int, *, is_last: bool) -> Outcome:
        state = self.state(stream_id)
        if state in ("idle", "even", "passed over"):
            return Outcome(PROTOCOL)
        if state != "open":
            return self.late(state, is_last)
        left = self.left.get(stream_id)
        if left is not None:
            left = self.left[stream_id] = left - size
            if left < 0 or (is_last and left):
                return Outcome(None, PROTOCOL, "ended" if is_last else "ended here")
        return Outcome(state="sent" if is_last else "open")

    def late(self, state: State, is_last: bool) -> Outcome:
        """DATA or HEADERS of a stream that is not open."""
        if state == "sent":
            return Outcome(None, CLOSED, "ended")
        if state == "ended here":
            return Outcome(state="ended" if is_last else state)
        return Outcome(CLOSED)

    def resets(self, stream_id: int) -> Outcome:
        state = self.state(stream_id)
        if state in ("idle", "even"):
            return Outcome(PROTOCOL)
        return Outcome(state=state if state == "passed over" else "ended")

    def updates(self, stream_id: int, error: str | None) -> Outcome:
        """WINDOW_UPDATE, with the error that its size is on a stream that exists."""
        state = self.state(stream_id)
        if not stream_id:
            return Outcome(error)
        if state in ("idle", "even"):
            return Outcome(PROTOCOL)
        if error and state in ("open", "sent"):
            return Outcome(None, error, "ended here" if state == "open" else "ended")
        return Outcome(state=state)


# bytes of a frame, and what they lead to
Action = Callable[[H2Client, Model, int], tuple[bytes, Outcome]]


def on_stream(kind: int, flags: int, payload: bytes, error: str | None) -> Action:
    """A frame that is an error, or is ignored, on whatever stream; PRIORITY must have one."""
    return lambda client, model, stream_id: (
        frame(kind, flags, stream_id, payload),
        Outcome(error if error or stream_id or kind != PRIORITY else PROTOCOL),
    )


def on_connection(sent: bytes, error: str | None) -> Action:
    return lambda client, model, stream_id: (sent, Outcome(error))


def opening(kind: str, path: str, *more: tuple[str, str]) -> Action:
    def act(client: H2Client, model: Model, stream_id: int) -> tuple[bytes, Outcome]:
        head = client.head(stream_id, path, *more, end=kind == "call")
        return head, model.headers(stream_id, kind)

    return act


def sending(size: int, *, is_last: bool, padding: int | None = None) -> Action:
    return lambda client, model, stream_id: (
        client.data(stream_id, bytes(size), end=is_last, padding=padding),
        model.data(stream_id, size, is_last=is_last),
    )


ACTIONS: dict[str, Action] = {
    "opens": opening("opens", LATE),
    "opens, and announces": opening("announces", LATE, ("content-length", "10")),
    "opens, and ends": opening("call", LATE),
    "opens what fails": opening("fails", "/test.Echo/None"),
    "trailers": lambda c, m, n: (
        frame(HEADERS, END_HEADERS | END_STREAM, n, TRAILERS),
        m.headers(n, "trailers"),
    ),
    "DATA": sending(5, is_last=False),
    "DATA with padding": sending(5, is_last=False, padding=7),
    "the last DATA": sending(5, is_last=True),
    "the last DATA, empty": sending(0, is_last=True),
    "DATA with too much padding": on_stream(DATA, PADDED, b"\x09ab", PROTOCOL),
    "RST_STREAM": lambda c, m, n: (reset(n), m.resets(n)),
    "a short RST_STREAM": on_stream(RST_STREAM, 0, bytes(3), SIZE),
    "WINDOW_UPDATE": lambda c, m, n: (window_update(n, 1), m.updates(n, None)),
    "WINDOW_UPDATE of 0": lambda c, m, n: (window_update(n, 0), m.updates(n, PROTOCOL)),
    "WINDOW_UPDATE of too much": lambda c, m, n: (window_update(n, 2**31 - 1), m.updates(n, FLOW)),
    "a short WINDOW_UPDATE": on_stream(WINDOW_UPDATE, 0, bytes(3), SIZE),
    "PRIORITY": on_stream(PRIORITY, 0, bytes(5), None),
    "a short PRIORITY": on_stream(PRIORITY, 0, bytes(4), SIZE),
    "CONTINUATION": on_stream(CONTINUATION, END_HEADERS, b"\x82", PROTOCOL),
    "PUSH_PROMISE": on_stream(PUSH_PROMISE, END_HEADERS, bytes(4), PROTOCOL),
    "an unknown frame": on_stream(0x42, 0xFF, b"anything", None),
    "a long frame": on_stream(DATA, 0, bytes(16_385), SIZE),
    "SETTINGS": on_connection(settings((3, 7), (99, 1)), None),
    "SETTINGS of a large window": on_connection(settings((4, 2**31)), FLOW),
    "SETTINGS of a large frame": on_connection(settings((5, 2**24)), PROTOCOL),
    "SETTINGS in part": on_connection(frame(SETTINGS, 0, 0, bytes(5)), SIZE),
    "SETTINGS with ACK and values": on_connection(frame(SETTINGS, ACK, 0, bytes(6)), SIZE),
    "SETTINGS on a stream": on_connection(frame(SETTINGS, 0, 1), PROTOCOL),
    "PING": on_connection(frame(PING, 0, 0, b"anything"), None),
    "a short PING": on_connection(frame(PING, 0, 0, bytes(7)), SIZE),
    "GOAWAY": on_connection(frame(GOAWAY, 0, 0, bytes(8)), None),
    "a short GOAWAY": on_connection(frame(GOAWAY, 0, 0, bytes(3)), SIZE),
}
# the first frames, which give any frame streams to meet in each state
FIRST: tuple[tuple[tuple[str, ...], tuple[State, ...]], ...] = (
    *((("opens", "opens, and announces", "opens, and ends", "opens what fails"), ("idle",)),) * 4,
    (("RST_STREAM", "the last DATA"), ("open", "sent")),
)
FRAMES_PER_CONNECTION = 30
# enough for every state of a stream to meet every frame
CONNECTIONS = 3000


async def play(server: EchoServer, draw: random.Random, reached: Counter[tuple[str, str]]) -> None:
    """Send random frames on a connection until it ends, and compare each outcome with the model."""
    connection, model = server.connect(), Model()
    client, history = connection.client, []
    for place in range(FRAMES_PER_CONNECTION):
        by_state: dict[State, list[int]] = {}
        for stream_id in range(model.last + 5):
            by_state.setdefault(model.state(stream_id), []).append(stream_id)
        names, states = FIRST[place] if place < len(FIRST) else (tuple(ACTIONS), STATES)
        name = draw.choice(names)
        state = draw.choice([state for state in by_state if state in states] or list(by_state))
        stream_id = draw.choice(by_state[state])
        before = client.answers[stream_id].reset
        sent, outcome = ACTIONS[name](client, model, stream_id)
        reached[state, name] += 1
        history.append(f"{name} on {stream_id} ({state})")
        connection.send(sent)
        await connection.turns(2)
        where = "; ".join(history)
        assert [error for _, error, _ in client.goaways] == [outcome.connection] * bool(outcome.connection), (
            where
        )
        if outcome.connection:
            return
        got = client.answers[stream_id].reset
        assert (None if got == before else got) == outcome.stream, where
        if outcome.state is not None and stream_id:
            model.states[stream_id] = outcome.state
    connection.send(frame(PING, 0, 0, b"the last"))
    assert client.pings[-1] == (ACK, b"the last")


async def ask(bystander: Connection, stream_id: int) -> None:
    bystander.send(bystander.client.call(stream_id, UNARY, b"and you?"))
    assert (await bystander.wait_for(stream_id)).messages == [b"and you?"]


def play_many(seed: int, connections: int = CONNECTIONS) -> Counter[tuple[str, str]]:
    """How often a stream in a state has met a frame."""
    reached: Counter[tuple[str, str]] = Counter()

    async def scene(server: EchoServer) -> None:
        draw, bystander = random.Random(seed), server.connect()
        for number in range(connections):
            await play(server, draw, reached)
            await ask(bystander, 2 * number + 1)

    run(scene)
    return reached


def test_each_frame_has_its_outcome_in_each_state() -> None:
    reached = play_many(1)
    # by state, the frames that it has met
    for state in STATES:
        print(f"{state}: {sum(count for (found, _), count in reached.items() if found == state)} frames")  # noqa: T201
    assert [(state, name) for state in STATES for name in ACTIONS if not reached[state, name]] == []


def keep_payload(flags: int, payload: bytes) -> bytes:
    return payload


def nothing(*arguments: object, **named: object) -> None:
    """In place of a check."""


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "frames of streams that were never opened": (Http2Connection, "_expect_known", nothing),
    "frames of streams that have ended": (Http2Connection, "_expect_open", nothing),
    "sizes and streams of control frames": (http2_connection, "expect_control_frame", nothing),
    "values of settings": (frames, "MAX_SETTINGS", {}),
    "padding": (http2_connection, "without_padding", keep_payload),
    "trailers": (http2_connection, "END_STREAM", 0),
    "the size of windows": (http2_connection, "MAX_WINDOW", 2**40),
    "what the service has ended itself": (Http2Connection, "_remember_end", nothing),
    "numbers that were passed over": (http2_connection, "MAX_REMEMBERED", 0),
    "the length of the body": (header_blocks.GrpcHead, "announced_bytes", property(nothing, nothing)),
    "the size of frames": (http2_connection, "MAX_FRAME_BYTES", 1 << 20),
    "the size of GOAWAY": (frames, "MIN_GOAWAY_BYTES", 0),
    "a reset without its frame": (http2_connection, "reset_frame", lambda stream_id, code: b""),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_service_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, replacement = FAULTS[fault]
    monkeypatch.setattr(owner, name, replacement)
    # the model contradicts it, the client cannot read it, or the service fails
    with pytest.raises(Exception):  # noqa: B017, PT011
        play_many(2, 300)


def test_the_model_is_contradicted_by_nothing_else() -> None:
    """The seed and the number of connections of the faults: without a fault, none is found."""
    play_many(2, 300)
