"""Answers do not depend on how the bytes of a request are split into segments."""

from __future__ import annotations

import asyncio
import functools
import gzip
import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import pytest

from tests.support.in_process_worker import (
    GATES,
    INFER,
    LESION,
    NAME,
    PREDICT,
    Client,
    InProcessWorker,
    binary_infer,
    infer,
    load_worker,
    request,
    rows,
    run_scene,
)

SEEDS = range(8)
REQUESTS_PER_SEED = 320
MAX_HEADER, MAX_BODY = 1024, 8192
# An id that the service generates: sixteen hexadecimal digits for the worker, and a number.
GENERATED_ID = re.compile(rb"\b[0-9a-f]{16}-[0-9a-f]+")
ID_HEADER = re.compile(rb"\r\nx-request-id: [\x21-\x7e]+\r\n")
ANSWER_START = re.compile(rb"(?=HTTP/1\.1 \d{3} )")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOSE = b"connection: close\r\n"

Segments = Sequence[bytes]


def chunked(path: str, body: bytes, *headers: str, sizes: tuple[int, ...] = (1, 100, 300)) -> bytes:
    """A request whose body has chunks of these sizes, and the rest in a last one."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Transfer-Encoding: chunked", *headers]
    parts = [body[start:stop] for start, stop in itertools.pairwise([0, *sizes, len(body)])]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts if part)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + chunks + b"0\r\n\r\n"


def good_requests() -> list[bytes]:
    """Requests to all kinds of routes, as clients send them."""
    body = infer(rows(1))
    posts = [
        request(INFER, body),
        request(INFER, infer(rows(2, 3), id="two"), {"X-Request-Id": "my-own", "Content-Type": "text/plain"}),
        request(INFER + "?a=b", body),
        request(INFER.replace("models", "mod%65ls"), body),
        request(INFER, body, {"X-Request-Timeout-Ms": 30_000}),
        request(INFER, body, {"Connection": "close"}),
        request(INFER, body, version="1.0"),
        request(INFER, gzip.compress(body), {"Content-Encoding": "gzip"}),
        request(INFER, b""),
        request(INFER, body[:-1]),
        request(INFER, body.ljust(MAX_BODY + 1)),
        request(INFER, body.ljust(MAX_BODY + 1), {"Connection": "close"}),
        request(INFER, body, {"Expect": "100-continue"}),
        request(INFER, body, {"Connection": "upgrade", "Upgrade": "h2c"}),
        request(INFER, *binary_infer(rows(1, 2), binary_data_output=True)),
        chunked(INFER, body),
        chunked(INFER, body, "Expect: 100-continue"),
        chunked(INFER, body.ljust(MAX_BODY + 1)),
        chunked(INFER, gzip.compress(body), "Content-Encoding: gzip", sizes=(3,)),
        chunked("/nowhere", body),
        request(GATES, body),
        request(GATES, infer(rows(4), parameters={"detail": "units"})),
        request(LESION, infer(rows(1), close=["layer03.transform_gate"])),
        request(LESION, infer(rows(1), close=["nowhere"])),
        request(PREDICT, json.dumps({"instances": rows(4, 5).tolist()}).encode()),
        request("/v2/models/nothing/infer", body),
        request("/v2/health/live", body),
        request("/v2/repository/index", b"{}"),
        request(f"/v2/repository/models/{NAME}/unload", b"{}"),
        request(f"/v2/repository/models/{NAME}/load", b"{}", {"X-Api-Key": "another"}),
        request(f"/v2/repository/models/{NAME}/load", b"", {"Authorization": "Bearer another"}),
        request("/v2/models", method="GET"),
        request("/nowhere", body),
    ]
    paths = ["/", "/v2", "/v2/health/live", "/v2/health/ready", f"/v2/models/{NAME}", f"/v1/models/{NAME}"]
    paths += [f"/v2/models/{NAME}/ready", f"/v2/models/{NAME}/gates", "/nowhere", INFER, "/v2/models/a/ready"]
    gets = [request(path, method=method) for path in paths for method in ("GET", "HEAD", "DELETE")]
    long_heads = [
        request("/v2/health/live", headers={"A": "a" * size}, method="GET")
        for size in (900, *range(950, 1010), 1100, 3000)
    ]
    return [*posts, *posts, *gets, *long_heads[:: len(long_heads) // 12]]


def mutate(data: bytes, draw: random.Random) -> bytes:
    """The request with one random change."""
    head, end, body = data.partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")

    def join(lines: Iterable[bytes], rest: bytes = body) -> bytes:
        return b"\r\n".join(lines) + end + rest

    def spoil(part: bytes) -> bytes:
        start = draw.randrange(len(part) + 1)
        noise = [b"", b" ", b"\r\n", b"\0", b"\xff", b":", b"0", b"9", b"g", b"/", b"%", b"\t", b"a", b"x"]
        return part[:start] + draw.choice(noise) + part[start + draw.randrange(3) :]

    def content_length() -> bytes:
        value = draw.choice([b"0", b"1", b"+5", b"-1", b"5 5", b"", b"0x10", b"99999999999999999999", b"17"])
        lines = [entry for entry in headers if not entry.lower().startswith(b"content-length")]
        return join([line, *lines, b"Content-Length: " + value])

    def more_headers() -> bytes:
        extra = [
            b"Transfer-Encoding: chunked",
            b"Transfer-Encoding: gzip, chunked",
            b"Host: y",
            b"Connection: close",
            b"Connection: keep-alive, upgrade\r\nUpgrade: websocket",
            b"Expect: 100-continue",
            b"X-Request-Id: chosen-by-caller",
            b"X-Request-Id: two words",
            b"Content-Encoding: br",
            b"Inference-Header-Content-Length: 12",
            b" folded",
            b"Trailer: a",
        ]
        return join([line, *headers, draw.choice(extra)])

    mutations: list[Callable[[], bytes]] = [
        lambda: data,
        lambda: join([spoil(line), *headers]),
        lambda: join([line, *[spoil(entry) if draw.random() < 0.5 else entry for entry in headers]]),
        lambda: join([line, *headers, draw.choice(headers or [b"A: b"])]),
        lambda: join([line, *draw.sample(headers, draw.randrange(len(headers) + 1))]),
        lambda: join([line, *headers], spoil(body)),
        lambda: data[: draw.randrange(len(data))],
        lambda: data + draw.randbytes(draw.randrange(20)),
        lambda: b"\r\n" * draw.randrange(1, 3) + data,
        lambda: draw.randbytes(draw.randrange(1, 20)) + data,
        lambda: join([draw.choice([b"PUT", b"PATCH", b"CONNECT", b"BREW"]) + b" " + line, *headers]),
        lambda: join([b"PUT" + line[line.find(b" ") :], *headers]),
        lambda: join([line[:-1] + draw.choice([b"0", b"2", b"9"]), *headers]),
        content_length,
        more_headers,
        more_headers,
    ]
    return draw.choice(mutations)()


def streams(seed: int) -> list[bytes]:
    """One byte stream per connection: mutated requests, some with a second request after them."""
    draw = random.Random(seed)
    good = good_requests()
    sent: list[bytes] = []
    for _ in range(REQUESTS_PER_SEED):
        stream = mutate(draw.choice(good), draw)
        if draw.random() < 0.3:
            stream = mutate(stream, draw) if stream else stream
        if draw.random() < 0.3:
            second = draw.choice(good[:29])
            stream += mutate(second, draw) if draw.random() < 0.5 else second
        sent.append(stream)
    return sent


def cut(stream: bytes, draw: random.Random) -> Segments:
    places = sorted(draw.choices(range(len(stream) + 1), k=draw.randrange(1, 8)))
    return [
        stream[start:stop] for start, stop in itertools.pairwise([0, *places, len(stream)]) if start < stop
    ]


def is_settled(client: Client) -> bool:
    """Whether the server sends nothing more unless the client does."""
    connection, wire = client.connection, client.wire
    if wire.closing:
        return True
    if wire._unread:
        return False
    current = connection._current
    if current is None:
        return not connection.pipeline
    return not current.received and any(not waiter.done() for waiter in current._waiters)


async def exchange(worker: InProcessWorker, segments: Segments, draw: random.Random) -> tuple[bytes, bool]:
    """The server's answers to these segments, and whether it closes the connection."""
    client = worker.connect()
    for segment in segments:
        client.send(segment)
        if draw.random() < 0.3:
            await asyncio.sleep(0)
    async with asyncio.timeout(10):
        while not is_settled(client):
            await asyncio.sleep(0)
    answers, ended = bytes(client.wire.written), client.wire.closing or client.wire.eof_written
    client.disconnect()
    async with asyncio.timeout(10):
        while worker.shared.running or client.connection in worker.shared.connections:
            await asyncio.sleep(0)
    assert worker.app.context.counters.in_flight == 0
    assert worker.app.context.budget.bytes == 0
    assert worker.model.batcher.waiting == 0
    return answers.replace(CONTINUE, b""), ended


def comparable(answers: bytes) -> list[bytes]:
    """The answers, without the ids that the service generated for them."""
    parts = [answer for answer in ANSWER_START.split(answers) if answer]
    assert all(len(ID_HEADER.findall(answer)) == 1 for answer in parts), answers
    return [GENERATED_ID.sub(b"<id>", answer) for answer in parts]


def is_early_end(whole: list[bytes], segmented: list[bytes], stream: bytes) -> bool:
    """Whether the answers differ only because one was sent before its body had arrived.

    This is the only exception. An endpoint that needs no body (404, 401, 405, any GET) answers as soon as the
    head has arrived. If the rest of the body may be long (chunks, more than 1 MiB) or may never arrive
    (Expect: 100-continue), this answer has `connection: close` and is the last. If the body had arrived, the
    connection would have stayed open, or a malformed body would have been refused with 400.
    """
    same = len(
        list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(whole, segmented, strict=False)))
    )
    if len(segmented) != same + 1 or CLOSE not in segmented[same] or same >= len(whole):
        return False
    reopened = segmented[same].replace(CLOSE, b"")
    refused = whole[same].startswith(b"HTTP/1.1 400 ") and CLOSE in whole[same]
    may_go_on = any(word in stream.lower() for word in (b"chunked", b"expect", b"9999999"))
    return may_go_on and (whole[same] == reopened or refused)


@functools.cache
def application() -> InProcessWorker:
    return load_worker(max_header=MAX_HEADER, max_body=MAX_BODY, admin_key="admin", access_log=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_segments_do_not_change_responses(seed: int) -> None:
    early_ends = 0
    statuses: Counter[str] = Counter()

    async def scene(worker: InProcessWorker) -> None:
        nonlocal early_ends
        draw = random.Random(seed)
        for number, stream in enumerate(streams(seed)):
            whole, whole_ended = await exchange(worker, [stream], draw)
            ways = [cut(stream, draw)]
            if number % 8 == 0 and len(stream) < 2000:
                ways.append([stream[place : place + 1] for place in range(len(stream))])
            for segments in ways:
                answers, ended = await exchange(worker, segments, draw)
                expected, actual = comparable(whole), comparable(answers)
                statuses.update(answer[9:12].decode() for answer in actual)
                if expected == actual:
                    assert ended == whole_ended, segments
                else:
                    assert is_early_end(expected, actual, stream), (segments, expected, actual)
                    early_ends += 1

    run_scene(application(), scene)
    assert early_ends < REQUESTS_PER_SEED / 8
    assert {"200", "400", "401", "404", "405", "413", "431"} <= statuses.keys()
    assert statuses["200"] > REQUESTS_PER_SEED / 8


@pytest.mark.parametrize("filler", ["x: {}", "x:{}y", "x: y{}"], ids=["value", "space before", "space after"])
@pytest.mark.parametrize("size", range(MAX_HEADER - 2, MAX_HEADER + 3))
@pytest.mark.parametrize("before", ["", "empty lines", "a request", "a body in chunks"])
def test_the_size_limit_of_heads_is_the_same_for_any_segments(before: str, size: int, filler: str) -> None:
    """The size is the number of all bytes up to the end of the empty line, wherever the head begins."""
    prefix = {
        "": b"",
        "empty lines": b"\r\n\r\n",
        "a request": b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "a body in chunks": chunked("/v2/repository/index", b"{}  \r\n\r\n\r\n"),
    }[before]
    lines = f"GET /v2 HTTP/1.1\r\nHost: localhost\r\n{filler}\r\n\r\n"
    fill = ("v" if filler == "x: {}" else " ") * (size - len(lines) + 2)
    head = lines.format(fill).encode()
    assert len(head) == size

    async def scene(worker: InProcessWorker) -> None:
        draw = random.Random(size)
        stream = prefix + head
        for segments in (
            [stream],
            [prefix, head],
            [stream[:-1], stream[-1:]],
            [stream[:-500], stream[-500:]],
            [stream[: len(prefix) + 5], stream[len(prefix) + 5 :]],
            [bytes([byte]) for byte in stream],
        ):
            answers, _ = await exchange(worker, [segment for segment in segments if segment], draw)
            statuses = [answer[9:12] for answer in comparable(answers)]
            assert statuses[-1] == (b"200" if size <= MAX_HEADER else b"431"), segments
            assert statuses[:-1] == [b"200"] * (before in ("a request", "a body in chunks"))

    run_scene(application(), scene)
