"""The load of a trial: it notices every fault, and counts only the measured time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from loadtest.ledger import OutcomeTotals, PeriodSummary
from loadtest.plan import LoadPlan
from loadtest.slo import Slo
from tests.support.fake_servers import FakeAnswer, ReceivedRequest, Responder, fake_server, scale_rows, triton
from tune.errors import ServeError, StoppedError
from tune.search.measurements import LoadFigures
from tune.trial.bench import REPORT_FILE, run_load
from tune.trial.load_process import SENDERS_BUSY, report


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide errors of fake servers about connections that close while they answer."""
    monkeypatch.setattr(ThreadingHTTPServer, "handle_error", lambda *_: None)


def never() -> bool:
    """The user does not stop the search."""
    return False


def load(
    folder: Path, infer: Responder = scale_rows, stop_requested: Callable[[], bool] = never, **options: str
) -> LoadFigures:
    """Load a server like Triton for a moment."""
    with fake_server(triton(infer)) as server:
        settings = {"url": server.url, "users": "3", "warmup": "0.1", "duration": "0.4", **options}
        return run_load(settings, folder, stop_requested)


class Faulty:
    """Gives a bad answer to every n-th request after those for reference answers."""

    def __init__(self, every: int, bad: Responder) -> None:
        self._every, self._bad = every, bad
        self._lock = threading.Lock()
        self.count = 0

    def __call__(self, request: ReceivedRequest) -> FakeAnswer:
        with self._lock:
            self.count += 1
            is_bad = self.count > 16 and self.count % self._every == 0
        return self._bad(request) if is_bad else scale_rows(request)


def test_good_answers_are_counted(tmp_path: Path) -> None:
    for processes in ("1", "2"):
        answers = Faulty(1 << 30, scale_rows)
        figures = load(tmp_path, answers, processes=processes)
        assert figures.users == 3
        assert figures.failures == ()
        # the others came in the warm-up
        assert 0 < figures.rate * 0.4 < answers.count - 16
        assert figures.p50
        assert figures.p99
        assert 0 < figures.p50 <= figures.p99


def test_binary_requests_with_many_rows(tmp_path: Path) -> None:
    assert load(tmp_path, wire="binary", rows="32").failures == ()


def test_a_wrong_answer_is_found(tmp_path: Path) -> None:
    def other(request: ReceivedRequest) -> FakeAnswer:
        answer = scale_rows(request)
        answer.body["outputs"][0]["data"][0] += 1
        return answer

    failures = load(tmp_path, Faulty(3, other), slo="errors<50%").failures
    assert len(failures) == 1
    assert failures[0].startswith("wrong answers: ")


def test_what_is_within_the_tolerance_is_good(tmp_path: Path) -> None:
    """A last bit that differs from the first answer is not a fault."""

    def near(request: ReceivedRequest) -> FakeAnswer:
        answer = scale_rows(request)
        answer.body["outputs"][0]["data"][0] += 1e-7
        return answer

    assert load(tmp_path, Faulty(2, near)).failures == ()


@pytest.mark.parametrize(
    "bad",
    [
        lambda request: FakeAnswer({"error": "full"}, 503),
        # half an answer, and the connection is closed
        lambda request: FakeAnswer({"half": True}, headers={"Content-Length": "1000"}),
    ],
)
def test_faults_are_counted_and_users_go_on(tmp_path: Path, bad: Responder) -> None:
    figures = load(tmp_path, Faulty(5, bad))
    assert figures.failures == ("the SLO was missed: errors<1%",)
    assert figures.rate > 0
    assert load(tmp_path, Faulty(5, bad), slo="errors<90%").failures == ()


def test_answers_that_never_come_are_faults(tmp_path: Path) -> None:
    held = threading.Event()

    def hang(request: ReceivedRequest) -> FakeAnswer:
        held.wait(5)
        return scale_rows(request)

    figures = load(tmp_path, Faulty(1, hang), slo="p99<10s")
    held.set()
    assert figures.rate == 0
    assert figures.p99 is None
    assert "the SLO was missed: p99<10s" in figures.failures


def test_an_answer_in_pieces_is_one_answer(tmp_path: Path) -> None:
    rows = 4096
    assert load(tmp_path, rows=str(rows), samples="1", users="1").failures == ()


def test_a_server_that_cannot_be_reached_is_an_error(tmp_path: Path) -> None:
    (tmp_path / REPORT_FILE).write_text("{}")
    with pytest.raises(ServeError, match=r"^the load: .*127\.0\.0\.1:9"):
        run_load({"url": "http://127.0.0.1:9"}, tmp_path, never)


def test_it_ends_when_it_is_stopped(tmp_path: Path) -> None:
    answers = Faulty(1 << 30, scale_rows)

    def stop() -> bool:
        return answers.count > 50

    with fake_server(triton(answers)) as server:
        options = {"url": server.url, "users": "4", "processes": "2", "duration": "60"}
        with pytest.raises(StoppedError):
            run_load(options, tmp_path, stop)
        pause = threading.Event()
        before = -1
        while answers.count != before:
            before = answers.count
            pause.wait(0.7)
    assert before < 100_000


def test_a_busy_sender_is_noted() -> None:
    plan = LoadPlan("http://x", slo=Slo.parse("p99<1s"))
    totals = OutcomeTotals()
    totals.latency.add(0.5)
    summary = PeriodSummary(2.0, totals)
    assert report(plan, summary, 0.5)["notes"] == []
    assert report(plan, summary, 0.95)["notes"] == [SENDERS_BUSY]
    assert report(plan, summary, 0.5)["verdict"]["failures"] == []
    assert (
        json.loads(json.dumps(report(plan, PeriodSummary(2.0, OutcomeTotals()), 0)))["total"]["p50"] is None
    )
