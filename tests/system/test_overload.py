"""Five times more requests than a server can answer: accepted ones are quick, others are refused at once."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import requests

from tests.support.digit_requests import checked_requests
from tests.support.live_server import Server, serving, worker_processes
from tests.support.load_clients import ClientRequest, LoadGenerator
from tests.support.open_loop import OpenLoopTally, percentile, send_at_rate

pytestmark = pytest.mark.timeout(600)

OVERLOAD_FACTOR = 5
CONNECTIONS = 500
QUEUE = 16
# a request of 256 rows takes milliseconds, so a few hundred connections can send five times too many
ROWS = 256
# Seconds that half of the accepted requests may take: several times what a queue of QUEUE requests takes. If
# all connections may wait in the queue, they take far longer.
MAX_MEDIAN_SECONDS = 0.35
# Seconds that 99 of 100 accepted requests, refused ones (with the pause in reading from a client that was
# refused before) and probes may take, on a machine that the server shares with the load.
MAX_ACCEPTED_SECONDS, MAX_REFUSED_SECONDS, MAX_PROBE_SECONDS = 2.0, 1.5, 1.0
# the bodies of all connections take 32 MiB
MAX_GROWTH_MIB = 100
MAX_RECOVERY_SECONDS = 3.0


@dataclass
class Observed:
    """What was seen from outside while the load ran."""

    probes: list[float] = field(default_factory=list)
    failed_probes: list[str] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)


@contextlib.contextmanager
def observing(server: Server) -> Iterator[Observed]:
    """Probe health, and read the memory of the workers, five times a second."""
    observed, stop = Observed(), threading.Event()
    workers = worker_processes(server)

    def observe() -> None:
        while not stop.wait(0.2):
            observed.resident.append(sum(worker.memory_info().rss for worker in workers))
            for path in ("/v2/health/live", "/v2/health/ready"):
                start = time.monotonic()
                try:
                    status = requests.get(server.url + path, timeout=30).status_code
                except requests.RequestException as error:
                    observed.failed_probes.append(repr(error))
                else:
                    observed.probes.append(time.monotonic() - start)
                    if status != 200:
                        observed.failed_probes.append(f"{path}: {status}")

    thread = threading.Thread(target=observe)
    thread.start()
    try:
        yield observed
    finally:
        stop.set()
        thread.join()


def capacity(server: Server, load: list[ClientRequest]) -> float:
    """Good answers per second to eight connections, in the best of four seconds."""
    return max(asyncio.run(LoadGenerator(server.url, load, 8).run(1)).rate() for _ in range(4))


def overload(server: Server, load: list[ClientRequest], seconds: float) -> tuple[OpenLoopTally, Observed]:
    rate = OVERLOAD_FACTOR * capacity(server, load)
    with observing(server) as observed:
        tally = asyncio.run(
            send_at_rate(server.url, load, rate=rate, connections=CONNECTIONS, seconds=seconds)
        )
    sys.stdout.write(f"{rate:,.0f} requests/s offered, {tally.unsent} of them not sent\n")
    for status, count in tally.statuses.items():
        median, p99, longest = (tally.percentile(status, share) * 1e3 for share in (0.5, 0.99, 1))
        sys.stdout.write(
            f"{status}: {count} ({count / seconds:,.0f}/s), median {median:.0f} ms, p99 {p99:.0f} ms, "
            f"max {longest:.0f} ms\n"
        )
    sys.stdout.write(
        f"probes: {len(observed.probes)}, p99 {percentile(observed.probes, 0.99) * 1e3:.0f} ms, "
        f"max {max(observed.probes) * 1e3:.0f} ms; memory: "
        f"{observed.resident[0] / 2**20:.0f} MiB, max {max(observed.resident) / 2**20:.0f} MiB\n"
    )
    return tally, observed


def recovery_seconds(server: Server, load: list[ClientRequest]) -> float:
    """Seconds until twenty requests in turn are accepted."""
    start = accepted_since = time.monotonic()
    accepted = 0
    while accepted < 20:
        request = load[accepted % len(load)]
        if server.post(request.path, request.body, headers=dict(request.headers)).status_code == 200:
            accepted += 1
        else:
            accepted, accepted_since = 0, time.monotonic()
    return accepted_since - start


@pytest.mark.parametrize(
    "seconds", [pytest.param(8, marks=pytest.mark.load), pytest.param(300, marks=pytest.mark.endurance)]
)
def test_an_overload_is_refused_at_once(seconds: float) -> None:
    load = checked_requests(8, sizes=(ROWS,))
    with serving("--queue", QUEUE, "--no-access-log") as server:
        tally, observed = overload(server, load, seconds)
        recovery = recovery_seconds(server, load)
        sys.stdout.write(f"recovery: {recovery:.2f} s\n")
        failures = server.get("/metrics").text
    assert (tally.lost, tally.wrong) == (0, [])
    assert tally.statuses.keys() == {200, 503}
    assert tally.without_retry_after == 0
    assert tally.percentile(200, 0.5) < MAX_MEDIAN_SECONDS
    assert tally.percentile(200, 0.99) < MAX_ACCEPTED_SECONDS
    assert tally.percentile(503, 0.99) < MAX_REFUSED_SECONDS
    assert observed.failed_probes == []
    assert percentile(observed.probes, 0.99) < MAX_PROBE_SECONDS
    assert max(observed.resident) - observed.resident[0] < MAX_GROWTH_MIB << 20
    assert recovery < MAX_RECOVERY_SECONDS
    assert f'refused_total{{reason="overloaded"}} {float(tally.statuses[503])}' in failures


@pytest.mark.thorough
@pytest.mark.load
def test_a_queue_without_a_limit_makes_all_requests_wait() -> None:
    """The limit keeps the latency of accepted requests low: without it, the same load takes far longer."""
    load = checked_requests(8, sizes=(ROWS,))
    with serving("--queue", 100_000, "--no-access-log") as server:
        tally, _ = overload(server, load, 8)
    assert tally.statuses.keys() == {200}
    assert tally.percentile(200, 0.5) > MAX_MEDIAN_SECONDS
