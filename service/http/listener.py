"""The listening socket: bound with clear errors, and closed without losing a connection."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct

from service.errors import SettingError

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
        raise SettingError(refusal(error, host, port)) from error
    listener.setblocking(False)
    return listener


def refusal(error: OSError, host: str, port: int) -> str:
    if isinstance(error, PermissionError):
        return f"--port: expected a port that this user may listen on, such as one from 1024, got {port}"
    if error.errno == 98:  # EADDRINUSE
        return f"--port: expected a free port, got {port}, on which another process listens"
    return f"--host: expected an address of this machine, got {host!r}"


def address_of(listener: socket.socket, scheme: str) -> str:
    """Where a person finds it; an address that stands for all of them is shown as this machine's own."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"{scheme}://{host}:{port}"


def stop_new(listener: socket.socket) -> None:
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
