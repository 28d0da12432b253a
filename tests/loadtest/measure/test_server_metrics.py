"""Scraping the server's metrics: percentiles, restarts, failures, and servers without these metrics."""

from __future__ import annotations

import math
import time

import pytest

from tests.support.live_server import serving
from turnpike.loadtest.errors import TargetError
from turnpike.loadtest.ledger import now
from turnpike.loadtest.measure.buckets import Buckets
from turnpike.loadtest.measure.server_metrics import MetricsScraper
from turnpike.loadtest.workload.http_client import HttpClient, Reply

INF = math.inf


class Server:
    """Gives one answer after another; None is no answer."""

    def __init__(self, *answers: str | int | None) -> None:
        self.answers = list(answers)
        self.paths: list[str] = []

    def get(self, path: str) -> Reply:
        self.paths.append(path)
        answer = self.answers.pop(0)
        if answer is None:
            raise TargetError("http://x: no server answers there")
        return Reply(answer if isinstance(answer, int) else 200, {}, str(answer).encode())


def metrics(
    *,
    queue: tuple[int, int, int] = (0, 0, 0),
    total: float = 0.0,
    depth: int = 0,
    model: str = "m",
    version: str = "1",
    started: float = 5.0,
) -> str:
    """Metrics of turnpike for one model; `queue` counts waits up to 1 ms, up to 10 ms, and longer."""
    labels = f'model="{model}",version="{version}"'
    cumulative = [sum(queue[: place + 1]) for place in range(3)]
    buckets = [
        f'turnpike_model_queue_seconds_bucket{{le="{bound}",{labels}}} {count}'
        for bound, count in zip(("0.001", "0.01", "+Inf"), cumulative, strict=True)
    ]
    return "\n".join(
        [
            "# HELP turnpike_workers Workers that are alive.",
            "# TYPE turnpike_workers gauge",
            "turnpike_workers 2.0",
            f"turnpike_start_time_seconds {started}",
            'turnpike_requests_refused_total{reason="queue full"} 3.0',
            'turnpike_requests_refused_total{reason="deadline"} 1.0',
            f"turnpike_model_queue_depth{{{labels}}} {depth}",
            *buckets,
            f"turnpike_model_queue_seconds_count{{{labels}}} {cumulative[-1]}",
            f"turnpike_model_queue_seconds_sum{{{labels}}} {total}",
            "",
        ]
    )


def test_percentiles_are_interpolated() -> None:
    """Values are even within a bucket, as in Prometheus; worked out by hand."""
    buckets = Buckets((1.0, 2.0, 4.0, INF), (10.0, 0.0, 10.0, 0.0), 40.0)
    assert buckets.percentile(0.25) == 0.5
    assert buckets.percentile(0.5) == 1.0
    assert buckets.percentile(0.75) == 3.0
    assert buckets.percentile(1.0) == 4.0
    assert Buckets((1.0, 2.0, INF), (0.0, 5.0, 0.0), 8.0).percentile(0.0) == 1.0
    assert buckets.mean == 2.0


def test_a_value_beyond_the_last_bound_is_the_bound() -> None:
    """A value above every bound is unknown, but at least as large as the highest bound."""
    assert Buckets((1.0, INF), (1.0, 9.0), 100.0).percentile(0.99) == 1.0


def test_empty_buckets_have_no_percentile() -> None:
    assert math.isnan(Buckets().percentile(0.5))
    assert math.isnan(Buckets((1.0, INF), (0.0, 0.0)).percentile(0.99))
    assert math.isnan(Buckets().mean)
    assert Buckets.merged([]) == Buckets()
    buckets = Buckets((1.0, INF), (1.0, 2.0), 3.0)
    assert Buckets.merged([Buckets(), buckets, buckets]) == Buckets((1.0, INF), (2.0, 4.0), 6.0)


def test_a_scrape_is_the_difference_to_the_one_before() -> None:
    server = Server(
        metrics(queue=(5, 1, 0), total=0.1),
        metrics(queue=(9, 1, 2), total=0.6, depth=7),
        metrics(queue=(9, 1, 2)),
    )
    scraper = MetricsScraper(server, "m")
    assert scraper.scrape() is None
    scrape = scraper.scrape()
    assert scrape.queue == Buckets((0.001, 0.01, INF), (4.0, 0.0, 2.0), 0.5)
    assert scrape.depth == 7
    assert scrape.workers == 2
    assert scrape.refused == 0
    assert 0 <= scrape.seconds < 5
    assert scraper.scrape().queue.count == 0
    assert server.paths == ["/metrics"] * 3
    assert scraper.caveats() == ()


def test_a_jump_of_the_clock_changes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape has the times of the ledger, whose clock does not jump."""
    scraper = MetricsScraper(Server(metrics(), metrics()), "m")
    scraper.scrape()
    late = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: late)
    scrape = scraper.scrape()
    assert 0 <= scrape.seconds < 60
    assert abs(scrape.at - now()) < 60


def test_refusals_are_added_up() -> None:
    before = metrics()
    after = before.replace('"deadline"} 1.0', '"deadline"} 4.0').replace(
        '"queue full"} 3.0', '"queue full"} 5.0'
    )
    scraper = MetricsScraper(Server(before, after), "m")
    scraper.scrape()
    assert scraper.scrape().refused == 5


def test_other_models_are_left_out() -> None:
    nothing = metrics()
    several = "\n".join(
        [
            metrics(queue=(1, 0, 0)),
            *(line for line in metrics(queue=(10, 0, 0), version="2").splitlines() if "version" in line),
            *(line for line in metrics(queue=(100, 0, 0), model="other").splitlines() if "version" in line),
        ]
    )
    for version, count in ((None, 11), ("2", 10)):
        scraper = MetricsScraper(Server(nothing, several), "m", version)
        scraper.scrape()
        scrape = scraper.scrape()
        assert scrape is not None
        assert scrape.queue.count == count


def test_a_restart_drops_one_scrape() -> None:
    """After a restart counters begin at zero, so that scrape is dropped; a note says so."""
    first, again = metrics(queue=(50, 0, 0)), metrics(queue=(3, 0, 0), started=9.0)
    scraper = MetricsScraper(Server(first, again, metrics(queue=(4, 0, 0), started=9.0)), "m")
    assert scraper.scrape() is None
    assert scraper.scrape() is None
    assert scraper.scrape().queue.count == 1
    assert "a different server process" in scraper.caveats()[0]


def test_the_scrape_after_a_failure_covers_both() -> None:
    """When the server does not answer once, the next scrape covers both seconds."""
    scraper = MetricsScraper(Server(metrics(), None, 503, metrics(queue=(8, 0, 0))), "m")
    assert [scraper.scrape() for _ in range(3)] == [None] * 3
    assert scraper.scrape().queue.count == 8
    assert "2 requests for /metrics got no answer" in scraper.caveats()[0]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (404, "answers with status 404"),
        (401, "answers with status 401"),
        ("nv_inference_count 3\n", "is not that of turnpike"),
        ("<html>hello</html>", "is not that of turnpike"),
        ("turnpike_start_time_seconds{ what\n", "is not that of turnpike"),
        (
            'turnpike_start_time_seconds 5\nturnpike_model_run_seconds_bucket{model="m"} 1\n',
            "is not that of turnpike",
        ),
        ("turnpike_start_time_seconds\n", "is not that of turnpike"),
        ("", "is not that of turnpike"),
    ],
)
def test_a_server_without_metrics_has_none(answer: str | int, reason: str) -> None:
    server = Server(answer, metrics())
    scraper = MetricsScraper(server, "m")
    assert scraper.scrape() is None
    assert scraper.scrape() is None
    assert len(server.paths) == 1
    assert reason in scraper.caveats()[0]


@pytest.mark.slow
def test_metrics_of_our_own_server_are_read() -> None:
    with serving() as server:
        scraper = MetricsScraper(HttpClient(server.url), "digits-10")
        assert scraper.scrape() is None
        for _ in range(3):
            server.post("/v1/models/digits-10:predict", {"instances": [[0.0] * 64] * 4}).raise_for_status()
        scrape = scraper.scrape()
    assert scraper.caveats() == ()
    assert scrape.request.count == scrape.queue.count == scrape.run.count == 3
    assert 0 < scrape.run.percentile(0.5) <= scrape.request.percentile(0.5)
    assert scrape.rows.mean == 4
    assert scrape.workers == 1
    assert scrape.depth == 0
