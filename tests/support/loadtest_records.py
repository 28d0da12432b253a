"""Made-up records of load tests, for tests of reports and terminal output."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from turnpike.loadtest.ledger import Ledger, Outcome
from turnpike.loadtest.measure.buckets import Buckets
from turnpike.loadtest.measure.record import Capacity, Machine, RateStep, Record
from turnpike.loadtest.measure.server_metrics import Scrape
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.slo import Slo
from turnpike.loadtest.workload.target import Target
from turnpike.loadtest.workload.tensors import TensorSpec

# start of all tests, as Unix time
START = 1_800_000_000
URL = "http://127.0.0.1:8000"
# bounds of the server's histograms, in seconds and in rows
TIME_BOUNDS = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
    float("inf"),
)
SIZE_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, float("inf"))
MACHINE = Machine(cpus=2, python="3.11.7", platform="Linux x86_64", locust="2.47.0")


def sample_target(**changes: Any) -> Target:
    fields: dict[str, Any] = {
        "url": URL,
        "server": "turnpike",
        "server_version": "0.1.0",
        "model": "digits-10",
        "version": "1",
        "inputs": (TensorSpec("image", "FP32", (-1, 8, 8)),),
        "outputs": (TensorSpec("probabilities", "FP32", (-1, 10)),),
        "binary": True,
        "v1": True,
    }
    return Target(**(fields | changes))


def add_requests(
    ledger: Ledger,
    begin: int,
    seconds: int,
    rate: float,
    *,
    median: float = 0.004,
    faults: Mapping[str, float] | None = None,
    kinds: tuple[tuple[str, int], ...] = (("json, 1 row", 1),),
    seed: int = 0,
) -> None:
    """Add requests at a steady rate with realistic random latencies.

    Args:
        ledger: where to add them.
        begin: second in which the first is due.
        seconds: for how long they are due.
        rate: requests per second.
        median: latency in seconds.
        faults: share of the requests with each fault.
        kinds: kinds of requests with their rows, which are equally frequent.
        seed: of the random numbers.
    """
    source = random.Random(seed)
    for number in range(int(seconds * rate)):
        kind, rows = source.choice(kinds)
        latency = median * rows**0.3 * source.lognormvariate(0, 0.45)
        if source.random() < 0.004:
            latency += source.uniform(3, 12) * median
        fault, point = None, source.random()
        for name, share in (faults or {}).items():
            fault, point = (name, 2.0) if point < share else (fault, point - share)
        late = source.expovariate(1 / 0.0004)
        ledger.add(Outcome(kind, begin + number / rate, late, latency + late, rows, fault))


def sample_scrape(at: float, rate: float, median: float = 0.004, seed: int = 0) -> Scrape:
    """One second of a server that answers this many requests per second."""
    source = random.Random(seed + int(at))

    def times(typical: float) -> Buckets:
        counts = [0.0] * len(TIME_BOUNDS)
        total = 0.0
        for _ in range(int(rate)):
            value = typical * source.lognormvariate(0, 0.5)
            total += value
            counts[next(index for index, bound in enumerate(TIME_BOUNDS) if value <= bound)] += 1
        return Buckets(TIME_BOUNDS, tuple(counts), total)

    sizes = [0.0, rate * 0.05, rate * 0.1, rate * 0.06, 0.0, 0.0, 0.0, 0.0, 0.0]
    return Scrape(
        at=at,
        seconds=1.0,
        queue=times(median * 0.35),
        run=times(median * 0.12),
        request=times(median * 0.6),
        rows=Buckets(SIZE_BOUNDS, tuple(sizes), sum(sizes) * 3.2),
        refused=0.0,
        depth=float(source.randrange(12)),
        workers=2.0,
    )


def sample_record(
    plan: LoadPlan | None = None,
    ledger: Ledger | None = None,
    *,
    seconds: int = 10,
    target: Target | None = None,
    **changes: Any,
) -> Record:
    """A load test of some seconds; the first is the warm-up."""
    if ledger is None:
        ledger = Ledger()
        add_requests(ledger, START, seconds, 60)
    plan = plan or LoadPlan(URL, duration=seconds, warmup=1, slo=Slo.parse("p99<50ms, errors<0.1%"))
    fields: dict[str, Any] = {
        "plan": plan,
        "target": target or sample_target(),
        "machine": MACHINE,
        "begun": float(START),
        "ended": START + seconds + 0.2,
        "first": START + 1,
        "last": START + seconds,
        "ledger": ledger,
    }
    if "scrapes" not in changes:
        fields["scrapes"] = tuple(sample_scrape(START + second + 0.9, 60) for second in range(seconds))
    fields |= changes
    summary = ledger.summary(fields["first"], fields["last"])
    fields.setdefault("missed_limits", plan.slo.missed(summary) if plan.slo else ())
    return Record(**fields)


def sample_search_record(
    rates: tuple[float, ...] = (100, 200, 400, 800, 600, 500, 550), capacity: float = 550
) -> Record:
    """A search for the capacity, with a step of five seconds for each rate; latency grows near `capacity`."""
    slo = Slo.parse("p99<50ms, errors<0.1%")
    plan = LoadPlan(URL, find_capacity=True, step_seconds=5, slo=slo)
    ledger, steps, scrapes = Ledger(), [], []
    for index, rate in enumerate(rates):
        begin = START + 6 * index
        utilization = rate / capacity
        overload = 1 if utilization <= 1 else 8 * utilization
        median = 0.003 / max(0.05, 1 - utilization * 0.9) * overload
        faults = {"503": 0.1} if utilization > 1.2 else {}
        add_requests(ledger, begin, 5, rate, median=median, faults=faults, seed=index)
        summary = ledger.summary(begin, begin + 5)
        kept = not slo.missed(summary)
        steps.append(RateStep(rate, begin, begin + 5, summary, 0.001, 0.0, kept, generator_limited=False))
        scrapes += [sample_scrape(begin + second + 0.9, rate, median) for second in range(5)]
    best = max((step for step in steps if step.kept), key=lambda step: step.rate, default=steps[-1])
    return sample_record(
        plan,
        ledger,
        seconds=6 * len(rates),
        first=best.begin,
        last=best.end,
        steps=tuple(steps),
        capacity=Capacity(best.rate if best.kept else None, "server"),
        scrapes=tuple(scrapes),
    )


def mixed_record() -> Record:
    """A test with several kinds, rows, faults, a wrong answer and a missed limit."""
    ledger = Ledger()
    kinds = (("json, 1 row", 1), ("binary, 4 rows", 4))
    add_requests(ledger, START, 6, 50, kinds=kinds)
    add_requests(ledger, START + 6, 2, 50, kinds=kinds, faults={"503": 0.3, "wrong: shape": 0.1}, seed=1)
    add_requests(ledger, START + 8, 2, 50, kinds=kinds, seed=2)
    plan = LoadPlan(
        URL, wire="mixed", rows=(1, 4), rate=50, duration=9, warmup=1, slo=Slo.parse("p99<1s, errors<1%")
    )
    return sample_record(
        plan, ledger, notes=("something to know",), wrong_answer="output x: expected 1, got 2"
    )


def empty_record() -> Record:
    """A test that was stopped before the first request."""
    return sample_record(ledger=Ledger(), scrapes=(), first=START, last=START)


def refused_record() -> Record:
    """A test in which no request had a good answer."""
    ledger = Ledger()
    add_requests(ledger, START, 5, 20, faults={"connection refused": 1.0})
    return sample_record(ledger=ledger, seconds=5, scrapes=())


def soak_record() -> Record:
    """Four minutes; the last is slower."""
    ledger = Ledger()
    add_requests(ledger, START, 180, 5, median=0.004)
    add_requests(ledger, START + 180, 60, 5, median=0.040)
    plan = LoadPlan(URL, shape="soak", duration=240, warmup=0)
    return sample_record(plan, ledger, seconds=240, first=START, scrapes=())


RECORDS = {
    "plain": sample_record,
    "mixed": mixed_record,
    "search": sample_search_record,
    "nothing": empty_record,
    "refused": refused_record,
    "soak": soak_record,
    "second": lambda: sample_record(seconds=1, first=START),
    "no rate": lambda: replace(sample_search_record(), capacity=Capacity(None, "server")),
    "stopped": lambda: replace(sample_search_record(), capacity=None, interrupted=True),
    "no slo": lambda: sample_record(LoadPlan(URL)),
}
