"""Compressed answers: which are, what they decompress to, and what they take of the worker."""

from __future__ import annotations

import asyncio
import gc
import gzip
import itertools
import json
import threading
import zlib
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from tests.support.asgi import Reply
from tests.support.asgi import ask as ask_asgi
from tests.support.fake_request import FakeRequest
from tests.support.in_process_worker import (
    GATES,
    INFER,
    LARGE_BINARY,
    NAME,
    InProcessWorker,
    binary_infer,
    infer,
    load_worker,
    request,
    rows,
    run_scene,
    until,
)
from tests.support.one_worker import with_supervisor
from turnpike.service.http import compression
from turnpike.service.http.compression import SLICE_BYTES, ZLIB_LEVEL, AnswerCompressor
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.requests import middleware
from turnpike.service.requests.middleware import COMPRESSED_FROM_BYTES
from turnpike.service.requests.response import LARGE_RESPONSE_BYTES, Response

UNPACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}
ALL_GATES = GATES + "?detail=rows"
# bytes as incompressible as they come
NOISE = np.random.default_rng(0).bytes(3 * SLICE_BYTES)


@pytest.fixture(scope="module")
def worker() -> InProcessWorker:
    return with_supervisor(load_worker(access_log=False))


def accepting(encoding: str, **more: object) -> dict[str, object]:
    return {"Accept-Encoding": encoding, **more}


def ask(worker: InProcessWorker, *requests: bytes) -> list[Reply]:
    """The answers to requests that are sent at once on one connection."""
    replies: list[Reply] = []

    async def scene(_: InProcessWorker) -> None:
        client = worker.connect()
        client.send(b"".join(requests))
        replies.extend([await client.wait_for_reply() for _ in requests])

    run_scene(worker, scene)
    return replies


@pytest.mark.parametrize("encoding", UNPACK)
@pytest.mark.parametrize("count", [4, 64])
def test_a_large_answer_is_compressed(worker: InProcessWorker, encoding: str, count: int) -> None:
    """It is that without compression, much smaller, and the header Vary says what it depends on."""
    body = infer(rows(*range(count)))
    plain, packed = ask(
        worker, request(ALL_GATES, body), request(ALL_GATES, body, accepting(f"{encoding}, br"))
    )
    assert len(plain.body) > COMPRESSED_FROM_BYTES
    assert (len(plain.body) > LARGE_RESPONSE_BYTES) == (count == 64)
    assert UNPACK[encoding](packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 2
    assert plain.headers.pop("vary") == packed.headers.pop("vary") == "Accept-Encoding"
    assert packed.headers.pop("content-encoding") == encoding
    for reply in (plain, packed):
        assert int(reply.headers.pop("content-length")) == len(reply.body)
        reply.headers.pop("x-request-id")
    assert packed.headers == plain.headers


def test_the_header_of_the_json_counts_bytes_before_compression(worker: InProcessWorker) -> None:
    """The clients of Triton decompress the body, and then cut it at this length."""
    images = rows(*[7] * 2000)
    body, headers = binary_infer(images, binary_data_output=True)
    plain, packed = ask(
        worker, request(INFER, body, headers), request(INFER, body, accepting("gzip", **headers))
    )
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    name = "inference-header-content-length"
    length = int(packed.headers[name])
    assert length == int(plain.headers[name])
    assert json.loads(gzip.decompress(packed.body)[:length])["outputs"][0]["shape"] == [2000, 10]


def test_a_small_answer_is_sent_as_it_is(worker: InProcessWorker) -> None:
    """Nothing is read of the header, since nearly all answers are small."""
    with patch.object(compression, "preferred_encoding", side_effect=AssertionError):
        (reply,) = ask(worker, request(INFER, infer(rows(*range(100))), accepting("gzip")))
    assert len(reply.body) > COMPRESSED_FROM_BYTES / 2
    assert not {"content-encoding", "vary"} & set(reply.headers)


@pytest.mark.parametrize("encoding", ["identity", "br", "gzip;q=0", "identity, gzip;q=0.9", "*;q=0"])
def test_a_client_that_accepts_no_compression_gets_none(worker: InProcessWorker, encoding: str) -> None:
    """Even if it accepts nothing at all."""
    (reply,) = ask(worker, request(ALL_GATES, infer(rows(*range(8))), accepting(encoding)))
    assert reply.status == 200
    assert "content-encoding" not in reply.headers
    assert reply.json["gates"]
    assert reply.headers["vary"] == "Accept-Encoding"


def test_the_header_may_come_several_times(worker: InProcessWorker) -> None:
    """They are one list."""
    data = request(ALL_GATES, infer(rows(*range(8))), {"accept-encoding": "deflate", "Accept-Encoding": "br"})
    (reply,) = ask(worker, data)
    assert reply.headers["content-encoding"] == "deflate"


def test_answers_keep_their_order(worker: InProcessWorker) -> None:
    """A small answer waits for the compressed one before it, and an error after it is not compressed."""
    large, small = infer(rows(*range(64))), infer(rows(1))
    headers = accepting("gzip")
    replies = ask(
        worker,
        request(ALL_GATES, large, headers),
        request(INFER, small, headers),
        request("/v2/models/absent/infer", small, headers),
        request(ALL_GATES, large, headers),
    )
    assert [reply.status for reply in replies] == [200, 200, 404, 200]
    assert [reply.headers.get("content-encoding") for reply in replies] == ["gzip", None, None, "gzip"]
    assert len(replies[1].json["outputs"][0]["data"]) == 10
    assert gzip.decompress(replies[3].body) == gzip.decompress(replies[0].body)


def test_head_has_the_headers_of_the_compressed_answer(worker: InProcessWorker) -> None:
    """They include the length that the body would have."""
    path = "/v2/models/digits-10/gates/profile"
    got, head = [
        ask_asgi(worker.app, method, path, headers={"Accept-Encoding": "gzip"}) for method in ("GET", "HEAD")
    ]
    assert head.body == b""
    for reply in (got, head):
        reply.headers.pop("x-request-id")
    assert got.headers == head.headers
    assert got.headers["content-encoding"] == "gzip"
    assert int(got.headers["content-length"]) == len(got.body) < len(gzip.decompress(got.body))


# ---- the compressor alone


def compress(response: Response, budget: MemoryBudget | None = None, encoding: bytes = b"gzip") -> None:
    """Compress a response as the middleware does."""
    request = FakeRequest(headers=[(b"accept-encoding", encoding)])
    budget = budget or MemoryBudget(1 << 30)
    asyncio.run(AnswerCompressor(budget).compress(request, response))
    assert budget.bytes == 0


@pytest.mark.parametrize("encoding", UNPACK)
@pytest.mark.parametrize("size", [1, SLICE_BYTES - 1, SLICE_BYTES, SLICE_BYTES + 1, 5 * SLICE_BYTES])
def test_slices_make_one_stream(encoding: str, size: int) -> None:
    """It is no larger than one that was compressed at once."""
    body = (b"%d," % 7).join(b"%d" % number for number in range(size // 4)) * 2
    body = (body + b"0" * 64)[: max(size, 64)]
    response = Response(body)
    compress(response, encoding=encoding.encode())
    assert UNPACK[encoding](response.body) == body
    assert len(response.body) <= len(zlib.compress(body, ZLIB_LEVEL)) + 100 * (1 + size // SLICE_BYTES)


@pytest.mark.parametrize("size", [COMPRESSED_FROM_BYTES, 3 * SLICE_BYTES])
def test_an_answer_that_hardly_shrinks_is_sent_as_it_is(size: int) -> None:
    """After one slice. Arrays of numbers as bytes are such an answer."""
    floats = np.random.default_rng(1).random(size // 4, np.float32).tobytes()
    compressed_slices: list[int] = []
    original = compression._compress_slice

    def counted(stream: Any, data: memoryview, flush: int) -> bytes:
        compressed_slices.append(len(data))
        return original(stream, data, flush)

    for body in (NOISE[:size], floats):
        response = Response(body)
        with patch.object(compression, "_compress_slice", counted):
            compress(response)
        assert response.body is body
        assert b"content-encoding" not in response.lines
        assert b"vary" in response.lines
    assert compressed_slices == [min(size, SLICE_BYTES)] * 2


@pytest.mark.parametrize(
    ("path", "compressed"),
    [
        ("/v2", False),
        ("/v2/models", False),
        (f"/v2/models/{NAME}", False),
        (f"/v2/models/{NAME}/config", False),
        (f"/v2/models/{NAME}/stats", False),
        ("/v2/models/stats", False),
        ("/v2/repository/index", False),
        (f"/v2/models/{NAME}/certificate", True),
        ("/traffic", True),
        ("/metrics", True),
    ],
)
def test_answers_that_tritonclient_asks_for_stay_as_they_are(
    worker: InProcessWorker, path: str, compressed: bool
) -> None:
    """Its client for asyncio accepts gzip in every request, and decompresses only the answer to infer."""
    method = "POST" if path.endswith("index") else "GET"
    with patch.object(middleware, "COMPRESSED_FROM_BYTES", 1):
        (reply,) = ask(worker, request(path, b"", accepting("gzip"), method=method))
    assert reply.status == 200
    assert ("vary" in reply.headers) == compressed
    assert compressed or "content-encoding" not in reply.headers


@pytest.mark.parametrize("room", [SLICE_BYTES // 2, 5 * SLICE_BYTES + 100])
def test_without_memory_for_a_copy_nothing_is_compressed(room: int) -> None:
    """There is no room for the answer itself, or too little for what it is compressed to."""
    half = [NOISE[: SLICE_BYTES // 2] + b"0" * (SLICE_BYTES // 2)] * 5
    body = b"".join(half)
    response = Response(body)
    compress(response, MemoryBudget(room))
    assert response.body is body
    assert b"content-encoding" not in response.lines
    compress(response, MemoryBudget(9 * SLICE_BYTES))
    assert gzip.decompress(response.body) == body


def test_without_memory_or_a_thread_nothing_is_compressed() -> None:
    """Late is better than never, and the next answer is compressed again."""
    response, compressor = Response(NOISE[:100] * 1000), AnswerCompressor(MemoryBudget(1 << 30))
    body = response.body
    request = FakeRequest(headers=[(b"accept-encoding", b"gzip")])
    for function, error in (
        ("threading.Thread.start", RuntimeError("can't start new thread")),
        ("zlib.compressobj", MemoryError()),
    ):
        with patch(function, side_effect=error):
            asyncio.run(compressor.compress(request, response))
        assert response.body is body
    asyncio.run(compressor.compress(request, response))
    assert gzip.decompress(response.body) == body


def test_memory_is_counted_during_compression(worker: InProcessWorker) -> None:
    """The answer itself, and what it was compressed to so far; then only the latter, until it is sent."""
    held: list[int] = []
    sizes: list[int] = []
    body = infer(rows(*range(128)))

    async def scene(worker: InProcessWorker) -> None:
        budget = worker.app.context.budget
        original = compression._compress_slice

        def counted(stream: Any, data: memoryview, flush: int) -> bytes:
            held.append(budget.bytes)
            piece = original(stream, data, flush)
            sizes.append(len(piece))
            return piece

        client = worker.connect()
        client.wire.before_write = client.connection.pause_writing
        with patch.object(compression, "_compress_slice", counted):
            client.send(request(ALL_GATES, body, accepting("gzip")))
            await until(lambda: len(client.wire.writes) == 2)
        whole = held[0]
        assert whole > 5 * SLICE_BYTES
        assert held == [whole + sum(sizes[:index]) for index in range(len(held))]
        assert budget.bytes == sum(sizes)
        # the original is freed
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, Response) and len(one.body) == whole]
        client.disconnect()

    run_scene(worker, scene)
    assert len(sizes) > 5


def test_other_requests_are_answered_during_compression(worker: InProcessWorker) -> None:
    """It takes place in a thread."""
    compressing, release = threading.Event(), threading.Event()
    original = compression._compress_slice

    def slow(stream: Any, data: memoryview, flush: int) -> bytes:
        compressing.set()
        assert release.wait(10)
        return original(stream, data, flush)

    async def scene(worker: InProcessWorker) -> None:
        first, second = worker.connect(), worker.connect()
        with patch.object(compression, "_compress_slice", slow):
            try:
                first.send(request(ALL_GATES, infer(rows(*range(64))), accepting("gzip")))
                await until(compressing.is_set)
                assert (await second.ask(request(INFER, infer(rows(1))))).status == 200
                assert not first.wire.writes
            finally:
                release.set()
            assert (await first.wait_for_reply()).headers["content-encoding"] == "gzip"

    run_scene(worker, scene)


def test_answers_are_compressed_one_slice_at_a_time(worker: InProcessWorker) -> None:
    """However many there are, they take no more than one CPU, and they take turns."""
    active: list[int] = []
    order: list[int] = []
    original = compression._compress_slice

    def watched(stream: Any, data: memoryview, flush: int) -> bytes:
        active.append(1)
        assert len(active) == 1
        order.append(id(stream))
        piece = original(stream, data, flush)
        active.pop()
        return piece

    async def scene(worker: InProcessWorker) -> None:
        clients = [worker.connect() for _ in range(3)]
        with patch.object(compression, "_compress_slice", watched):
            for client in clients:
                client.send(request(ALL_GATES, infer(rows(*range(128))), accepting("gzip")))
            replies = [await client.wait_for_reply() for client in clients]
        assert {reply.headers["content-encoding"] for reply in replies} == {"gzip"}

    run_scene(worker, scene)
    changes = sum(before != after for before, after in itertools.pairwise(order))
    assert changes > len(set(order))


def test_compression_stops_when_the_client_has_gone(worker: InProcessWorker) -> None:
    """After the slice that is being compressed."""
    compressing, release = threading.Event(), threading.Event()
    slices: list[int] = []
    original = compression._compress_slice

    def slow(stream: Any, data: memoryview, flush: int) -> bytes:
        slices.append(len(data))
        compressing.set()
        assert release.wait(10)
        return original(stream, data, flush)

    async def scene(worker: InProcessWorker) -> None:
        budget = worker.app.context.budget
        client = worker.connect()
        with patch.object(compression, "_compress_slice", slow):
            try:
                client.send(request(ALL_GATES, infer(rows(*range(128))), accepting("gzip")))
                await until(compressing.is_set)
                client.disconnect()
                await until(lambda: not worker.shared.running)
                assert budget.bytes == 0
            finally:
                release.set()
            # a slice of another answer comes after all of this one's
            await asyncio.wrap_future(worker.app._middleware._compressor._thread.submit(lambda: None))
        assert not client.wire.writes
        assert len(slices) == 1

    run_scene(worker, scene)


def test_the_large_binary_answer_is_also_right(worker: InProcessWorker) -> None:
    """That of 2,000 equal rows, over ASGI."""
    body, headers = LARGE_BINARY
    names = {name: str(value) for name, value in headers.items()}
    plain = ask_asgi(worker.app, "POST", INFER, headers=names, body=body)
    packed = ask_asgi(worker.app, "POST", INFER, headers={**names, "Accept-Encoding": "gzip"}, body=body)
    assert gzip.decompress(packed.body) == plain.body
    assert int(packed.headers["content-length"]) == len(packed.body) < len(plain.body) / 10
