"""The listening socket, bound with clear errors and closed without losing a connection, and its TLS."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import sys
from collections.abc import Sequence

from turnpike.service.config.settings import Settings
from turnpike.service.errors import SettingError

# connections that may wait in the queue of the port
BACKLOG = 2048
# options of Linux, from linux/in.h and linux/in6.h: the smallest TTL, or hop limit, of packets that count
IP_MINTTL, IPV6_MINHOPCOUNT = 21, 73
LARGEST_TTL = 255


def listen(host: str, port: int, option: str = "--port") -> socket.socket:
    """A socket that listens on this address; raises a SettingError that says why it cannot.

    `option` is that of the port, for the error.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise SettingError(f"--host: expected an address or a name of this machine, got {host!r}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # the address :: stands for all addresses, those of IPv4 included
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise SettingError(bind_error_message(error, host, port, option)) from error
    listener.setblocking(False)
    return listener


def bind_error_message(error: OSError, host: str, port: int, option: str = "--port") -> str:
    """Why a socket could not be bound."""
    if isinstance(error, PermissionError):
        return f"{option}: expected a port that this user may listen on, such as one from 1024, got {port}"
    if error.errno == errno.EADDRINUSE:
        return f"{option}: expected a free port, got {port}, on which another process listens"
    return f"--host: expected an address of this machine, got {host!r}"


def listener_url(listener: socket.socket, scheme: str) -> str:
    """The URL of a listener."""
    host, port = listener.getsockname()[:2]
    return url_of(scheme, host, port)


def listener_address(listener: socket.socket) -> str:
    """The address of a listener, as clients of gRPC take it."""
    host, port = listener.getsockname()[:2]
    return address_of(host, port)


def url_of(scheme: str, host: str, port: int) -> str:
    """The URL to show to people; see `address_of`."""
    return f"{scheme}://{address_of(host, port)}"


def address_of(host: str, port: int) -> str:
    """Host and port to show to people; a host that stands for all addresses becomes the loopback address."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"{host}:{port}"


def refuse_new_connections(listener: socket.socket) -> None:
    """Let no new connection into the queue of the port; those in the queue can still be accepted.

    Closing a socket resets the connections in its queue, so the queue must be emptied first. From now on the
    kernel drops the first packet of each new connection, as if the network had lost it, since its TTL is
    below 255 (Linux and macOS send 64, Windows 128). The client sends it again a second later, when the port
    is closed, and is refused. Other ways need privileges, which a container usually lacks (a socket filter).
    """
    _set_smallest_ttl(listener, LARGEST_TTL)


def accept(listener: socket.socket) -> socket.socket:
    """Accept a connection from the queue of the port."""
    connection, _ = listener.accept()
    connection.setblocking(False)
    # its handshake may have ended after refuse_new_connections, whose limit it has then inherited
    _set_smallest_ttl(connection, 0)
    return connection


def _set_smallest_ttl(sock: socket.socket, ttl: int) -> None:
    """Have the kernel drop packets for this socket that have a smaller TTL. Only Linux can do so."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_IP, IP_MINTTL, ttl)
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, IPV6_MINHOPCOUNT, ttl)


def tls_context(settings: Settings, alpn: Sequence[str] = ()) -> ssl.SSLContext | None:
    """The TLS context, or None without a certificate; raises a SettingError if a file cannot be used.

    `alpn` are the protocols that a client may choose.
    """
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    cert, key = str(settings.tls_cert), str(settings.tls_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if alpn:
        context.set_alpn_protocols(list(alpn))

    def passphrase() -> str:
        # without this callback, OpenSSL would ask for the passphrase on the terminal
        raise SettingError(f"--tls-key: expected a key without a passphrase, got {key!r}, which has one")

    try:
        # load_cert_chain alone would not say which of the two files cannot be used
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cert)
    except OSError as error:
        raise SettingError(f"--tls-cert: expected a certificate chain (PEM), got {cert!r}") from error
    try:
        context.load_cert_chain(cert, key, passphrase)
    except OSError as error:
        message = f"--tls-key: expected the private key (PEM) of the certificate {cert!r}, got {key!r}"
        reason = getattr(error, "reason", None)
        raise SettingError(message + (f" ({reason.lower().replace('_', ' ')})" if reason else "")) from error
    return context
