"""The load of a trial, with `turnpike loadtest`: its figures, and errors that end the search."""

from __future__ import annotations

import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.fake_servers import FakeAnswer, ReceivedRequest, Responder, fake_server, scale_rows, triton
from tests.support.loadtest_records import sample_record
from turnpike.loadtest.measure.summary import MAX_BUSY
from turnpike.loadtest.report.document import build_document
from turnpike.loadtest.report.write_report import JSON_FILE
from turnpike.tune.errors import ServeError, StoppedError
from turnpike.tune.search.measurements import SENDERS_BUSY, LoadFigures
from turnpike.tune.trial.bench import run_load

OPTIONS = ("--users", "4", "--spawn-rate", "100", "--warmup", "0", "--duration", "1")


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide errors of fake servers about connections that close while they answer."""
    monkeypatch.setattr(ThreadingHTTPServer, "handle_error", lambda *_: None)


def never() -> bool:
    """The user does not stop the search."""
    return False


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


@pytest.mark.slow
def test_good_answers_are_counted(tmp_path: Path) -> None:
    answers = Faulty(1 << 30, scale_rows)
    with fake_server(triton(answers)) as server:
        figures = run_load(server.url, OPTIONS, tmp_path, never)
    assert figures.users == 4
    assert figures.failures == ()
    assert 0 < figures.rate < answers.count
    assert figures.p50
    assert figures.p99
    assert 0 < figures.p50 <= figures.p99


@pytest.mark.slow
def test_a_load_that_fails_has_figures(tmp_path: Path) -> None:
    """Its exit status is 1, as that of an error, but the search goes on."""

    def busy(request: ReceivedRequest) -> FakeAnswer:
        return FakeAnswer({"error": "full"}, 503)

    with fake_server(triton(Faulty(5, busy))) as server:
        figures = run_load(server.url, [*OPTIONS, "--slo", "errors<1%"], tmp_path, never)
    assert figures.failures == ("the SLO was missed: errors<1%",)
    assert figures.rate > 0


def test_a_server_that_cannot_be_reached_is_an_error(tmp_path: Path) -> None:
    """The report of an earlier load does not hide it."""
    (tmp_path / JSON_FILE).write_text("{}")
    with pytest.raises(ServeError, match=r"^turnpike loadtest: .*127\.0\.0\.1:9"):
        run_load("http://127.0.0.1:9", OPTIONS, tmp_path, never)


@pytest.mark.slow
def test_it_ends_when_it_is_stopped(tmp_path: Path) -> None:
    answers = Faulty(1 << 30, scale_rows)
    with fake_server(triton(answers)) as server:
        with pytest.raises(StoppedError):
            run_load(server.url, [*OPTIONS, "--duration", "60"], tmp_path, lambda: answers.count > 50)
        pause = threading.Event()
        before = -1
        while answers.count != before:
            before = answers.count
            pause.wait(0.7)
    assert before < 200_000


@pytest.mark.parametrize(("busy", "notes"), [(None, ()), (0.5, ()), (MAX_BUSY + 0.01, (SENDERS_BUSY,))])
def test_busy_senders_are_noted(busy: float | None, notes: tuple[str, ...]) -> None:
    assert LoadFigures.from_report(build_document(sample_record(busy=busy))).notes == notes
