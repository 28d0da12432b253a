"""A proxy that hands on what lies under a prefix, as sites do that have many services behind one name."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

KEPT = (
    "content-type",
    "content-security-policy",
    "inference-header-content-length",
    "x-content-type-options",
)


@contextlib.contextmanager
def prefixing(url: str, prefix: str) -> Iterator[str]:
    """The address of such a proxy before a server; what lies outside of the prefix is 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.hand_on()

        def do_POST(self) -> None:
            self.hand_on()

        def hand_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if not self.path.startswith(prefix + "/"):
                self.send_error(404)
                return
            named = ("content-type", "x-api-key", "inference-header-content-length")
            headers = {name: value for name in named if (value := self.headers.get(name))}
            answer = requests.request(
                self.command, url + self.path.removeprefix(prefix), data=body, headers=headers, timeout=30
            )
            self.send_response(answer.status_code)
            for name in KEPT:
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_port}{prefix}"
        finally:
            proxy.shutdown()
            thread.join()
