#!/usr/bin/env -S python3 -IS
"""Run haproxy and tell it which replicas there are; `proxy routes` shows the replicas that get requests now.

By itself haproxy would send requests to a replica as soon as its name resolves, until the first check fails.
So this program looks up the names, and adds a replica once it is ready. From then on haproxy checks it.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time

CONFIG = "/etc/haproxy/haproxy.cfg"
SOCKET = "/tmp/haproxy.sock"  # noqa: S108 - no other program runs in this container
NAME = "replica"
# the backends of haproxy, with the port of each
BACKENDS = {"replicas": 8000, "grpc_replicas": 8001}
READY = b"GET /v2/health/ready HTTP/1.0\r\n\r\n"
SECONDS = 0.5  # between two updates
RUNNING = "2"  # haproxy's number for the state of a server that gets requests


def ask(command: str) -> str:
    """Send a command to haproxy's runtime interface and return the answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2)
        connection.connect(SOCKET)
        connection.sendall(command.encode() + b"\n")
        return connection.makefile(encoding="ascii").read()


def servers() -> list[dict[str, str]]:
    """haproxy's table of servers: one slot for each possible replica, with the same name in each backend."""
    lines = ask("show servers state replicas").splitlines()
    header = lines[1].lstrip("# ").split()
    return [dict(zip(header, line.split(), strict=False)) for line in lines[2:] if line]


def replica_addresses() -> set[str] | None:
    """The addresses of all running replicas, or None if Docker's name server does not answer."""
    try:
        addresses = socket.getaddrinfo(NAME, BACKENDS["replicas"], socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return None
    return {str(address[0]) for *_, address in addresses}


def is_ready(address: str) -> bool:
    try:
        with socket.create_connection((address, BACKENDS["replicas"]), timeout=SECONDS) as connection:
            connection.sendall(READY)
            return connection.makefile("rb").readline().split()[1:2] == [b"200"]
    except OSError:
        return False


def update(slots: dict[str, str]) -> None:
    """Remove replicas that are gone and add those that became ready; `slots` maps addresses to slots."""
    addresses = replica_addresses()
    if addresses is None:
        return
    for address in slots.keys() - addresses:
        slot = slots.pop(address)
        for backend in BACKENDS:
            ask(f"set server {backend}/{slot} state maint")
    for address in sorted(addresses - slots.keys()):
        free = [server["srv_name"] for server in servers() if server["srv_name"] not in slots.values()]
        if free and is_ready(address):
            slots[address] = free[0]
            for backend, port in BACKENDS.items():
                ask(f"set server {backend}/{free[0]} addr {address} port {port}")
                ask(f"set server {backend}/{free[0]} state ready")


def run() -> int:
    """Run haproxy until it ends; returns its exit status, or 0 if a signal ended it."""
    haproxy = subprocess.Popen(["/usr/sbin/haproxy", "-f", CONFIG])  # noqa: S603
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: haproxy.send_signal(number))
    slots: dict[str, str] = {}
    while haproxy.poll() is None:
        try:
            update(slots)
        except OSError as error:
            sys.stderr.write(f"proxy: haproxy does not answer at {SOCKET}: {error}\n")
        time.sleep(SECONDS)
    return max(haproxy.returncode, 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["routes"]:
        routed = [server["srv_addr"] for server in servers() if server["srv_op_state"] == RUNNING]
        sys.stdout.write("".join(f"{address}\n" for address in routed))
    else:
        sys.exit(run())
