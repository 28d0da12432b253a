"""One request at a time to a server, outside the load."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from loadtest.errors import TargetError, UsageError

# of a server's own words in a sentence of ours
MOST_QUOTED = 300


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; names of headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """What its JSON says, None where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def document(self) -> dict[str, Any]:
        """Its JSON object, an empty one where it has none."""
        document = self.json()
        return document if isinstance(document, dict) else {}

    @property
    def reason(self) -> str:
        """What an answer that is not the one hoped for says, in one line: `404: no model 'x'`."""
        said = self.document().get("error") or self.body.decode("utf-8", "replace")
        words = " ".join(str(said).split())[:MOST_QUOTED]
        return f"{self.status}: {words}" if words else f"status {self.status}"


class Fetch:
    """Asks one server, with a connection for each request; paths come after the path that its URL has."""

    def __init__(
        self, url: str, api_key: str | None = None, insecure: bool = False, timeout: float = 30
    ) -> None:
        self.url = url.rstrip("/")
        self.headers = authorization(api_key)
        parts = urlsplit(self.url)
        try:
            host, self._port = parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"URL: expected a port from 0 to 65535, got {url!r}") from error
        plain = self.url.isascii() and self.url.isprintable() and " " not in self.url
        if not host or parts.username is not None or parts.query or parts.fragment or not plain:
            raise UsageError(f"URL: expected http://host:port or https://host:port, got {url!r}")
        self._host, self._path, self._timeout = host, parts.path, timeout
        self._tls = _context(insecure) if parts.scheme == "https" else None

    def get(self, path: str) -> Reply:
        return self._ask("GET", path, None, {})

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Reply:
        return self._ask("POST", path, body, headers or {})

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        connection = self._connection()
        try:
            connection.request(method, self._path + path, body, {**self.headers, **headers})
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, named, answer.read())
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise TargetError(f"{self.url}: {_why(error, self._timeout)}") from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)


def authorization(api_key: str | None) -> dict[str, str]:
    """The header that carries a key; none without one."""
    if api_key is None:
        return {}
    if not (api_key and api_key.isascii() and api_key.isprintable()) or " " in api_key:
        raise UsageError("the API key: expected one word of printable ASCII characters")
    return {"Authorization": f"Bearer {api_key}"}


def _context(insecure: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _why(error: Exception, timeout: float) -> str:
    """What went wrong, as the end of a sentence."""
    if isinstance(error, TimeoutError):
        return f"expected an answer within {timeout:g} s, got none"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"expected a certificate that can be trusted, got one that cannot ({error.verify_message}); "
            f"--insecure takes it"
        )
    if isinstance(error, ssl.SSLError):
        return "expected TLS, got something else; is it http:// that is spoken there?"
    # a name that is too long is no name to the resolver
    if isinstance(error, socket.gaierror | UnicodeError):
        return "no host of this name is known"
    if isinstance(error, ConnectionRefusedError):
        return "no server answers there (connection refused)"
    if isinstance(error, OSError | http.client.RemoteDisconnected | http.client.IncompleteRead):
        return "the connection ended before the answer was complete"
    return "expected HTTP, got something else"
