"""The health check of the images asks over HTTP or HTTPS, and says why a service is not healthy."""

from __future__ import annotations

import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.live_server import free_port
from tests.support.tls_certificate import certificate

ALIVE = Path(__file__).parents[2] / "deploy/alive.py"
REASON = '{"live":true,"ready":false,"reason":"digits-10/1: its file is damaged"}'


class Health(BaseHTTPRequestHandler):
    """Is alive, and not ready."""

    def do_GET(self) -> None:
        live = self.path == "/v2/health/live"
        self.send_response(200 if live else 503)
        self.end_headers()
        self.wfile.write(b"{}" if live else REASON.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing about requests."""


@contextmanager
def server(certificates: tuple[Path, Path] | None = None) -> Iterator[str]:
    """The address of a service that is not ready, without its scheme."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Health) as http:
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificates)
            http.socket = context.wrap_socket(http.socket, server_side=True)
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{http.server_port}"
        finally:
            http.shutdown()
            thread.join()


def check(url: str) -> tuple[int, str]:
    """The exit status of the check, and what it prints, which Docker keeps."""
    result = subprocess.run([sys.executable, "-IS", ALIVE, url], capture_output=True, text=True, check=False)
    return result.returncode, result.stdout + result.stderr


def test_a_healthy_service_is_silent() -> None:
    with server() as address:
        assert check(f"http://{address}/v2/health/live") == (0, "")


def test_the_health_check_says_why_a_service_is_not_ready() -> None:
    """The answer of the route is in its output."""
    with server() as address:
        status, output = check(f"http://{address}/v2/health/ready")
    assert status == 1
    assert output.startswith(f"http://{address}/v2/health/ready: expected 200, got 'HTTP/1.0 503 ")
    assert output.endswith(f": {REASON}\n")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_service_that_does_not_listen_is_not_healthy(scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:{free_port()}/v2/health/live"
    status, output = check(url)
    assert status == 1
    assert output.startswith(f"{url}: ")
    assert "refused" in output


def test_the_health_check_speaks_https(tmp_path: Path) -> None:
    """It accepts any certificate: that of a service is not for 127.0.0.1."""
    with server(certificate(tmp_path)) as address:
        assert check(f"https://{address}/v2/health/live") == (0, "")
        status, output = check(f"https://{address}/v2/health/ready")
    assert status == 1
    assert output.endswith(f": {REASON}\n")


def test_https_without_a_certificate_is_not_healthy() -> None:
    """A service that should encrypt and does not is found."""
    with server() as address:
        status, output = check(f"https://{address}/v2/health/live")
    assert status == 1
    assert "SSL" in output
