"""Parsing requests: with a cached head or without one, in one piece or in several, the answer is the same."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

import pytest

from tests.support.in_process_worker import (
    GATES,
    INFER,
    InProcessWorker,
    access_log_lines,
    binary_infer,
    infer,
    load_worker,
    request,
    rows,
    run,
    run_scene,
    until,
)
from turnpike.service.config.settings import Settings
from turnpike.service.http.connection.connection_counts import ConnectionCounts, SharedPort
from turnpike.service.http.connection.listener import listen
from turnpike.service.http.connection.server import DrainTiming, Server

__all__ = ["access_log_lines"]

INFER_BODY = infer(rows(1))
INFER_REQUEST = request(INFER, INFER_BODY)
HEAD_SIZE = len(INFER_REQUEST) - len(INFER_BODY)


@pytest.fixture(scope="module")
def worker() -> InProcessWorker:
    """One application for all tests that leave it unchanged."""
    return load_worker()


def head_of(size: int, *lines: str, path: str = INFER, method: str = "POST", version: str = "1.1") -> bytes:
    """The head of a request with a body of this size."""
    return "\r\n".join(
        [f"{method} {path} HTTP/{version}", "Host: localhost", f"Content-Length: {size}", *lines, "", ""]
    ).encode()


def test_white_space_behind_the_value_of_a_header_is_ignored(worker: InProcessWorker) -> None:
    """As before it: it is not part of the value."""

    async def scene(worker: InProcessWorker) -> None:
        body, headers = binary_infer(rows(1))
        (line,) = [f"{name}: {value} \t" for name, value in headers.items()]
        reply = await worker.connect().ask(head_of(len(body), line, "X-Request-Id:\tmy-id  ") + body)
        assert (reply.status, reply.headers["x-request-id"]) == (200, "my-id")

    run_scene(worker, scene)


def test_an_upgrade_offer_does_not_change_the_response(worker: InProcessWorker) -> None:
    """The offer is ignored."""

    async def scene(worker: InProcessWorker) -> None:
        plain = await worker.connect().ask(INFER_REQUEST)
        for _ in range(3):
            client = worker.connect()
            reply = await client.ask(
                head_of(len(INFER_BODY), "Connection: Upgrade", "Upgrade: websocket") + INFER_BODY
            )
            assert (reply.status, reply.body) == (200, plain.body)
            assert "connection" not in reply.headers
            assert (await client.ask(INFER_REQUEST)).body == plain.body

    run_scene(worker, scene)


@pytest.mark.parametrize("known", [False, True])
def test_a_pipelined_request_waits_for_the_previous_response(
    known: bool, access_log_lines: list[dict[str, Any]]
) -> None:
    """While a request runs or an answer is unread, the next request waits. Answers come in order."""

    async def scene(worker: InProcessWorker) -> None:
        if known:
            await worker.connect().ask(INFER_REQUEST)
        with worker.blocked_runs() as release:
            client = worker.connect()
            client.send(INFER_REQUEST)
            first = client.connection._current
            client.send(
                request(INFER, infer(rows(2), id="2")), request(INFER, infer(rows(3), id="3")) + INFER_REQUEST
            )
            assert client.connection._current is first
            assert len(client.connection.pipeline) == 1
            assert not client.wire.reading
            release.set()
            replies = [await client.wait_for_reply() for _ in range(4)]
        assert [reply.json.get("id") for reply in replies] == [None, "2", "3", None]
        assert replies[0].body == replies[3].body
        client.connection.pause_writing()
        client.send(INFER_REQUEST)
        await asyncio.sleep(0.005)
        assert client.next_reply() is None
        client.connection.resume_writing()
        assert (await client.wait_for_reply()).status == 200
        assert len({line["id"] for line in access_log_lines}) == len(access_log_lines) == 5 + known

    run(scene)


def test_requests_in_one_segment_are_answered_in_order(worker: InProcessWorker) -> None:
    """The second one has the head of the first, which is cached by then."""

    async def scene(worker: InProcessWorker) -> None:
        worker.shared.heads.clear()
        for count in (2, 3, 9):
            client = worker.connect()
            client.send(b"".join(request(INFER, infer(rows(tag), id=str(tag))) for tag in range(count)))
            replies = [await client.wait_for_reply() for _ in range(count)]
            assert [reply.json["id"] for reply in replies] == [str(tag) for tag in range(count)]
            assert len({reply.body for reply in replies}) == count
        assert worker.shared.heads

    run_scene(worker, scene)


def test_requests_may_be_split_anywhere(worker: InProcessWorker) -> None:
    """Every request gets its own answer, whatever follows in the same segment."""

    async def scene(worker: InProcessWorker) -> None:
        draw = random.Random(5)
        bodies = [(await worker.connect().ask(request(INFER, infer(rows(tag))))).body for tag in range(4)]
        for _ in range(60):
            client = worker.connect()
            tags = draw.choices(range(4), k=draw.randrange(1, 5))
            stream = b"".join(
                draw.choice([b"", b"", b"\r\n"]) + request(INFER, infer(rows(tag))) for tag in tags
            )
            cuts = sorted(draw.choices(range(len(stream)), k=draw.randrange(5)))
            for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
                client.send(stream[start:stop])
                if draw.random() < 0.5:
                    await asyncio.sleep(0)
            assert [(await client.wait_for_reply()).body for _ in tags] == [bodies[tag] for tag in tags]
            assert not client.wire.closing

    run_scene(worker, scene)


def test_a_cached_head_waits_for_its_body(worker: InProcessWorker) -> None:
    """Its body may arrive later, whole or in part."""

    async def scene(worker: InProcessWorker) -> None:
        expected = (await worker.connect().ask(INFER_REQUEST)).body
        assert worker.shared.heads.find(INFER_REQUEST) is not None
        for cut in (HEAD_SIZE, HEAD_SIZE + 1, len(INFER_REQUEST) - 1, 1, HEAD_SIZE - 1):
            client = worker.connect()
            client.send(INFER_REQUEST[:cut])
            await asyncio.sleep(0)
            assert client.next_reply() is None
            assert client.connection.busy
            client.send(INFER_REQUEST[cut:])
            assert (await client.wait_for_reply()).body == expected
            # now the whole request arrives in one piece
            assert (await client.ask(INFER_REQUEST)).body == expected

    run_scene(worker, scene)


@pytest.mark.parametrize("keys", [(), ("key",)], ids=["read", "answered early"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_equals_a_cached_request_is_a_body(keys: tuple[str, ...], chunked: bool) -> None:
    """While a body is arriving, a piece that equals a cached request is part of it, answered early or not."""

    async def scene(worker: InProcessWorker) -> None:
        inner = request(INFER, INFER_BODY, {"X-Api-Key": "key"})
        expected = await worker.connect().ask(inner)
        assert expected.status == 200
        assert worker.shared.heads.find(inner) is not None
        client = worker.connect()
        head = head_of(2 * len(inner))
        if chunked:
            head = head.replace(b"Content-Length: %d" % (2 * len(inner)), b"Transfer-Encoding: chunked")
            head += b"%x\r\n" % (2 * len(inner))
        client.send(head)
        await asyncio.sleep(0.005)
        requests_before = worker.counts()["requests"]
        reply = client.next_reply()
        assert (reply is not None) is bool(keys)
        # each half of the body equals a cached request
        client.send(inner)
        await asyncio.sleep(0.005)
        assert client.next_reply() is None
        client.send(inner)
        if reply is None:
            reply = await client.wait_for_reply() if not chunked else client.next_reply()
        await asyncio.sleep(0.005)
        if chunked and not keys:
            assert reply is None
            client.send(b"\r\n0\r\n\r\n")
            reply = await client.wait_for_reply()
        assert reply is not None
        assert reply.status == (401 if keys else 400)
        assert worker.counts()["requests"] == requests_before
        if "connection" not in reply.headers:
            assert (await client.ask(inner)).body == expected.body
            # after that body, the same bytes are a request again
            assert (await client.ask(inner)).body == expected.body
        assert client.next_reply() is None

    run(scene, api_keys=keys)


def test_heads_are_cached_for_all_connections_but_bodies_are_not(worker: InProcessWorker) -> None:
    """A head from one connection is reused on all others, and each body gets its own answer."""

    async def scene(worker: InProcessWorker) -> None:
        worker.shared.heads.clear()
        first, second = rows(1), rows(2)
        bodies = [infer(first), infer(second).ljust(len(infer(first)))]
        bodies[0] = bodies[0].ljust(len(bodies[1]))
        requests = [request(INFER, body) for body in bodies]
        replies = [await worker.connect().ask(whole) for whole in (*requests, *requests)]
        assert len(worker.shared.heads) == 1
        assert replies[0].body == replies[2].body != replies[1].body == replies[3].body
        assert len({reply.headers["x-request-id"] for reply in replies}) == 4

    run_scene(worker, scene)


def test_a_head_with_one_changed_byte_is_another_head(worker: InProcessWorker) -> None:
    """A head with another path, name or value is not taken from the cache, even if its length is the same."""

    async def scene(worker: InProcessWorker) -> None:
        assert (await worker.connect().ask(INFER_REQUEST)).status == 200
        assert "gates" in (await worker.connect().ask(INFER_REQUEST.replace(b"infer", b"gates"))).json
        assert (await worker.connect().ask(INFER_REQUEST.replace(b"digits", b"digitz"))).status == 404
        with_id = request(INFER, INFER_BODY, {"X-Request-Id": "mine"})
        assert (await worker.connect().ask(with_id)).headers["x-request-id"] == "mine"
        for _ in range(2):
            reply = await worker.connect().ask(with_id.replace(b"mine", b"ours"))
            assert reply.headers["x-request-id"] == "ours"
        with_timeout = request(INFER, INFER_BODY, {"X-Request-Timeout-Ms": "9999"})
        for _ in range(2):
            assert (await worker.connect().ask(with_timeout)).status == 200
            assert (await worker.connect().ask(with_timeout.replace(b": 9999", b": -999"))).status == 400

    run_scene(worker, scene)


@pytest.mark.parametrize("header", ["X-Request-Id", "Traceparent"])
def test_heads_with_unique_ids_are_not_cached(worker: InProcessWorker, header: str) -> None:
    """They would displace heads that are used again."""

    async def scene(worker: InProcessWorker) -> None:
        worker.shared.heads.clear()
        client = worker.connect()
        assert (await client.ask(request(INFER, INFER_BODY, {header: "mine"}))).status == 200
        assert not worker.shared.heads

    run_scene(worker, scene)


def test_the_key_is_checked_for_cached_heads() -> None:
    """The key of each request is checked, also if its head is cached."""

    async def scene(worker: InProcessWorker) -> None:
        for key, status in (("right", 200), ("wrong", 401), ("right", 200), ("wrong", 401)):
            client = worker.connect()
            assert (await client.ask(request(INFER, INFER_BODY, {"X-Api-Key": key}))).status == status
        assert (await worker.connect().ask(INFER_REQUEST)).status == 401
        assert worker.counts()["refused"] == {"unauthorized": 3}

    run(scene, api_keys=("right",))


def test_a_cached_head_finds_the_current_model() -> None:
    """A cached head must not keep a model that was unloaded, nor miss one that was loaded."""

    async def scene(worker: InProcessWorker) -> None:
        registry = worker.app.registry
        served, registry._served = registry._served, {}
        client = worker.connect()
        assert (await client.ask(INFER_REQUEST)).status == 404
        registry._served = served
        assert (await client.ask(INFER_REQUEST)).status == 200
        registry._served = {}
        assert (await client.ask(INFER_REQUEST)).status == 404

    run(scene)


@pytest.mark.parametrize("known", [False, True])
def test_malformed_bytes_after_a_request_are_refused_after_its_response(known: bool) -> None:
    """They may be in the same segment or the next, or arrive during the request."""

    async def scene(worker: InProcessWorker) -> None:
        if known:
            await worker.connect().ask(INFER_REQUEST)
        for together in (True, False):
            client = worker.connect()
            client.send(*([INFER_REQUEST + b"\0\r\n\r\n"] if together else [INFER_REQUEST, b"\0\r\n\r\n"]))
            assert (await client.wait_for_reply()).status == 200
            refusal = await client.wait_for_reply()
            assert (refusal.status, refusal.headers["connection"]) == (400, "close")
            client.send(INFER_REQUEST)
            await asyncio.sleep(0.002)
            assert client.next_reply() is None
        with worker.blocked_runs() as release:
            client = worker.connect()
            client.send(INFER_REQUEST, b"\0\r\n\r\n", INFER_REQUEST)
            await asyncio.sleep(0.005)
            assert client.next_reply() is None
            release.set()
            assert [(await client.wait_for_reply()).status for _ in range(2)] == [200, 400]
        assert client.wire.eof_written

    run(scene)


def test_a_complete_head_over_the_limit_is_refused() -> None:
    """It is refused after a request with a cached head too."""

    async def scene(worker: InProcessWorker) -> None:
        client = worker.connect()
        for _ in range(2):
            assert (await client.ask(INFER_REQUEST)).status == 200
        assert (await client.ask(request(INFER, INFER_BODY, {"A": "a" * 2000}))).status == 431

    run(scene, max_header=1024)


class SocketServer:
    """The application behind real sockets."""

    def __init__(self, worker: InProcessWorker, **overrides: Any) -> None:
        self.worker = worker
        listener = listen("127.0.0.1", 0)
        settings = Settings(drain_wait=0, **overrides)
        timing = DrainTiming(handshake=0.01, quiet=0.02, step=0.002)
        self.server = Server(settings, SharedPort(listener, ConnectionCounts(1)), 1, worker.app, timing)
        self.port = listener.getsockname()[1]
        self.last = asyncio.Event()
        self.last.set()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


def test_draining_waits_for_running_and_queued_requests() -> None:
    """Each gets an answer that closes its connection, and none is cut off."""

    async def scene(worker: InProcessWorker) -> None:
        sockets = SocketServer(worker)
        clients = [await sockets.connect() for _ in range(3)]
        with worker.blocked_runs() as release:
            for _, writer in clients:
                writer.write(INFER_REQUEST)
            await until(lambda: worker.app.context.counters.in_flight == 3)
            draining = asyncio.create_task(sockets.server.drain(sockets.last))
            await asyncio.sleep(0.05)
            assert not draining.done()
            release.set()
            answers = [await reader.read() for reader, _ in clients]
        assert await draining == 0
        for answer, (_, writer) in zip(answers, clients, strict=True):
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b"\r\nconnection: close\r\n" in answer
            writer.close()

    run(scene)


def test_draining_cancels_and_counts_slow_requests(access_log_lines: list[dict[str, Any]]) -> None:
    """Each request is logged with status 499 and counted, whatever its route."""

    async def scene(worker: InProcessWorker) -> None:
        sockets = SocketServer(worker, drain_seconds=0.03)
        clients = [await sockets.connect() for _ in range(3)]
        with worker.blocked_runs() as release:
            for (_, writer), path in zip(clients, (INFER, INFER + "?", GATES), strict=True):
                writer.write(request(path, INFER_BODY))
            await until(lambda: worker.app.context.counters.in_flight == 3)
            assert await sockets.server.drain(sockets.last) == 3
            await until(lambda: worker.app.context.counters.in_flight == 0)
            release.set()
        assert [line["status"] for line in access_log_lines] == [499] * 3
        for reader, writer in clients:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()
        assert worker.model.batcher.waiting == 0

    run(scene)
