"""What the server says of itself, second by second: its `/metrics`, as far as they are of one model."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from prometheus_client.parser import text_string_to_metric_families

from loadtest.errors import TargetError
from loadtest.measure.buckets import Buckets
from loadtest.workload.http_client import Fetch

PATH = "/metrics"
MODEL = "turnpike_model_"
STARTED, WORKERS, REFUSED = (
    "turnpike_start_time_seconds",
    "turnpike_workers",
    "turnpike_requests_refused_total",
)
DEPTH, ROWS = f"{MODEL}queue_depth", f"{MODEL}batch_rows"
QUEUE, RUN, REQUEST = (f"{MODEL}{name}_seconds" for name in ("queue", "run", "request"))
HISTOGRAMS = (QUEUE, RUN, REQUEST, ROWS)
# the rest of what a server tells is not read: reading takes the generator's time
READ = (STARTED, WORKERS, REFUSED, DEPTH, *HISTOGRAMS)


@dataclass(frozen=True, slots=True)
class Scrape:
    """What the server did since the scrape before this one, and how it stands now."""

    at: float  # seconds since 1970
    seconds: float  # since the scrape before
    queue: Buckets  # waits of requests for their run, in seconds
    run: Buckets  # runs of the model
    request: Buckets  # requests, from their headers to the bytes of their answers
    rows: Buckets  # rows that ran together
    refused: float  # requests answered with an error
    depth: float  # requests that wait for their run now
    workers: float


@dataclass(frozen=True, slots=True)
class _Counts:
    """What one answer of `/metrics` holds."""

    at: float
    started: float | None = None
    workers: float = 0.0
    refused: float = 0.0
    depth: float = 0.0
    histograms: Mapping[str, Buckets] = field(default_factory=dict)


class Scraper:
    """Asks a server for its metrics again and again. A server that has none, or others, is no error."""

    def __init__(self, fetch: Fetch, model: str, version: str | None = None) -> None:
        """Read what is of this model, of all its versions together unless one is named."""
        self._fetch = fetch
        self._wanted = {"model": model} | ({} if version is None else {"version": version})
        self._before: _Counts | None = None
        self._absent: str | None = None
        self._failed = 0
        self._strangers = 0

    def scrape(self) -> Scrape | None:
        """What happened since this was last asked; None at first, and where there is nothing to tell."""
        if self._absent is not None:
            return None
        now = self._counts()
        if now is None:
            return None
        before, self._before = self._before, now
        if before is None:
            return None
        if before.started != now.started:
            self._strangers += 1
            return None
        return _between(before, now)

    def notes(self) -> tuple[str, ...]:
        """What the reader of the figures should know of how they were got."""
        if self._absent is not None:
            return (f"The server's own times are not shown: its {PATH} {self._absent}.",)
        notes = []
        if self._failed:
            notes.append(f"{self._failed} of the scrapes of {PATH} got no answer.")
        if self._strangers:
            notes.append(
                f"{PATH} was answered by another process than just before (times: {self._strangers}): the "
                "server was started again, or several stand behind this address. Its own times leave it out."
            )
        return tuple(notes)

    def _counts(self) -> _Counts | None:
        try:
            reply = self._fetch.get(PATH)
        except TargetError:
            self._failed += 1
            return None
        try:
            counts = _read(time.time(), reply.body.decode("utf-8", "replace"), self._wanted)
        except (ValueError, KeyError, IndexError):
            # not what Prometheus reads
            counts = None
        if reply.status == 200 and counts is not None and counts.started is not None:
            return counts
        self._failed += 1
        if self._before is None:
            self._absent = f"answers {reply.status}" if reply.status != 200 else "is not that of turnpike"
        return None


def _read(at: float, text: str, wanted: Mapping[str, str]) -> _Counts:
    """The counts in an answer; of models those with the wanted labels alone."""
    lines = [line for line in text.splitlines() if line.startswith(READ)]
    single: dict[str, float] = defaultdict(float)
    buckets: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    families = text_string_to_metric_families("\n".join([*lines, ""]))
    for sample in (sample for family in families for sample in family.samples):
        if sample.name.startswith(MODEL) and not wanted.items() <= sample.labels.items():
            continue
        if sample.name.endswith("_bucket"):
            buckets[sample.name.removesuffix("_bucket")][float(sample.labels["le"])] += sample.value
        else:
            single[sample.name] += sample.value
    return _Counts(
        at=at,
        started=single.get(STARTED),
        workers=single[WORKERS],
        refused=single[REFUSED],
        depth=single[DEPTH],
        histograms={name: _buckets(buckets[name], single[f"{name}_sum"]) for name in HISTOGRAMS},
    )


def _buckets(upto: Mapping[float, float], total: float) -> Buckets:
    """Each bucket's own count, where Prometheus counts all up to its bound."""
    bounds = sorted(upto)
    counts = [upto[bound] for bound in bounds]
    return Buckets(tuple(bounds), tuple(now - before for before, now in pairwise([0.0, *counts])), total)


def _between(before: _Counts, now: _Counts) -> Scrape:
    queue, run, request, rows = (
        now.histograms[name].since(before.histograms[name]) for name in (QUEUE, RUN, REQUEST, ROWS)
    )
    return Scrape(
        at=now.at,
        seconds=now.at - before.at,
        queue=queue,
        run=run,
        request=request,
        rows=rows,
        refused=now.refused - before.refused,
        depth=now.depth,
        workers=now.workers,
    )
