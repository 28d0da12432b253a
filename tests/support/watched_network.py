"""A network of its own for a program, which records what the program sends to other machines.

    unshare ... python -m tests.support.watched_network FOLDER PROGRAM...

runs PROGRAM in a network namespace, with an empty home and an empty folder for temporary files below FOLDER.
It prints an `Outcome` as JSON.

The namespace has one link. This module records all packets at its other end, and is the name server: it
answers every question with an address at the other end, where no machine is. So a program that reports to
somebody looks up a name and tries to connect, and nothing leaves this machine.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.python_path import ROOT, python_path

# runs a command as root of new namespaces, so that no right is needed
UNSHARE = ("unshare", "--user", "--map-root-user", "--mount", "--net")
# 192.0.2.0/24 is reserved for examples, so the address belongs to no machine
ADDRESS, OTHER_ADDRESS = "192.0.2.1", "192.0.2.2"
LINK = """
ip link set lo up
ip link add inside type veth peer name outside
ip link set inside arp off addrgenmode none
ip link set outside arp off addrgenmode none
ip addr add {address}/24 dev inside
ip link set inside up
ip link set outside up
ip route add default dev inside
"""
ETHERNET_HEADER_BYTES = 14
IPV4 = 0x0800
ALL_PROTOCOLS = 3  # ETH_P_ALL


def available() -> bool:
    """Whether this machine lets us make a network namespace with a link."""
    command = [*UNSHARE, "sh", "-ec", LINK.format(address=ADDRESS)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@dataclass(frozen=True)
class Outcome:
    """What a program did.

    Attributes:
        status: Its exit status.
        output: What it printed, to stdout and stderr.
        sent: The names that it looked up, and the addresses to which it sent packets.
        files: The files that it left in its home and in its folder for temporary files.
    """

    status: int
    output: str
    sent: list[str]
    files: list[str]


@contextmanager
def running(folder: Path, *program: str) -> Iterator[subprocess.Popen[str]]:
    """Start a program in a network of its own. `outcome` waits for it; at the end it is killed.

    Args:
        folder: A new folder, for the home of the program.
        program: The program and its arguments.
    """
    folder.mkdir()
    process = subprocess.Popen(
        [*UNSHARE, sys.executable, "-m", "tests.support.watched_network", folder, *program],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": python_path(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def outcome(process: subprocess.Popen[str]) -> Outcome:
    """Wait until a program ends."""
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return Outcome(**json.loads(output))


class Watch:
    """Records the questions to the name server, and the packets at the other end of the link."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self._names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._names.bind((ADDRESS, 53))
        self._link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
        self._link.bind(("outside", 0))
        for target in (self._answer_lookups, self._record_packets):
            threading.Thread(target=target, daemon=True).start()

    def _answer_lookups(self) -> None:
        while True:
            question, client = self._names.recvfrom(65535)
            # the name follows the header: each part after its length, and a zero at the end
            parts, position = [], 12
            while length := question[position]:
                parts.append(question[position + 1 : position + 1 + length].decode())
                position += 1 + length
            end = position + 5  # after the zero, the type and the class
            self.sent.append(".".join(parts))
            is_ipv4 = question[position + 1 : position + 3] == b"\x00\x01"
            answer = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + socket.inet_aton(OTHER_ADDRESS)
            header = question[:2] + struct.pack("!HHHHH", 0x8180, 1, is_ipv4, 0, 0)
            self._names.sendto(header + question[12:end] + answer * is_ipv4, client)

    def _record_packets(self) -> None:
        while True:
            packet = self._link.recv(65535)
            kind = int.from_bytes(packet[12:14])
            # protocol and destination of IPv4
            payload = packet[ETHERNET_HEADER_BYTES:]
            self.sent.append(
                f"protocol {payload[9]} to {socket.inet_ntoa(payload[16:20])}"
                if kind == IPV4
                else f"packet of type {kind:#06x}"
            )


def files_below(folder: Path) -> list[str]:
    """The files below a folder, relative to it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def set_up(folder: Path) -> None:
    """Create the link, and make this process the name server of all programs."""
    subprocess.run(["sh", "-ec", LINK.format(address=ADDRESS)], check=True)
    resolver = folder / "resolv.conf"
    resolver.write_text(f"nameserver {ADDRESS}\n")
    order = folder / "nsswitch.conf"
    order.write_text("hosts: files dns\n")
    for path in (resolver, order):
        subprocess.run(["mount", "--bind", path, f"/etc/{path.name}"], check=True)


def main() -> None:
    folder, program = Path(sys.argv[1]), sys.argv[2:]
    set_up(folder)
    watch = Watch()
    home, temporary, work = (folder / name for name in ("home", "temporary", "work"))
    for path in (home, temporary, work):
        path.mkdir()
    ran = subprocess.run(
        program,
        cwd=work,
        env=os.environ | {"HOME": str(home), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    files = files_below(home) + files_below(temporary)
    # one line for each name and address: a connection is many packets
    result = Outcome(ran.returncode, ran.stdout, sorted(set(watch.sent)), files)
    print(json.dumps(asdict(result)))  # noqa: T201


if __name__ == "__main__":
    main()
