"""The listening socket: bound with clear errors, and closed without losing a connection."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import socket
import ssl
import struct
from typing import TYPE_CHECKING

from service.errors import SettingError

if TYPE_CHECKING:
    from service.config.settings import Settings

BACKLOG = 2048
# from linux/filter.h and asm-generic/socket.h
SO_ATTACH_FILTER = 26
LOAD_BYTE, JUMP_IF_SET, RETURN = 0x30, 0x45, 0x06
FLAGS_OF_TCP, SYN = 13, 0x02
WHOLE_PACKET = 0xFFFFFFFF


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there, or a SettingError that says why it cannot."""
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
            # :: is every address, those of IPv4 too
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise SettingError(bind_error_message(error, host, port)) from error
    listener.setblocking(False)
    return listener


def bind_error_message(error: OSError, host: str, port: int) -> str:
    if isinstance(error, PermissionError):
        return f"--port: expected a port that this user may listen on, such as one from 1024, got {port}"
    if error.errno == 98:  # EADDRINUSE
        return f"--port: expected a free port, got {port}, on which another process listens"
    return f"--host: expected an address of this machine, got {host!r}"


def listener_url(listener: socket.socket, scheme: str) -> str:
    """Where a person finds it; an address that stands for all of them is shown as this machine's own."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"{scheme}://{host}:{port}"


def refuse_new_connections(listener: socket.socket) -> None:
    """Let no new connection in, while those that are in the queue can still be accepted.

    A socket that is closed resets the connections in its queue. With this filter on it, first packets are
    dropped as if lost on the way: who sends one tries again a second later, and is refused by then. Where
    the kernel knows no such filter, nothing changes.
    """
    program = b"".join(
        struct.pack("HBBI", *step)
        for step in (
            (LOAD_BYTE, 0, 0, FLAGS_OF_TCP),
            (JUMP_IF_SET, 0, 1, SYN),
            (RETURN, 0, 0, 0),
            (RETURN, 0, 0, WHOLE_PACKET),
        )
    )
    steps = ctypes.create_string_buffer(program, len(program))
    with contextlib.suppress(OSError):
        listener.setsockopt(
            socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(program) // 8, ctypes.addressof(steps))
        )


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """The context of these settings, None without one; a SettingError says what is wrong with its files."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    cert, key = str(settings.tls_cert), str(settings.tls_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def passphrase() -> str:
        # left to itself, OpenSSL would ask for it on the terminal
        raise SettingError(f"--tls-key: expected a key without a passphrase, got {key!r}, which has one")

    try:
        # the next step alone would not say which of both files is at fault
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cert)
    except OSError as error:
        raise SettingError(f"--tls-cert: expected a certificate chain (PEM), got {cert!r}") from error
    try:
        context.load_cert_chain(cert, key, passphrase)
    except OSError as error:
        said = f"--tls-key: expected the private key (PEM) of the certificate {cert!r}, got {key!r}"
        reason = getattr(error, "reason", None)
        raise SettingError(said + (f" ({reason.lower().replace('_', ' ')})" if reason else "")) from error
    return context


# of a worker that accepts none
NOT_ACCEPTING = 0xFFFFFFFF


class ConnectionCounts:
    """One number for each, in memory that all of them see. Workers count from 1."""

    def __init__(self, workers: int) -> None:
        self._counts = memoryview(mmap.mmap(-1, 4 * workers)).cast("I")
        for number in range(1, workers + 1):
            self.leave(number)

    def note(self, number: int, count: int) -> None:
        self._counts[number - 1] = count

    def leave(self, number: int) -> None:
        """Expect nothing of this worker."""
        self._counts[number - 1] = NOT_ACCEPTING

    def least(self) -> int:
        return min(self._counts)
