"""A simulated server, its load generator and their machine, for searches without a real clock.

Requests flow like water: some arrive in each moment, some are answered, and the rest waits in a queue. While
other programs have a part of the CPUs, server and load generator get through less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from turnpike.loadtest.ledger import LatencyHistogram, OutcomeTotals, PeriodSummary
from turnpike.loadtest.measure.capacity import CapacitySearch, RateResult, Step
from turnpike.loadtest.slo import Slo

# seconds of a moment, of the start of a step, of the time that its result leaves out, and of a recovery
MOMENT, START, SETTLING, RECOVERY = 0.02, 0.5, 1.0, 1.0
# seconds of a request without a queue, and what is added while other programs run
IDLE_LATENCY, DISTURBED_LATENCY = 0.001, 0.004
MAX_IN_FLIGHT = 2000
# share of the time in which the load generator waits for a CPU while other programs run
STARVED = 0.4


def never(time: float) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a step measured: the arguments of `CapacitySearch.record`."""

    summary: PeriodSummary
    late_p99: float
    completed: int
    starved: float


@dataclass
class SimulatedServer:
    """A server that answers `capacity` requests per second.

    Attributes:
        capacity: Requests per second.
        generator_limit: Requests per second that the load generator can send.
        disturbed: Whether other programs run at a time.
        left: Share of the CPUs that other programs leave.
        sees_starvation: Whether the load generator waits for a CPU, too, when other programs run.
    """

    capacity: float
    generator_limit: float = math.inf
    disturbed: Callable[[float], bool] = never
    left: float = 0.45
    sees_starvation: bool = True
    time: float = 0.0

    def run(self, rate: float, seconds: int) -> Measurement:
        """Send requests at a rate for some seconds, after those that the result leaves out."""
        totals = OutcomeTotals()
        first, last = self.time + START + SETTLING, self.time + START + SETTLING + seconds
        self.time += START
        unsent = queue = due = completed = starved = 0.0
        while self.time < last:
            share = self.left if self.disturbed(self.time) else 1.0
            unsent += rate * MOMENT
            sent = min(unsent, self.generator_limit * share * MOMENT)
            unsent -= sent
            queue += sent
            answered = min(queue, self.capacity * share * MOMENT)
            queue -= answered
            if self.time >= first:
                due += rate * MOMENT
                count, due = int(due), due - int(due)
                late = unsent / (self.generator_limit * share)
                add(totals.late, late, count)
                if queue > MAX_IN_FLIGHT:
                    totals.faults["not sent"] += count
                else:
                    slower = DISTURBED_LATENCY if share < 1 else 0.0
                    waiting = queue / (self.capacity * share)
                    add(totals.latency, late + IDLE_LATENCY + slower + waiting, count)
                completed += answered
                starved += MOMENT * (share < 1) * self.sees_starvation * STARVED
            queue = min(queue, MAX_IN_FLIGHT)
            self.time += MOMENT
        self.time += queue / self.capacity
        summary = PeriodSummary(float(seconds), totals)
        return Measurement(summary, totals.late.percentile(0.99), int(completed), starved / seconds)


def add(histogram: LatencyHistogram, seconds: float, count: int) -> None:
    """Add the same time `count` times."""
    one = LatencyHistogram()
    one.add(seconds)
    (bucket,) = one.counts
    if count:
        histogram.counts[bucket] = histogram.counts.get(bucket, 0) + count
        histogram.count += count
        histogram.total += seconds * count
        histogram.maximum = max(histogram.maximum, seconds)


@dataclass(frozen=True, slots=True)
class SearchRun:
    """A search that has ended, its steps and when each began, and the time that it took."""

    search: CapacitySearch
    steps: tuple[tuple[Step, RateResult], ...]
    begun: tuple[float, ...] = ()
    seconds: float = 0.0


def run_search(
    server: SimulatedServer,
    *,
    limits: str = "p99<50ms, errors<0.1%",
    start: float = 600,
    step_seconds: int = 2,
) -> SearchRun:
    """Search for the capacity of a server."""
    search, steps, begun = CapacitySearch(Slo.parse(limits), start), [], []
    while (step := search.next_step()) is not None:
        begun.append(server.time)
        measured = server.run(step.rate, step.length * step_seconds)
        result = search.record(
            step, measured.summary, measured.late_p99, measured.completed, measured.starved
        )
        server.time += 0.0 if result.kept else RECOVERY
        steps.append((step, result))
    return SearchRun(search, tuple(steps), tuple(begun), server.time)


def between(begin: float, end: float) -> Callable[[float], bool]:
    """Other programs run from `begin` to `end`."""
    return lambda time: begin <= time < end


def in_bursts(bursts: Iterable[tuple[float, float]]) -> Callable[[float], bool]:
    """Other programs run in each of these periods."""
    periods = tuple(bursts)
    return lambda time: any(begin <= time < end for begin, end in periods)
