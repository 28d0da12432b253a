"""Bare protocol: the least that a prediction costs in Python, in two processes on one port.

    python bare_protocol.py PORT

It batches the requests of two turns of the event loop, and has nothing else that a service needs: it checks
nothing, handles no error, and has no log, no metrics, no limits and no keys.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Any

import httptools
import numpy as np
import onnxruntime
import orjson
import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


class BareProtocol(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.parser = httptools.HttpRequestParser(self)
        self.body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        body, self.body = self.body, b""
        self.batch.add(self, np.array(orjson.loads(body)["x"], np.float32))

    def answer(self, logits: Any) -> None:
        body = orjson.dumps({"logits": logits}, option=orjson.OPT_SERIALIZE_NUMPY)
        self.transport.write(ANSWER % (len(body), body))


class Batch:
    """Collects the requests of two turns, and runs them together."""

    def __init__(self, session: onnxruntime.InferenceSession, loop: asyncio.AbstractEventLoop) -> None:
        self.session, self.loop = session, loop
        self.waiting: list[tuple[BareProtocol, Any]] = []

    def add(self, connection: BareProtocol, rows: Any) -> None:
        self.waiting.append((connection, rows))
        if len(self.waiting) == 1:
            self.loop.call_soon(self.loop.call_soon, self.run)

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        (logits,) = self.session.run(["output"], {"x": np.concatenate([rows for _, rows in waiting])})
        start = 0
        for connection, rows in waiting:
            connection.answer(logits[start : start + len(rows)])
            start += len(rows)


async def serve(listener: socket.socket) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["THREADS"])
    session = onnxruntime.InferenceSession(os.environ["FILE"], options, providers=["CPUExecutionProvider"])
    loop = asyncio.get_running_loop()
    batch = Batch(session, loop)
    server = await loop.create_server(lambda: BareProtocol(batch), sock=listener)
    await server.serve_forever()


if __name__ == "__main__":
    shared_listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=512)
    os.fork()
    uvloop.run(serve(shared_listener))
