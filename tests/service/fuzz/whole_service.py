"""Fuzzing of a whole worker: requests to its routes."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
import random
import re

from tests.service.fuzz.connections import ANSWER_START
from tests.support.error_log import ErrorLog, errors_of
from tests.support.fuzzing import Decoder, cut, mutate_json
from tests.support.in_process_worker import (
    GATES,
    INFER,
    LESION,
    PREDICT,
    Client,
    InProcessWorker,
    binary_infer,
    infer,
    load_worker,
    request,
    rows,
)
from turnpike.service.errors import RequestError

Loop = asyncio.AbstractEventLoop

MAX_HEADER = 1024
MAX_BODY = 5000
DIGITS_TO_LETTERS = bytes.maketrans(b"0123456789", b"abcdefghij")


@functools.cache
def worker() -> InProcessWorker:
    return load_worker(max_header=MAX_HEADER, max_body=MAX_BODY, access_log=False, api_keys=("key",))


def service_decoder(loop: Loop) -> Decoder:
    """Requests to the routes of the service: no input is answered with 500 or logs an error."""
    log = ErrorLog()
    # it cannot be loaded while the loop runs
    worker()

    async def exchange(data: bytes) -> bytes:
        client = worker().connect()
        with errors_of("service", log):
            for piece in cut(data, random.Random(data)):
                client.send(piece)
                await asyncio.sleep(0)
            async with asyncio.timeout(10):
                while not is_settled(client):
                    await asyncio.sleep(0)
            client.disconnect()
            async with asyncio.timeout(10):
                while worker().shared.running or worker().app.context.counters.in_flight:
                    await asyncio.sleep(0)
        assert worker().app.context.budget.bytes == 0
        return bytes(client.wire.written)

    def read(data: bytes) -> None:
        answers = loop.run_until_complete(exchange(data))
        assert log.messages == []
        statuses = [answer[9:12] for answer in ANSWER_START.findall(answers)]
        assert b"500" not in statuses, answers
        if b"200" not in statuses:
            # in letters, because outcomes are compared without their numbers
            raise RequestError(b" ".join(statuses).translate(DIGITS_TO_LETTERS).decode())

    content, headers = binary_infer(rows(1), binary_data_output=True)
    key = {"X-Api-Key": "key"}
    seeds = [
        request(INFER, infer(rows(1)), {**key, "X-Request-Timeout-Ms": 30_000, "X-Request-Id": "mine"}),
        request(INFER, content, {**headers, "Authorization": "Bearer key"}),
        request(GATES + "?detail=units&blocks=true", infer(rows(1)), key),
        request(LESION, infer(rows(1), close=[3]), key),
        request(PREDICT, json.dumps({"instances": rows(4).tolist()}).encode(), key),
        request(INFER, gzip.compress(infer(rows(1)), mtime=0), {**key, "Content-Encoding": "gzip"}),
        request("/v2/repository/index", b'{"ready": true}', key),
        request("/v2/models/digits-10/versions/1", b"", key, method="GET"),
        request("/v2/health/ready", b"", {"Traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}, method="GET"),
    ]
    tokens = (
        *(b"Inference-Header-Content-Length: ", b"X-Request-Timeout-Ms: ", b"X-Api-Key: key\r\n", b"%2f"),
        *(
            b"/versions/1",
            b"/ready",
            b"/stats",
            b"/config",
            b"/samples",
            b"?detail=rows",
            b"Bearer ",
            b"GET ",
        ),
        *(b"Expect: 100-continue\r\n", b"Content-Encoding: deflate\r\n", b"Origin: http://x\r\n", b"HEAD "),
    )
    return Decoder(read, seeds, (RequestError,), tokens, change_body, memory=(4096, 64 << 20), inputs=300)


def is_settled(client: Client) -> bool:
    """Whether the server sends nothing more unless the client does."""
    connection = client.connection
    if client.wire.closing:
        return True
    if (current := connection._current) is None:
        return not connection.pipeline and client.wire.reading
    return not current.received and any(not waiter.done() for waiter in current._waiters)


def change_body(data: bytes, draw: random.Random) -> bytes:
    """A request with one value of its JSON changed, and the correct lengths in its head."""
    head, end, content = data.partition(b"\r\n\r\n")
    found = re.search(rb"Inference-Header-Content-Length: (\d{1,9})\r?", head)
    size = int(found[1]) if found else len(content)
    text = mutate_json(content[:size], draw)
    if found:
        head = head.replace(found[0], b"Inference-Header-Content-Length: %d" % len(text))
    content = text + content[size:]
    return (
        re.sub(rb"Host: x\r\nContent-Length: \d+", b"Host: x\r\nContent-Length: %d" % len(content), head)
        + end
        + content
    )
