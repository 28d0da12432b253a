"""A server that answers requests of a client as a test says, on a port of its own."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Received(NamedTuple):
    """A request: its path as it was sent, its headers by names in lower case, and its body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Reply(NamedTuple):
    """An answer; a body that is no bytes is sent as JSON."""

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = {}

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


@contextlib.contextmanager
def replying(reply: Callable[[Received], Reply], port: int = 0) -> Iterator[str]:
    """The address of a server that answers each request with what `reply` returns for it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # the head and the body of an answer are two writes
        disable_nagle_algorithm = True

        def answer(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            got = reply(Received(self.command, self.path, headers, body))
            self.send_response(got.status)
            for name, value in {"Content-Length": str(len(got.content)), **got.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(got.content)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
