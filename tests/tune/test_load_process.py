"""Users that take little of the machine: they find every fault, and lose none of the time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from loadtest.ledger import Cell, Summary
from loadtest.plan import Plan
from loadtest.slo import Slo
from tests.support.fake_servers import Answerer, Asked, Given, scaled, serving, triton
from tune.errors import ServeError, StoppedError
from tune.load import REPORT, loaded
from tune.load_process import UNSENT, report
from tune.measurements import Figures


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of a test says nothing of connections that are closed while it answers."""
    monkeypatch.setattr(ThreadingHTTPServer, "handle_error", lambda *_: None)


def nobody() -> None:
    """Nobody wants it to stop."""


def load(folder: Path, infer: Answerer = scaled, check: Callable[[], None] = nobody, **asked: str) -> Figures:
    """What users have of such a server, in a moment."""
    with serving(triton(infer)) as peer:
        told = {"url": peer.url, "users": "3", "warmup": "0.1", "duration": "0.4", **asked}
        return loaded(told, folder, check)


class Counted:
    """Answers as it should, but for one request in so many of those that come after the references."""

    def __init__(self, every: int, instead: Answerer) -> None:
        self._every, self._instead = every, instead
        self._lock = threading.Lock()
        self.count = 0

    def __call__(self, asked: Asked) -> Given:
        with self._lock:
            self.count += 1
            odd = self.count > 16 and self.count % self._every == 0
        return self._instead(asked) if odd else scaled(asked)


def test_good_answers_are_counted(tmp_path: Path) -> None:
    """By users that come at once, in as many processes as are asked for."""
    for processes in ("1", "2"):
        counted = Counted(1 << 30, scaled)
        figures = load(tmp_path, counted, processes=processes)
        assert figures.users == 3
        assert figures.failures == ()
        # the others came in the tenth of a second before
        assert 0 < figures.rate * 0.4 < counted.count - 16
        assert figures.p50
        assert figures.p99
        assert 0 < figures.p50 <= figures.p99


def test_each_wire_is_spoken(tmp_path: Path) -> None:
    """As loadtest writes it, with as many rows."""
    assert load(tmp_path, wire="binary", rows="32").failures == ()


def test_a_wrong_answer_is_found(tmp_path: Path) -> None:
    """One of another request is wrong here, and fails the setting whatever the SLO allows."""

    def other(asked: Asked) -> Given:
        given = scaled(asked)
        given.body["outputs"][0]["data"][0] += 1
        return given

    failures = load(tmp_path, Counted(3, other), slo="errors<50%").failures
    assert len(failures) == 1
    assert failures[0].startswith("wrong answers: ")


def test_what_is_within_the_tolerance_is_good(tmp_path: Path) -> None:
    """A last bit that differs from the first answer is no fault, as for loadtest."""

    def near(asked: Asked) -> Given:
        given = scaled(asked)
        given.body["outputs"][0]["data"][0] += 1e-7
        return given

    assert load(tmp_path, Counted(2, near)).failures == ()


@pytest.mark.parametrize(
    "instead",
    [
        lambda asked: Given({"error": "full"}, 503),
        # half an answer, and the connection is closed
        lambda asked: Given({"half": True}, headers={"Content-Length": "1000"}),
    ],
)
def test_faults_are_counted_and_users_go_on(tmp_path: Path, instead: Answerer) -> None:
    """A refusal, and a connection that is lost; without an SLO one in a hundred is too many."""
    figures = load(tmp_path, Counted(5, instead))
    assert figures.failures == ("the SLO was missed: errors<1%",)
    assert figures.rate > 0
    assert load(tmp_path, Counted(5, instead), slo="errors<90%").failures == ()


def test_answers_that_never_come_are_faults(tmp_path: Path) -> None:
    """A server that hangs is not one that is fast."""
    held = threading.Event()

    def never(asked: Asked) -> Given:
        held.wait(5)
        return scaled(asked)

    figures = load(tmp_path, Counted(1, never), slo="p99<10s")
    held.set()
    assert figures.rate == 0
    assert figures.p99 is None
    assert "the SLO was missed: p99<10s" in figures.failures


def test_an_answer_in_pieces_is_one_answer(tmp_path: Path) -> None:
    """However the network cuts it."""
    rows = 4096
    assert load(tmp_path, rows=str(rows), samples="1", users="1").failures == ()


def test_a_server_that_is_not_there_is_said(tmp_path: Path) -> None:
    """In one line, and figures of an earlier load are not taken for its own."""
    (tmp_path / REPORT).write_text("{}")
    with pytest.raises(ServeError, match=r"^the load: .*127\.0\.0\.1:9"):
        loaded({"url": "http://127.0.0.1:9"}, tmp_path, nobody)


def test_it_ends_when_it_is_stopped(tmp_path: Path) -> None:
    """With all processes that send: none goes on asking."""
    counted = Counted(1 << 30, scaled)

    def stop() -> None:
        if counted.count > 50:
            raise StoppedError("stopped")

    with serving(triton(counted)) as peer:
        asked = {"url": peer.url, "users": "4", "processes": "2", "duration": "60"}
        with pytest.raises(StoppedError):
            loaded(asked, tmp_path, stop)
        gone = threading.Event()
        before = -1
        while counted.count != before:
            before = counted.count
            gone.wait(0.7)
    assert before < 100_000


def test_a_sender_at_its_limit_is_said() -> None:
    """Figures that are those of the load, not of the server, are told as that."""
    plan = Plan("http://x", slo=Slo.parse("p99<1s"))
    cell = Cell()
    cell.latency.add(0.5)
    summary = Summary(2.0, cell)
    assert report(plan, summary, 0.5)["notes"] == []
    assert report(plan, summary, 0.95)["notes"] == [UNSENT]
    assert report(plan, summary, 0.5)["verdict"]["failures"] == []
    assert json.loads(json.dumps(report(plan, Summary(2.0, Cell()), 0)))["total"]["p50"] is None
