"""Measures the memory of a server over millions of requests, to show whether it grows.

Starts `turnpike serve` with the bundled model and sends requests of every kind (`request_mix.py`):
predictions as JSON and in binary, gates, metrics, refused requests, and connections that end too early. The
resident memory of supervisor and workers is read at intervals, after a warm-up in which caches fill.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.errors import BenchmarkError
from benchmarks.measurement.our_server import running_turnpike
from benchmarks.measurement.processes import BYTES_PER_MIB
from benchmarks.under_load.request_mix import MixedClient

# samples at each end of the measured part, whose medians are compared
END_SAMPLES = 3


@dataclass(frozen=True)
class Sample:
    """Resident bytes, open files and threads of each process after a number of requests, supervisor first."""

    requests: int
    resident: tuple[int, ...]
    files: tuple[int, ...]
    threads: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.resident)


@dataclass(frozen=True)
class Growth:
    """Growth of the resident memory after the warm-up, and in the last third of it, in MiB."""

    total: float
    last_third: float

    def is_leak(self, limit: float) -> bool:
        """Whether memory grew by more than `limit` MiB, or still grows at such a rate in the last third."""
        return self.total > limit or self.last_third > limit / 3


def growth_of(samples: Sequence[Sample]) -> Growth:
    """The growth over the samples that follow the warm-up. Needs three times END_SAMPLES of them."""
    totals = [sample.total / BYTES_PER_MIB for sample in samples]
    if len(totals) < 3 * END_SAMPLES:
        raise BenchmarkError(f"soak: expected at least {3 * END_SAMPLES} samples, got {len(totals)}")

    def level(start: int) -> float:
        return median(totals[start : start + END_SAMPLES])

    end = level(len(totals) - END_SAMPLES)
    return Growth(end - level(0), end - level(len(totals) * 2 // 3 - END_SAMPLES + 1))


def soak(*, requests: int, warm_up: int, every: int, clients: int, workers: int, limit: float) -> None:
    """Send the requests, print samples and growth, and raise BenchmarkError if memory grew too much.

    Arguments:
        requests: number of requests after the warm-up
        warm_up: number of requests before the first sample that counts
        every: requests between samples
        clients: connections at a time, each with a thread here
        workers: workers of the server
        limit: growth in MiB that is accepted
    """
    with running_turnpike("--workers", workers) as server:
        load = [MixedClient(server.address, seed) for seed in range(clients)]
        samples = list(sample_under_load(server.process, load, warm_up + requests, every, server.log))
        counted = [sample for sample in samples if sample.requests >= warm_up]
        answered, aborted, connections = (
            sum(getattr(client, name) for client in load) for name in ("answered", "aborted", "connections")
        )
    growth = growth_of(counted)
    print(
        f"{answered:,} answered requests over {connections:,} connections, {aborted:,} requests aborted\n"
        f"growth after the warm-up {growth.total:+.2f} MiB, in the last third {growth.last_third:+.2f} MiB\n"
        f"growth of each process: {differences(counted, 'resident', BYTES_PER_MIB, '+.2f')} MiB\n"
        f"open files: {differences(counted, 'files')}, threads: {differences(counted, 'threads')}"
    )
    if growth.is_leak(limit):
        raise BenchmarkError(
            f"soak: expected growth of at most {limit:g} MiB, and of a third of it in the last third, got "
            f"{growth.total:.2f} and {growth.last_third:.2f} MiB"
        )
    print(f"plateau: at most {limit:g} MiB in all, and a third of it in the last third")


def differences(samples: Sequence[Sample], name: str, unit: int = 1, form: str = "+d") -> str:
    """How much a figure of each process changed between the first and the last sample."""
    pairs = zip(getattr(samples[0], name), getattr(samples[-1], name), strict=True)
    changes = ((after - before) / unit if unit != 1 else after - before for before, after in pairs)
    return ", ".join(format(change, form) for change in changes)


def sample_under_load(
    server: psutil.Process, load: Sequence[MixedClient], requests: int, every: int, log: Path
) -> Iterator[Sample]:
    """Let the clients send requests, and print and yield samples until all are answered.

    Arguments:
        server: the supervisor
        load: clients that share the requests
        requests: number of requests in all
        every: requests between samples
        log: the file that the server writes its log to, which is emptied at each sample
    """
    errors: list[BenchmarkError] = []

    def run(client: MixedClient) -> None:
        try:
            client.send(requests // len(load))
        except (BenchmarkError, OSError) as error:
            errors.append(BenchmarkError(f"soak: {error}"))

    threads = [threading.Thread(target=run, args=(client,), daemon=True) for client in load]
    processes = [server, *server.children()]
    for thread in threads:
        thread.start()
    start = time.monotonic()
    due = 0
    print("requests, seconds, resident MiB of supervisor and workers, their sum")
    while any(thread.is_alive() for thread in threads) and not errors:
        answered = sum(client.answered for client in load)
        if answered >= due:
            due += every
            os.truncate(log, 0)
            sample = take_sample(answered, processes)
            sizes = "  ".join(f"{size / BYTES_PER_MIB:8.2f}" for size in (*sample.resident, sample.total))
            print(f"{answered:>9,}  {time.monotonic() - start:6.0f}  {sizes}", flush=True)
            yield sample
        time.sleep(0.05)
    if errors:
        raise errors[0]


def take_sample(requests: int, processes: Sequence[Any]) -> Sample:
    try:
        return Sample(
            requests,
            tuple(process.memory_info().rss for process in processes),
            tuple(process.num_fds() for process in processes),
            tuple(process.num_threads() for process in processes),
        )
    except psutil.NoSuchProcess as error:
        raise BenchmarkError(f"soak: expected all processes to run to the end, got {error}") from error
