"""A reverse proxy that serves a site under a path prefix."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

FORWARDED_HEADERS = (
    "content-type",
    "content-security-policy",
    "inference-header-content-length",
    "x-content-type-options",
)


@contextlib.contextmanager
def proxy_with_prefix(url: str, prefix: str) -> Iterator[str]:
    """Run the proxy; yields its URL with the prefix. Paths outside the prefix are 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.forward()

        def do_POST(self) -> None:
            self.forward()

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if not self.path.startswith(prefix + "/"):
                self.send_error(404)
                return
            names = ("accept", "content-type", "x-api-key", "inference-header-content-length")
            headers = {name: value for name in names if (value := self.headers.get(name))}
            response = requests.request(
                self.command, url + self.path.removeprefix(prefix), data=body, headers=headers, timeout=30
            )
            self.send_response(response.status_code)
            for name in FORWARDED_HEADERS:
                if name in response.headers:
                    self.send_header(name, response.headers[name])
            self.send_header("content-length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content)

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
