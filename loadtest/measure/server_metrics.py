"""Polls the server's Prometheus `/metrics` once a second during a load test, and reads those of the model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import gevent
from prometheus_client.parser import text_string_to_metric_families

from turnpike.loadtest.errors import TargetError
from turnpike.loadtest.ledger import now
from turnpike.loadtest.measure.buckets import Buckets
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.workload.http_client import HttpClient
from turnpike.loadtest.workload.workload import Workload

# seconds: a scrape that takes longer is given up, so that it does not delay the next ones
TIMEOUT_SECONDS = 5.0
METRICS_PATH = "/metrics"

MODEL = "turnpike_model_"
STARTED, WORKERS, REFUSED = (
    "turnpike_start_time_seconds",
    "turnpike_workers",
    "turnpike_requests_refused_total",
)
DEPTH, ROWS = f"{MODEL}queue_depth", f"{MODEL}batch_rows"
QUEUE, RUN, REQUEST = (f"{MODEL}{name}_seconds" for name in ("queue", "run", "request"))
HISTOGRAMS = (QUEUE, RUN, REQUEST, ROWS)
# other metrics are not parsed, because parsing takes time from the load generator
READ = (STARTED, WORKERS, REFUSED, DEPTH, *HISTOGRAMS)


@dataclass(frozen=True, slots=True)
class Scrape:
    """What the server counted since the previous scrape, and its current queue depth and workers."""

    at: float  # Unix time
    seconds: float  # since the previous scrape
    queue: Buckets  # seconds that requests waited for their run
    run: Buckets  # seconds of model runs
    request: Buckets  # seconds from the headers of a request to the bytes of its answer
    rows: Buckets  # rows per run
    refused: float  # requests answered with an error
    depth: float  # requests that wait for their run now
    workers: float


@dataclass(frozen=True, slots=True)
class _Counts:
    """The counters of one answer of `/metrics`."""

    at: float
    started: float | None = None
    workers: float = 0.0
    refused: float = 0.0
    depth: float = 0.0
    histograms: Mapping[str, Buckets] = field(default_factory=dict)


class MetricsScraper:
    """Reads the metrics of one model again and again. A server without them is not an error."""

    def __init__(self, client: HttpClient, model: str, version: str | None = None) -> None:
        """Without a version, the metrics of all versions of the model are added up."""
        self._client = client
        self._labels = {"model": model} | ({} if version is None else {"version": version})
        self._previous: _Counts | None = None
        self._no_metrics: str | None = None  # why there are none, as the end of a sentence
        self._failed = 0
        self._restarts = 0

    def scrape(self) -> Scrape | None:
        """Changes since the last call; None at the first call, and if the server gave no usable answer."""
        if self._no_metrics is not None:
            return None
        counts = self._counts()
        if counts is None:
            return None
        previous, self._previous = self._previous, counts
        if previous is None:
            return None
        if previous.started != counts.started:
            self._restarts += 1
            return None
        return _difference(previous, counts)

    def caveats(self) -> tuple[str, ...]:
        """Notes for the reader of the report about missing metrics."""
        if self._no_metrics is not None:
            return (f"The server's own times are not shown, because its {METRICS_PATH} {self._no_metrics}.",)
        notes = []
        if self._failed:
            notes.append(f"{self._failed} requests for {METRICS_PATH} got no answer.")
        if self._restarts:
            notes.append(
                f"{METRICS_PATH} was answered by a different server process than before (times: "
                f"{self._restarts}): the server was restarted, or there are several servers behind this "
                "address. The server's own times leave out these moments."
            )
        return tuple(notes)

    def _counts(self) -> _Counts | None:
        try:
            reply = self._client.get(METRICS_PATH)
        except TargetError:
            self._failed += 1
            return None
        try:
            counts = _parse(now(), reply.body.decode("utf-8", "replace"), self._labels)
        except (ValueError, KeyError, IndexError):
            # not the Prometheus text format
            counts = None
        if reply.status == 200 and counts is not None and counts.started is not None:
            return counts
        self._failed += 1
        if self._previous is None:
            status = reply.status
            self._no_metrics = f"answers with status {status}" if status != 200 else "is not that of turnpike"
        return None


class MetricsPoller:
    """Scrapes once a second in a greenlet, from its creation until `stop`."""

    def __init__(self, plan: LoadPlan, workload: Workload) -> None:
        client = HttpClient(plan.url, plan.api_key, plan.insecure, min(TIMEOUT_SECONDS, plan.timeout))
        self._scraper = MetricsScraper(client, workload.target.model, plan.version)
        self.scrapes: list[Scrape] = []
        self._greenlet = gevent.spawn(self._poll)

    def stop(self) -> None:
        self._greenlet.kill()

    def caveats(self) -> tuple[str, ...]:
        """Notes for the reader of the report about missing metrics."""
        return self._scraper.caveats()

    def _poll(self) -> None:
        while True:
            if scrape := self._scraper.scrape():
                self.scrapes.append(scrape)
            gevent.sleep(1)


def _parse(at: float, text: str, labels: Mapping[str, str]) -> _Counts:
    """The counters in an answer; metrics of models count only if they have these labels."""
    lines = [line for line in text.splitlines() if line.startswith(READ)]
    values: dict[str, float] = defaultdict(float)
    buckets: dict[str, dict[float, float]] = defaultdict(lambda: defaultdict(float))
    families = text_string_to_metric_families("\n".join([*lines, ""]))
    for sample in (sample for family in families for sample in family.samples):
        if sample.name.startswith(MODEL) and not labels.items() <= sample.labels.items():
            continue
        if sample.name.endswith("_bucket"):
            buckets[sample.name.removesuffix("_bucket")][float(sample.labels["le"])] += sample.value
        else:
            values[sample.name] += sample.value
    return _Counts(
        at=at,
        started=values.get(STARTED),
        workers=values[WORKERS],
        refused=values[REFUSED],
        depth=values[DEPTH],
        histograms={name: _buckets(buckets[name], values[f"{name}_sum"]) for name in HISTOGRAMS},
    )


def _buckets(cumulative: Mapping[float, float], total: float) -> Buckets:
    """Convert Prometheus' cumulative counts into counts per bucket."""
    bounds = sorted(cumulative)
    counts = [cumulative[bound] for bound in bounds]
    return Buckets(tuple(bounds), tuple(count - below for below, count in pairwise([0.0, *counts])), total)


def _difference(before: _Counts, after: _Counts) -> Scrape:
    queue, run, request, rows = (
        after.histograms[name].since(before.histograms[name]) for name in (QUEUE, RUN, REQUEST, ROWS)
    )
    return Scrape(
        at=after.at,
        seconds=after.at - before.at,
        queue=queue,
        run=run,
        request=request,
        rows=rows,
        refused=after.refused - before.refused,
        depth=after.depth,
        workers=after.workers,
    )
