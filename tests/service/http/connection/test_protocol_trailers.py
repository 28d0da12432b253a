"""Trailers after a body in chunks: they are ignored, and limited like headers."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.in_process_worker import INFER, InProcessWorker, infer, rows, run, until

MAX_HEADER = 4000


def chunked(trailers: bytes, *, headers: bytes = b"") -> bytes:
    """An infer request whose body comes in one chunk, up to the end of these trailers."""
    body = infer(rows(1))
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n%b\r\n" % (
        INFER.encode(),
        headers,
    )
    return head + b"%x\r\n%b\r\n0\r\n%b" % (len(body), body, trailers)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("key", [b"X-Api-Key: open-sesame\r\n", b"Authorization: Bearer open-sesame\r\n"])
def test_a_key_in_a_trailer_does_not_count(split: bool, key: bytes) -> None:
    async def scene(worker: InProcessWorker) -> None:
        for request, status in ((chunked(key + b"\r\n"), 401), (chunked(b"\r\n", headers=key), 200)):
            pieces = (request[:-20], request[-20:]) if split else (request,)
            assert (await worker.connect().ask(*pieces)).status == status

    run(scene, api_keys=("open-sesame",))


@pytest.mark.parametrize(
    "trailer",
    [b"Content-Encoding: gzip\r\n", b"Inference-Header-Content-Length: 3\r\n", b"Expect: 100-continue\r\n"],
)
def test_a_trailer_does_not_change_how_the_body_is_read(trailer: bytes) -> None:
    async def scene(worker: InProcessWorker) -> None:
        client = worker.connect()
        for _ in range(2):
            assert (await client.ask(chunked(trailer + b"\r\n"))).status == 200
        assert b"100 Continue" not in client.wire.written

    run(scene)


@pytest.mark.parametrize(
    "piece",
    [b"a: b\r\n" * 100, b"a" * 600, b"a: " + b"b" * 600],
    ids=["many trailers", "a name without an end", "a value without an end"],
)
def test_endless_trailers_are_refused(piece: bytes) -> None:
    """They are limited by the setting for headers, however they are cut into segments."""

    async def scene(worker: InProcessWorker) -> None:
        client = worker.connect()
        client.send(chunked(b""))
        for _ in range(2 * MAX_HEADER // len(piece) + 2):
            client.send(piece)
            await asyncio.sleep(0)
        reply = await client.wait_for_reply()
        assert reply.status == 431
        assert reply.json == {
            "error": f"the trailers: expected at most {MAX_HEADER} bytes (--max-header), got more"
        }
        connection = client.connection
        assert connection._parser is not None
        assert sum(len(name) + len(value) for name, value in connection._parser._headers) < MAX_HEADER
        client.disconnect()
        await until(lambda: connection not in worker.shared.connections)

    run(scene, max_header=MAX_HEADER)


def test_trailers_in_one_segment_are_refused_beyond_the_limit() -> None:
    async def scene(worker: InProcessWorker) -> None:
        assert (await worker.connect().ask(chunked(b"a: b\r\n" * 2500 + b"\r\n"))).status == 431
        assert (await worker.connect().ask(chunked(b"a: b\r\n" * 600 + b"\r\n"))).status == 200

    run(scene, max_header=MAX_HEADER)


def test_a_body_in_many_small_chunks_is_not_taken_for_trailers() -> None:
    async def scene(worker: InProcessWorker) -> None:
        body = infer(rows(*range(8), *range(8)))
        assert len(body) > MAX_HEADER
        chunks = [b"1;some=extension\r\n%b\r\n" % body[index : index + 1] for index in range(len(body))]
        head, _, _ = chunked(b"").partition(b"\r\n\r\n")
        reply = await worker.connect().ask(head + b"\r\n\r\n", *chunks, b"0\r\n\r\n")
        assert reply.status == 200

    run(scene, max_header=MAX_HEADER)


@pytest.mark.parametrize("size", range(MAX_HEADER - 1, MAX_HEADER + 2))
@pytest.mark.parametrize("place", ["trailers", "an extension"])
def test_the_limit_is_the_same_for_any_segments(place: str, size: int) -> None:
    """It counts all bytes of a chunk's header, or of the last chunk and its trailers."""
    if place == "trailers":
        lines = b"0\r\na: %b\r\n\r\n"
        end = lines % (b"v" * (size - len(lines) + 2))
        assert len(end) == size
    else:
        lines = b"1;%b\r\n"
        end = lines % (b"v" * (size - len(lines) + 2))
        assert len(end) == size
        end += b" \r\n0\r\n\r\n"
    start = chunked(b"").removesuffix(b"0\r\n")

    async def scene(worker: InProcessWorker) -> None:
        for segments in (
            [start + end],
            [start, end],
            [start, end[: size - 1], end[size - 1 :]],
            [start, *(end[index : index + 7] for index in range(0, len(end), 7))],
            [start, *(end[index : index + 1] for index in range(len(end)))],
        ):
            reply = await worker.connect().ask(*segments)
            assert reply.status == (200 if size <= MAX_HEADER else 431), [len(piece) for piece in segments]

    run(scene, max_header=MAX_HEADER)
