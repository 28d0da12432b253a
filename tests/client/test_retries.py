"""Retries, deadlines and lost connections, with servers that misbehave and with the real one."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

from tests.support.client_server import Action, Kind, call, http_answer, misbehaving
from tests.support.digit_requests import BUNDLED_MODEL
from tests.support.http_stand_in import Received, Reply, replying
from tests.support.live_server import free_port, serving, worker_processes
from turnpike.client.client import Client
from turnpike.client.errors import DeadlineError, RequestRefusedError, UnavailableError
from turnpike.client.inputs import Array
from turnpike.service.artifact.runtime import open_model

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

KINDS: list[Kind] = ["blocking", "async"]
MODELS = http_answer(200, b'{"models": ["net"]}')
FULL = http_answer(503, b'{"error": "queue: full"}', "retry-after: 0")
UNLOADED = http_answer(503, b'{"error": "model: not served"}')


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action", ["reset", "close", FULL], ids=["reset", "close", "503"])
def test_it_tries_again(kind: Kind, action: Action) -> None:
    """After a lost connection, and if the service has no room."""
    with misbehaving(action, action, MODELS) as (url, received):
        assert call(kind, url, "models") == ["net"]
        assert len(received) == 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("retries", [0, 2])
def test_it_tries_no_more_often_than_it_may(kind: Kind, retries: int) -> None:
    with misbehaving(FULL) as (url, received):
        with pytest.raises(UnavailableError, match="^models at http.*: queue: full \\(status 503\\)$"):
            call(kind, url, "models", options={"retries": retries})
        assert len(received) == 1 + retries


def test_without_a_retry_after_it_does_not_try_again() -> None:
    """A model that is not served now may never be."""
    with misbehaving(UNLOADED) as (url, received):
        with pytest.raises(UnavailableError, match="model: not served"):
            call("blocking", url, "certificate", "net")
        assert len(received) == 1


def test_a_refused_request_is_not_sent_again() -> None:
    with misbehaving(http_answer(404, b'{"error": "no"}', "retry-after: 0")) as (url, received):
        with pytest.raises(RequestRefusedError):
            call("blocking", url, "certificate", "net")
        assert len(received) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_not_wait_for_a_retry_past_the_deadline(kind: Kind) -> None:
    """The error is that of the service, which says more than that time is up."""
    with misbehaving(http_answer(503, b'{"error": "full"}', "retry-after: 30")) as (url, received):
        with pytest.raises(UnavailableError, match="full"):
            call(kind, url, "models", options={"timeout": 20})
        assert len(received) == 1


def test_a_slow_refusal_leaves_no_time_for_a_retry() -> None:
    """The time that the service took counts."""

    def reply(_: Received) -> Reply:
        time.sleep(0.3)
        return Reply(503, {"error": "full"}, {"Retry-After": "1"})

    with (
        replying(reply) as url,
        Client(url, timeout=1.3) as client,
        pytest.raises(UnavailableError, match="full"),
    ):
        client.models()


def test_the_state_of_the_service_is_asked_once() -> None:
    """Whether it is ready now; a retry would tell whether it is ready later."""
    with misbehaving(FULL) as (url, received):
        assert call("blocking", url, "ready") is False
        assert len(received) == 1


def pauses(monkeypatch: pytest.MonkeyPatch, answers: list[Reply], retries: int) -> list[float]:
    """The pauses between the requests of a client that gets these answers."""
    seconds: list[float] = []
    monkeypatch.setattr("turnpike.client.transport.time.sleep", seconds.append)
    remaining = iter(answers)
    with (
        replying(lambda _: next(remaining)) as url,
        Client(url, retries=retries, timeout=1e4) as client,
    ):
        assert client.models() == []
    return seconds


OK = Reply(200, {"models": []})


def test_pauses_double_up_to_a_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is between half and all of 0.1, 0.2, ..., 5 seconds; a date in Retry-After adds nothing."""
    date = {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}
    seconds = pauses(monkeypatch, [Reply(503, b"", date)] * 9 + [OK], retries=9)
    assert len(seconds) == 9
    for pause, longest in zip(seconds, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5], strict=True):
        assert longest / 2 <= pause <= longest


def test_clients_do_not_try_again_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Reply(503, b"", {"Retry-After": "0"}), OK]
    seconds = [pauses(monkeypatch, answers, 1)[0] for _ in range(8)]
    assert len(set(seconds)) == 8


def test_a_pause_is_never_shorter_than_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [Reply(503, b"", {"Retry-After": str(number)}) for number in (7, 0, 3)]
    first, second, third = pauses(monkeypatch, [*answers, OK], retries=3)
    assert 7.05 <= first <= 7.1
    assert 0.1 <= second <= 0.2
    assert 3.2 <= third <= 3.4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action", ["stall", "trickle head", "trickle body"])
def test_the_deadline_holds_for_an_answer_that_never_ends(kind: Kind, action: Action) -> None:
    """Whether the server is silent, or sends a byte now and then."""
    with misbehaving(action) as (url, received):
        with pytest.raises(DeadlineError, match="^models at http.*: expected an answer within") as caught:
            call(kind, url, "models", options={"timeout": 0.3})
        assert isinstance(caught.value, TimeoutError)
        assert len(received) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_all_tries_share_one_deadline(kind: Kind) -> None:
    """The time that the service is given for a run shrinks from try to try."""
    with misbehaving(FULL, FULL, MODELS) as (url, received):
        call(kind, url, "models")
    given = [int(text.lower().split(b"x-request-timeout-ms: ")[1].split(b"\r")[0]) for text in received]
    assert 30_000 >= given[0] > given[1] > given[2] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_no_time_is_no_request(kind: Kind) -> None:
    with misbehaving(MODELS) as (url, received):
        with pytest.raises(DeadlineError):
            call(kind, url, "models", options={"timeout": 0})
        assert received == []


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_at_the_address_is_an_error(kind: Kind) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    expected = f"^models at {url}: expected an answer, got ClientConnectorError"
    with pytest.raises(UnavailableError, match=expected):
        call(kind, url, "models", options={"retries": 1})


def test_a_client_may_start_before_the_service() -> None:
    """It tries again until the service listens, which may be before the service has loaded its model."""
    port = free_port()
    names: list[list[str]] = []

    def ask() -> None:
        names.append(call("blocking", f"http://127.0.0.1:{port}", "models", options={"retries": 99}))

    thread = threading.Thread(target=ask)
    thread.start()
    with serving("--port", port, "--no-access-log"):
        thread.join(30)
    assert names in ([["digits-10"]], [[]])


def test_a_stalled_service_is_an_error(digits: Array) -> None:
    """Its processes are stopped, so the system accepts connections for it, and nobody reads them."""
    with serving("--no-access-log") as server, Client(server.url, retries=0) as client:
        assert client.ready()
        processes = [server.process.pid, *(worker.pid for worker in worker_processes(server))]
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            client.timeout = 0.5
            with pytest.raises(DeadlineError, match="^ready at"):
                client.ready()
        finally:
            for pid in processes:
                os.kill(pid, signal.SIGCONT)
        client.timeout = 30
        # the connection that was given up is not used for another answer
        outputs = client.infer("digits-10", digits)["output"]
        np.testing.assert_array_equal(outputs, open_model(BUNDLED_MODEL).run({"x": digits})[0])
        assert client.ready()


def test_a_worker_that_dies_costs_a_retry(digits: Array) -> None:
    """The connection of the client breaks, and another worker answers."""
    with serving("--workers", 2, "--no-access-log") as running, Client(running.url) as client:
        expected = client.infer("digits-10", digits)["output"]
        for worker in worker_processes(running):
            worker.kill()
            np.testing.assert_array_equal(client.infer("digits-10", digits)["output"], expected)


@pytest.mark.slow
def test_threads_share_a_client_and_a_full_queue() -> None:
    """64 threads, two places in the queue: some requests are refused, and all get their own answer."""
    generator = np.random.default_rng(0)
    batches = [generator.integers(0, 17, (300 + number, 64)).astype(np.float32) for number in range(64)]
    runtime = open_model(BUNDLED_MODEL)
    failures: list[object] = []
    with (
        serving("--queue", 2, "--no-access-log") as server,
        Client(server.url, retries=50, timeout=100) as client,
    ):

        def ask(rows: Array) -> None:
            try:
                (expected,) = runtime.run({"x": rows.reshape(-1, 1, 8, 8)})
                for _ in range(3):
                    assert client.infer("digits-10", rows)["output"].tobytes() == expected.tobytes()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=ask, args=(rows,)) for rows in batches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        refused = [line for line in server.get("/metrics").text.splitlines() if 'overloaded"}' in line]
    assert failures == []
    assert any(float(line.split()[-1]) > 0 for line in refused), refused
