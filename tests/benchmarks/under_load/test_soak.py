"""The verdict on growing memory, and the client that sends the mix."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.measurement.processes import BYTES_PER_MIB
from benchmarks.under_load.request_mix import read_answers
from benchmarks.under_load.soak import Sample, differences, growth_of, soak

# imported by Python when the server starts; a leak in the supervisor, which forks the workers
LEAK = """
import threading, time
def leak():
    kept = []
    while True:
        kept.append(bytearray(b"x" * (1 << 20)))
        time.sleep(0.02)
threading.Thread(target=leak, daemon=True).start()
"""


def samples(mib_after: Callable[[int], float], count: int = 60) -> list[Sample]:
    """Samples of a supervisor of 40 MiB and a worker, whose size `mib_after` gives for each sample."""
    return [
        Sample(
            50_000 * turn, (40 * BYTES_PER_MIB, int(mib_after(turn) * BYTES_PER_MIB)), (9, 20 + turn), (1, 4)
        )
        for turn in range(count)
    ]


@pytest.mark.parametrize(
    ("mib_after", "leaks"),
    [
        (lambda turn: 100, False),
        # caches that fill, and noise of a few pages
        (lambda turn: 108 - 8 / (turn + 1) + 0.3 * (turn % 3), False),
        # twelve MiB at once are too much, though nothing grows any more
        (lambda turn: 100 if turn < 10 else 112, True),
        # four MiB in the last third alone
        (lambda turn: 100 + max(0, turn - 40) * 0.25, True),
        # four bytes per request
        (lambda turn: 100 + turn * 50_000 * 4 / BYTES_PER_MIB, True),
        # half of that is accepted
        (lambda turn: 100 + turn * 50_000 * 2 / BYTES_PER_MIB, False),
    ],
)
def test_growth_is_told_from_a_plateau(mib_after: Callable[[int], float], leaks: bool) -> None:
    """At most 10 MiB may be added in all, and a third of it in the last third."""
    assert growth_of(samples(mib_after)).is_leak(10) == leaks


def test_single_peaks_do_not_count() -> None:
    """The medians of three samples are compared."""
    growth = growth_of(samples(lambda turn: 150 if turn in {0, 38, 59} else 100))
    assert (growth.total, growth.last_third) == (0, 0)


def test_too_few_samples_give_no_verdict() -> None:
    with pytest.raises(BenchmarkError, match="expected at least 9 samples, got 8"):
        growth_of(samples(lambda turn: 100, count=8))


def test_changes_are_shown_for_each_process() -> None:
    taken = samples(lambda turn: 100 + turn)
    assert differences(taken, "resident", BYTES_PER_MIB, "+.1f") == "+0.0, +59.0"
    assert differences(taken, "files") == "+0, +59"


def test_answers_are_read_in_any_pieces() -> None:
    """The length of a body decides where the next answer begins, not what the body contains."""
    body = b"HTTP/1.1 500 no\r\ncontent-length: 3\r\n\r\nabc"
    answers = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nx-request-id: 1\r\n\r\n%b" % (len(body), body)
    answers += b"HTTP/1.1 404 Not Found\r\na: b\r\ncontent-length: 0\r\n\r\n"
    for size in (1, 7, len(answers)):
        here, there = socket.socketpair()
        with here, there:
            pieces = read_answers(here)
            for start in range(0, len(answers), size):
                there.sendall(answers[start : start + size])
            assert [next(pieces), next(pieces)] == [(200, body), (404, b"")]
            there.close()
            with pytest.raises(BenchmarkError, match="expected an answer, got the end"):
                next(pieces)


@pytest.mark.slow
def test_a_leaking_server_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same requests go to the server as it is, and to one that leaks 50 MiB a second."""
    # more than by default, because caches still fill
    soak(requests=4000, warm_up=2000, every=200, clients=4, workers=2, limit=20)
    assert "plateau" in capsys.readouterr().out
    (tmp_path / "sitecustomize.py").write_text(LEAK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(BenchmarkError, match="expected growth of at most 20 MiB"):
        soak(requests=4000, warm_up=2000, every=200, clients=4, workers=2, limit=20)
