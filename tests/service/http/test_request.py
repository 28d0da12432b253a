"""One request as the door sees it: its id, its trace, and the headers that every answer has."""

from __future__ import annotations

from itertools import islice

import pytest

from service.http.observer import RequestObserver
from service.http.request import new_ids, read_trace
from service.telemetry.counters import RequestCounters
from tests.support.fake_request import FakeRequest

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def begun(*headers: tuple[bytes, bytes]) -> FakeRequest:
    """A request as the observer leaves it when it begins."""
    request = FakeRequest(headers=list(headers))
    RequestObserver(RequestCounters(), None, access_log=False).started(request)
    return request


def test_ids_are_never_the_same() -> None:
    """Neither those of one worker nor those of two."""
    mine, its = (set(islice(new_ids(), 1000)) for _ in range(2))
    assert len(mine | its) == 2000


@pytest.mark.parametrize("given", [b"a", b"018f-7c2e", b"x" * 128, b'"quoted\\"'])
def test_a_sane_id_is_kept(given: bytes) -> None:
    """An id of the caller's is the request's."""
    assert begun((b"x-request-id", given)).id == given.decode()


@pytest.mark.parametrize("given", [b"", b"x" * 129, b"two words", b"a\tb", b"\xc3\xa4", b"a\x1b[0m"])
def test_an_odd_id_is_replaced(given: bytes) -> None:
    """What is long, empty or not printable never gets into a log or an answer."""
    assert begun((b"x-request-id", given)).id.endswith("-1")


def test_a_trace_is_carried() -> None:
    """The trace and its flags stay, and we get a span of our own below the caller's."""
    trace = read_trace(f"00-{TRACE}-{PARENT}-01".encode())
    assert trace is not None
    assert (trace.id, trace.parent, trace.flags) == (TRACE, PARENT, 1)
    assert len(trace.span) == 16
    assert trace.span != PARENT
    assert begun((b"traceparent", f"00-{TRACE}-{PARENT}-00".encode())).trace is not None


def test_a_later_version_may_have_more() -> None:
    """The four fields of a version we do not know are read, whatever comes after them."""
    assert read_trace(f"cc-{TRACE}-{PARENT}-01-what-else".encode()) is not None
    assert read_trace(f"cc-{TRACE}-{PARENT}-01what".encode()) is None


@pytest.mark.parametrize(
    "given",
    [
        "",
        "nonsense",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{PARENT}-01\n",
    ],
)
def test_what_is_no_trace_is_left_out(given: str) -> None:
    """A header that breaks the standard's rules is as good as none."""
    assert read_trace(given.encode()) is None
