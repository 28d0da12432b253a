"""Chooses the number of sending processes by the CPUs that the server does not need."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from turnpike.common.cpus import available_cpus
from turnpike.loadtest.plan import LoadPlan

# Share of the CPUs for the load if the server runs on the same machine. A request costs the server more CPU
# time than the load generator, so the other half is the bottleneck.
LOCAL_SHARE = 0.5


def default_processes(plan: LoadPlan) -> int:
    """One process for each CPU to spare, but no more than there are users."""
    cpus = available_cpus()
    if is_this_machine(urlsplit(plan.url).hostname or ""):
        cpus *= LOCAL_SHARE
    most = max(1, int(cpus))
    return most if plan.open_loop else min(most, plan.users)


def is_this_machine(host: str) -> bool:
    """Whether a server of this name runs here: only addresses of this machine can be listened on."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.bind(address)
    except (OSError, UnicodeError):
        return False
    return True
