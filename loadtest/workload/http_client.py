"""Simple HTTP client for single requests outside the load: metadata, reference answers, metrics."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from turnpike.loadtest.errors import TargetError, UsageError

# made-up rows say nothing about real traffic, so turnpike leaves them out of the drift of gates
UNOBSERVED = {"X-Turnpike-Drift": "skip"}
# characters of a server's error message that our own message quotes
MAX_QUOTED_CHARS = 300


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """The parsed body; None if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def document(self) -> dict[str, Any]:
        """The JSON object of the body; empty if there is none."""
        document = self.json()
        return document if isinstance(document, dict) else {}

    @property
    def reason(self) -> str:
        """Status and error message in one line: `404: no model 'x'`."""
        message = self.document().get("error") or self.body.decode("utf-8", "replace")
        line = " ".join(str(message).split())[:MAX_QUOTED_CHARS]
        return f"{self.status}: {line}" if line else f"status {self.status}"


class HttpClient:
    """Sends requests to one server, each on a new connection; paths go after the path in its URL."""

    def __init__(
        self, url: str, api_key: str | None = None, insecure: bool = False, timeout: float = 30
    ) -> None:
        """Check the URL and the key; a UsageError if one is invalid.

        Args:
            url: The server, as http://host:port or https://host:port, with or without a path.
            api_key: Sent with every request.
            insecure: Accept any TLS certificate.
            timeout: Seconds to wait for an answer.
        """
        self.url = url.rstrip("/")
        self.headers = UNOBSERVED | authorization_header(api_key)
        parts = urlsplit(self.url)
        try:
            host, self._port = parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"URL: expected a port from 0 to 65535, got {url!r}") from error
        plain = self.url.isascii() and self.url.isprintable() and " " not in self.url
        if not host or parts.username is not None or parts.query or parts.fragment or not plain:
            raise UsageError(f"URL: expected http://host:port or https://host:port, got {url!r}")
        self._host, self._path, self._timeout = host, parts.path, timeout
        self._tls = _tls_context(insecure) if parts.scheme == "https" else None

    def get(self, path: str) -> Reply:
        return self._send("GET", path, None, {})

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Reply:
        return self._send("POST", path, body, headers or {})

    def _send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        connection = self._connection()
        try:
            connection.request(method, self._path + path, body, {**self.headers, **headers})
            response = connection.getresponse()
            answer_headers = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, answer_headers, response.read())
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise TargetError(f"{self.url}: {_reason(error, self._timeout)}") from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)


def authorization_header(api_key: str | None) -> dict[str, str]:
    """The header with the key; empty without a key."""
    if api_key is None:
        return {}
    if not (api_key and api_key.isascii() and api_key.isprintable()) or " " in api_key:
        raise UsageError("the API key: expected one word of printable ASCII characters")
    return {"Authorization": f"Bearer {api_key}"}


def _tls_context(insecure: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _reason(error: Exception, timeout: float) -> str:
    """What went wrong, as the end of a message."""
    if isinstance(error, TimeoutError):
        return f"expected an answer within {timeout:g} s, got none"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"expected a trusted certificate, got an untrusted one ({error.verify_message}); "
            f"--insecure accepts it"
        )
    if isinstance(error, ssl.SSLError):
        return "expected TLS, got something else; the server may speak http:// instead"
    # the resolver raises UnicodeError for a name that is too long
    if isinstance(error, socket.gaierror | UnicodeError):
        return "there is no host with this name"
    if isinstance(error, ConnectionRefusedError):
        return "no server answers there (connection refused)"
    if isinstance(error, OSError | http.client.RemoteDisconnected | http.client.IncompleteRead):
        return "the connection ended before the answer was complete"
    return "expected HTTP, got something else"
