"""A real S3 server on this machine (moto), behind a proxy that fails as tests want it to."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import requests

from tests.support.live_server import free_port
from tests.support.virtualenvs import installed_programs
from tests.support.waiting import wait_until

BUCKET = "bucket"
HIDDEN_HEADERS = {"connection", "content-length", "date", "server", "transfer-encoding"}

# the server does not check signatures, but changes objects only for a caller with a name
AUTHORIZATION = {"authorization": "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request"}

# of a download: half of it, another byte in it; or nothing at all for any request
Fault = Literal["none", "cut", "damage", "hang"]


def s3_programs() -> Path:
    """The `bin` folder of an environment with the server and with s3fs."""
    return installed_programs("s3", "s3fs==2026.9.0", "moto[server]==5.2.5")


@dataclass
class S3Server:
    """The server's own address, and that of the proxy, through which turnpike reads it."""

    process: subprocess.Popen[bytes]
    url: str
    proxy_url: str = ""
    fault: Fault = "none"
    # objects that were downloaded, and the targets of all requests through the proxy
    downloads: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    # set to end requests that hang
    ended: threading.Event = field(default_factory=threading.Event)
    proxy: ThreadingHTTPServer | None = None

    def put(self, key: str, data: bytes) -> None:
        self._change("PUT", key, data)

    def remove(self, key: str) -> None:
        self._change("DELETE", key)

    def _change(self, method: str, key: str, data: bytes = b"") -> None:
        url = f"{self.url}/{BUCKET}/{key}"
        requests.request(method, url, data=data, headers=AUTHORIZATION, timeout=10).raise_for_status()

    def kill(self) -> None:
        """Kill the server, and refuse all connections."""
        self.process.kill()
        self.process.wait()
        self.ended.set()
        if self.proxy is not None:
            self.proxy.shutdown()
            self.proxy.server_close()

    def variables(self) -> dict[str, str]:
        """Variables of a process that reads the server with s3fs."""
        (packages,) = s3_programs().parent.glob("lib/python*/site-packages")
        return {
            "PYTHONPATH": str(packages),
            "AWS_ENDPOINT_URL": self.proxy_url,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
        }


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run the server with an empty bucket, and the proxy."""
    port = free_port()
    process = subprocess.Popen(
        [s3_programs() / "moto_server", "--host", "127.0.0.1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    server = S3Server(process, f"http://127.0.0.1:{port}")
    try:
        wait_until(
            lambda: requests.put(f"{server.url}/{BUCKET}", timeout=10).ok, allowed=requests.ConnectionError
        )
        server.proxy_url = _start_proxy(server)
        yield server
    finally:
        server.kill()


def _start_proxy(server: S3Server) -> str:
    """Start the proxy; returns its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.forward()

        def do_HEAD(self) -> None:
            self.forward()

        def forward(self) -> None:
            server.targets.append(self.path)
            if server.fault == "hang":
                server.ended.wait(120)
                self.close_connection = True
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            try:
                response = requests.request(
                    self.command, server.url + self.path, headers=headers, timeout=10, stream=True
                )
            except requests.ConnectionError:
                self.close_connection = True
                return
            body = b"" if self.command == "HEAD" else response.raw.read()
            length = response.headers.get("content-length", str(len(body)))
            path = self.path.partition("?")[0]
            if self.command == "GET" and path.endswith(".onnx"):
                server.downloads.append(path.removeprefix(f"/{BUCKET}/"))
                if server.fault == "damage":
                    middle = len(body) // 4
                    body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
                elif server.fault == "cut":
                    body = body[: len(body) // 2]
                    self.close_connection = True
            self.send_response(response.status_code)
            for name, value in response.headers.items():
                if name.lower() not in HIDDEN_HEADERS:
                    self.send_header(name, value)
            self.send_header("content-length", length)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: Any) -> None:
            pass

    class Proxy(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that was killed resets its connections."""

    server.proxy = Proxy(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.proxy.serve_forever)
    thread.start()
    return f"http://127.0.0.1:{server.proxy.server_port}"
