"""Scrapes: that what the server says of itself is read as it is meant, and nothing else is taken for it."""

from __future__ import annotations

import math

import pytest

from loadtest.errors import TargetError
from loadtest.measure.buckets import Buckets
from loadtest.measure.scrape import Scraper
from loadtest.workload.http_client import Fetch, Reply
from tests.support.live_server import serving

INF = math.inf


class Server:
    """Gives one answer after the other."""

    def __init__(self, *answers: str | int | None) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def get(self, path: str) -> Reply:
        self.asked.append(path)
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
    """What turnpike writes, of one model: waits of up to 1 ms, up to 10 ms and longer."""
    labels = f'model="{model}",version="{version}"'
    upto = [sum(queue[: place + 1]) for place in range(3)]
    buckets = [
        f'turnpike_model_queue_seconds_bucket{{le="{bound}",{labels}}} {count}'
        for bound, count in zip(("0.001", "0.01", "+Inf"), upto, strict=True)
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
            f"turnpike_model_queue_seconds_count{{{labels}}} {upto[-1]}",
            f"turnpike_model_queue_seconds_sum{{{labels}}} {total}",
            "",
        ]
    )


def test_percentiles_are_interpolated() -> None:
    """Within a bucket values are taken to lie evenly, as Prometheus does; worked out by hand."""
    buckets = Buckets((1.0, 2.0, 4.0, INF), (10.0, 0.0, 10.0, 0.0), 40.0)
    assert buckets.percentile(0.25) == 0.5
    assert buckets.percentile(0.5) == 1.0
    assert buckets.percentile(0.75) == 3.0
    assert buckets.percentile(1.0) == 4.0
    assert Buckets((1.0, 2.0, INF), (0.0, 5.0, 0.0), 8.0).percentile(0.0) == 1.0
    assert buckets.mean == 2.0


def test_beyond_the_last_bound_is_told_as_the_bound() -> None:
    """What is slower than every bound has no known time: the highest bound is the least that it was."""
    assert Buckets((1.0, INF), (1.0, 9.0), 100.0).percentile(0.99) == 1.0


def test_buckets_of_nothing() -> None:
    """Without values there is no percentile, and nothing is added."""
    assert math.isnan(Buckets().percentile(0.5))
    assert math.isnan(Buckets((1.0, INF), (0.0, 0.0)).percentile(0.99))
    assert math.isnan(Buckets().mean)
    assert Buckets.added([]) == Buckets()
    one = Buckets((1.0, INF), (1.0, 2.0), 3.0)
    assert Buckets.added([Buckets(), one, one]) == Buckets((1.0, INF), (2.0, 4.0), 6.0)


def test_a_scrape_is_what_happened_since_the_one_before() -> None:
    """Counts are differences, gauges are as they are now, and the first scrape only begins."""
    server = Server(
        metrics(queue=(5, 1, 0), total=0.1),
        metrics(queue=(9, 1, 2), total=0.6, depth=7),
        metrics(queue=(9, 1, 2)),
    )
    scraper = Scraper(server, "m")
    assert scraper.scrape() is None
    scrape = scraper.scrape()
    assert scrape.queue == Buckets((0.001, 0.01, INF), (4.0, 0.0, 2.0), 0.5)
    assert scrape.depth == 7
    assert scrape.workers == 2
    assert scrape.refused == 0
    assert 0 <= scrape.seconds < 5
    assert scraper.scrape().queue.count == 0
    assert server.asked == ["/metrics"] * 3
    assert scraper.notes() == ()


def test_refusals_are_added_up() -> None:
    """Whatever the reason, a refusal counts."""
    before = metrics()
    after = before.replace('"deadline"} 1.0', '"deadline"} 4.0').replace(
        '"queue full"} 3.0', '"queue full"} 5.0'
    )
    scraper = Scraper(Server(before, after), "m")
    scraper.scrape()
    assert scraper.scrape().refused == 5


def test_other_models_are_left_out() -> None:
    """All versions of the model count unless one is named; other models never do."""
    nothing = metrics()
    several = "\n".join(
        [
            metrics(queue=(1, 0, 0)),
            *(line for line in metrics(queue=(10, 0, 0), version="2").splitlines() if "version" in line),
            *(line for line in metrics(queue=(100, 0, 0), model="other").splitlines() if "version" in line),
        ]
    )
    for version, count in ((None, 11), ("2", 10)):
        scraper = Scraper(Server(nothing, several), "m", version)
        scraper.scrape()
        scrape = scraper.scrape()
        assert scrape is not None
        assert scrape.queue.count == count


def test_another_process_is_no_difference() -> None:
    """After a restart counts begin anew: nothing is told of that second, then it goes on; a note says so."""
    first, again = metrics(queue=(50, 0, 0)), metrics(queue=(3, 0, 0), started=9.0)
    scraper = Scraper(Server(first, again, metrics(queue=(4, 0, 0), started=9.0)), "m")
    assert scraper.scrape() is None
    assert scraper.scrape() is None
    assert scraper.scrape().queue.count == 1
    assert "another process" in scraper.notes()[0]


def test_a_scrape_that_fails_is_made_up_for() -> None:
    """When the server does not answer for a second, the next scrape tells of both."""
    scraper = Scraper(Server(metrics(), None, 503, metrics(queue=(8, 0, 0))), "m")
    assert [scraper.scrape() for _ in range(3)] == [None] * 3
    assert scraper.scrape().queue.count == 8
    assert "2 of the scrapes" in scraper.notes()[0]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (404, "answers 404"),
        (401, "answers 401"),
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
def test_a_server_without_these_metrics(answer: str | int, said: str) -> None:
    """It is asked once and no more, and the report will say why there are no times of the server."""
    server = Server(answer, metrics())
    scraper = Scraper(server, "m")
    assert scraper.scrape() is None
    assert scraper.scrape() is None
    assert len(server.asked) == 1
    assert said in scraper.notes()[0]


@pytest.mark.slow
def test_the_real_server() -> None:
    """Requests that our own server answered are in the scrape, with their waits, runs and rows."""
    with serving() as server:
        scraper = Scraper(Fetch(server.url), "digits-10")
        assert scraper.scrape() is None
        for _ in range(3):
            server.post("/v1/models/digits-10:predict", {"instances": [[0.0] * 64] * 4}).raise_for_status()
        scrape = scraper.scrape()
    assert scraper.notes() == ()
    assert scrape.request.count == scrape.queue.count == scrape.run.count == 3
    assert 0 < scrape.run.percentile(0.5) <= scrape.request.percentile(0.5)
    assert scrape.rows.mean == 4
    assert scrape.workers == 1
    assert scrape.depth == 0
