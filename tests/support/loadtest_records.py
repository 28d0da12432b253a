"""Load tests that never took place, for tests of what is shown of one."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from loadtest.ledger import Ledger, Outcome
from loadtest.measure.buckets import Buckets
from loadtest.measure.record import Capacity, Machine, Record, Step
from loadtest.measure.scrape import Scrape
from loadtest.plan import Plan
from loadtest.slo import Slo
from loadtest.workload.target import Target
from loadtest.workload.tensors import Tensor

BEGUN = 1_800_000_000
URL = "http://127.0.0.1:8000"
TIMES = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, float("inf"))
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, float("inf"))
MACHINE = Machine(cpus=2, python="3.11.7", platform="Linux x86_64", locust="2.47.0")


def target(**changes: Any) -> Target:
    known: dict[str, Any] = {
        "url": URL,
        "server": "turnpike",
        "server_version": "0.1.0",
        "model": "digits-10",
        "version": "1",
        "inputs": (Tensor("image", "FP32", (-1, 8, 8)),),
        "outputs": (Tensor("probabilities", "FP32", (-1, 10)),),
        "binary": True,
        "v1": True,
    }
    return Target(**(known | changes))


def load(
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
    """Requests at a steady rate, with latencies as they are in life, and of each fault its share."""
    drawn = random.Random(seed)
    for number in range(int(seconds * rate)):
        kind, rows = drawn.choice(kinds)
        latency = median * rows**0.3 * drawn.lognormvariate(0, 0.45)
        if drawn.random() < 0.004:
            latency += drawn.uniform(3, 12) * median
        fault, point = None, drawn.random()
        for name, share in (faults or {}).items():
            fault, point = (name, 2.0) if point < share else (fault, point - share)
        late = drawn.expovariate(1 / 0.0004)
        ledger.add(Outcome(kind, begin + number / rate, late, latency + late, rows, fault))


def scrape(at: float, rate: float, median: float = 0.004, seed: int = 0) -> Scrape:
    """One second of a server that has these requests."""
    drawn = random.Random(seed + int(at))

    def times(typical: float) -> Buckets:
        counts = [0.0] * len(TIMES)
        total = 0.0
        for _ in range(int(rate)):
            value = typical * drawn.lognormvariate(0, 0.5)
            total += value
            counts[next(place for place, bound in enumerate(TIMES) if value <= bound)] += 1
        return Buckets(TIMES, tuple(counts), total)

    sizes = [0.0, rate * 0.05, rate * 0.1, rate * 0.06, 0.0, 0.0, 0.0, 0.0, 0.0]
    return Scrape(
        at=at,
        seconds=1.0,
        queue=times(median * 0.35),
        run=times(median * 0.12),
        request=times(median * 0.6),
        rows=Buckets(SIZES, tuple(sizes), sum(sizes) * 3.2),
        refused=0.0,
        depth=float(drawn.randrange(12)),
        workers=2.0,
    )


def record(
    plan: Plan | None = None,
    ledger: Ledger | None = None,
    *,
    seconds: int = 10,
    about: Target | None = None,
    **changes: Any,
) -> Record:
    """A load test of some seconds, of which the first is the warm-up."""
    if ledger is None:
        ledger = Ledger()
        load(ledger, BEGUN, seconds, 60)
    plan = plan or Plan(URL, duration=seconds, warmup=1, slo=Slo.parse("p99<50ms, errors<0.1%"))
    known: dict[str, Any] = {
        "plan": plan,
        "target": about or target(),
        "machine": MACHINE,
        "begun": float(BEGUN),
        "ended": BEGUN + seconds + 0.2,
        "first": BEGUN + 1,
        "last": BEGUN + seconds,
        "ledger": ledger,
    }
    if "scrapes" not in changes:
        known["scrapes"] = tuple(scrape(BEGUN + second + 0.9, 60) for second in range(seconds))
    known |= changes
    summary = ledger.summary(known["first"], known["last"])
    known.setdefault("missed", plan.slo.missed(summary) if plan.slo else ())
    return Record(**known)


def search(rates: tuple[float, ...] = (100, 200, 400, 800, 600, 500, 550), held_to: float = 550) -> Record:
    """A search for the capacity, a step of five seconds for each rate."""
    slo = Slo.parse("p99<50ms, errors<0.1%")
    plan = Plan(URL, find_capacity=True, step_seconds=5, slo=slo)
    ledger, steps, scrapes = Ledger(), [], []
    for place, rate in enumerate(rates):
        begin = BEGUN + 6 * place
        load_of = rate / held_to
        median = 0.003 / max(0.05, 1 - load_of * 0.9) * (1 if load_of <= 1 else 8 * load_of)
        load(ledger, begin, 5, rate, median=median, faults={"503": 0.1} if load_of > 1.2 else {}, seed=place)
        summary = ledger.summary(begin, begin + 5)
        held = not slo.missed(summary)
        steps.append(Step(rate, begin, begin + 5, summary, 0.001, held, False))
        scrapes += [scrape(begin + second + 0.9, rate, median) for second in range(5)]
    best = max((step for step in steps if step.held), key=lambda step: step.rate, default=steps[-1])
    return record(
        plan,
        ledger,
        seconds=6 * len(rates),
        first=best.begin,
        last=best.end,
        steps=tuple(steps),
        capacity=Capacity(best.rate if best.held else None, "server"),
        scrapes=tuple(scrapes),
    )
