"""Which hosts a request may name in its header Host: the setting `--allowed-hosts`.

A web page can make its own name resolve to 127.0.0.1 (DNS rebinding). The browser then takes a service on
this machine for the page's own server, and lets the page call it. The header Host still has the page's name.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable

from turnpike.service.bounded_cache import BoundedCache
from turnpike.service.config.settings import Settings
from turnpike.service.errors import MisdirectedError
from turnpike.service.requests.request import RequestHead
from turnpike.service.requests.response import MAX_QUOTED_LENGTH

ANY_HOST = "*"
LOCAL_HOSTS = "localhost or a loopback address, as the service listens on one"
# allowed values of the header Host that are kept: clients repeat a few, and an address takes 2 µs to check
MAX_CACHED_HOSTS, MAX_CACHED_HOST_BYTES = 256, 200


class AllowedHosts:
    """Refuses requests for other hosts."""

    def __init__(self, expected: str, is_allowed: Callable[[str], bool]) -> None:
        """`expected` names the hosts in errors; `is_allowed` gets a host as `host_name` writes it."""
        self._expected = expected
        self._is_allowed = is_allowed
        # values of the header Host that were found to be allowed
        self._allowed: BoundedCache[bytes, None] = BoundedCache(MAX_CACHED_HOSTS)

    @classmethod
    def from_settings(cls, settings: Settings) -> AllowedHosts | None:
        """The rules of the settings, None if any host is allowed."""
        if settings.allowed_hosts:
            return None if ANY_HOST in settings.allowed_hosts else cls.listed(settings.allowed_hosts)
        return cls.local(settings.host) if _is_loopback_host(settings.host) else None

    @classmethod
    def listed(cls, hosts: Iterable[str]) -> AllowedHosts:
        """Allow these hosts; `*.example.org` matches all names that end in `.example.org`."""
        names = {host_name(host) for host in hosts}
        suffixes = tuple(name[1:] for name in names if name.startswith("*."))
        return cls(" or ".join(sorted(names)), lambda name: name in names or name.endswith(suffixes))

    @classmethod
    def local(cls, own: str) -> AllowedHosts:
        """Allow the names and addresses of this machine for itself, and `own`."""
        own_name = host_name(f"[{own}]" if ":" in own else own)

        def is_local(name: str) -> bool:
            return name in ("localhost", own_name) or name.endswith(".localhost") or _is_loopback(name)

        return cls(LOCAL_HOSTS, is_local)

    def check(self, head: RequestHead) -> None:
        """Raise MisdirectedError if the request is for another host.

        A request without Host (HTTP/1.0) is allowed, because browsers always send Host.
        """
        host = head.fields.get(b"host")
        if host is None or host in self._allowed:
            return
        name = host_name(host.decode("latin-1"))
        if not self._is_allowed(name):
            raise MisdirectedError(
                f"Host: expected {self._expected} (--allowed-hosts), got {name[:MAX_QUOTED_LENGTH]!r}"
            )
        if len(host) <= MAX_CACHED_HOST_BYTES:
            self._allowed.add(host, None)


def host_name(host: str) -> str:
    """A host in lower case, without its port, and without the dot that may end a full name."""
    host = host.strip().lower()
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return name.removesuffix(".")


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _is_loopback_host(host: str) -> bool:
    """Whether a service that listens on this host can only be reached from this machine."""
    try:
        address = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][4]
    except (OSError, UnicodeError):
        # listening on it fails too, with a better message
        return False
    return _is_loopback(str(address[0]))
