#!/usr/bin/env -S python3 -IS
"""haproxy, and who it routes to: `proxy` runs it, `proxy routes` shows the replicas that get requests now.

haproxy takes a server whose name begins to resolve for a good one until its first check fails. So the names
are looked up here, and a replica is made known to haproxy, which checks it from then on, once it is ready.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time

CONFIG = "/etc/haproxy/haproxy.cfg"
SOCKET = "/tmp/haproxy.sock"  # noqa: S108 - nobody else is in this container
REPLICAS = ("replica", 8000)
READY = b"GET /v2/health/ready HTTP/1.0\r\n\r\n"
SECONDS = 0.5  # between two looks
RUNNING = "2"  # of haproxy's states of a server


def ask(command: str) -> str:
    """What haproxy answers to a command of its runtime interface."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2)
        connection.connect(SOCKET)
        connection.sendall(command.encode() + b"\n")
        return connection.makefile(encoding="ascii").read()


def servers() -> list[dict[str, str]]:
    """haproxy's table of servers, a place for each replica that there may be."""
    lines = ask("show servers state replicas").splitlines()
    header = lines[1].lstrip("# ").split()
    return [dict(zip(header, line.split(), strict=False)) for line in lines[2:] if line]


def named() -> set[str] | None:
    """The addresses of all replicas that run, None where Docker does not say."""
    try:
        found = socket.getaddrinfo(*REPLICAS, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return None
    return {str(address[0]) for *_, address in found}


def is_ready(address: str) -> bool:
    """Whether a replica says that it is."""
    try:
        with socket.create_connection((address, REPLICAS[1]), timeout=SECONDS) as connection:
            connection.sendall(READY)
            return connection.makefile("rb").readline().split()[1:2] == [b"200"]
    except OSError:
        return False


def look(places: dict[str, str]) -> None:
    """Take replicas out that are gone, and newcomers in; `places` is who has which by address."""
    there = named()
    if there is None:
        return
    for address in places.keys() - there:
        ask(f"set server replicas/{places.pop(address)} state maint")
    for address in sorted(there - places.keys()):
        free = [one["srv_name"] for one in servers() if one["srv_name"] not in places.values()]
        if free and is_ready(address):
            places[address] = free[0]
            ask(f"set server replicas/{free[0]} addr {address} port {REPLICAS[1]}")
            ask(f"set server replicas/{free[0]} state ready")


def run() -> int:
    """Run haproxy until it ends; its exit status, or 0 where a signal ended it."""
    haproxy = subprocess.Popen(["/usr/sbin/haproxy", "-f", CONFIG])  # noqa: S603
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: haproxy.send_signal(number))
    places: dict[str, str] = {}
    while haproxy.poll() is None:
        try:
            look(places)
        except OSError as error:
            sys.stderr.write(f"proxy: haproxy does not answer at {SOCKET}: {error}\n")
        time.sleep(SECONDS)
    return max(haproxy.returncode, 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["routes"]:
        routed = [one["srv_addr"] for one in servers() if one["srv_op_state"] == RUNNING]
        sys.stdout.write("".join(f"{address}\n" for address in routed))
    else:
        sys.exit(run())
