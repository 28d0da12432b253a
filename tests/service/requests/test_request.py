"""Request ids and trace contexts."""

from __future__ import annotations

from copy import copy

import pytest

from tests.support.fake_request import FakeRequest
from turnpike.service.requests.observer import RequestObserver
from turnpike.service.requests.request import RequestIds, read_trace
from turnpike.service.telemetry.counters import RequestCounters

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def started_request(*headers: tuple[bytes, bytes]) -> FakeRequest:
    """A request after the observer has registered its start."""
    request = FakeRequest(headers=list(headers))
    RequestObserver(RequestCounters(), None, None).count_in(request)
    return request


def test_request_ids_are_unique() -> None:
    """They are unique within a worker and among workers."""
    first, second = ({ids.next() for _ in range(1000)} for ids in (RequestIds(), RequestIds()))
    assert len(first | second) == 2000


def test_processes_that_are_forked_after_the_import_have_ids_of_their_own() -> None:
    """Each has a copy of what the import has made."""
    imported = RequestIds()
    assert copy(imported).next() != copy(imported).next()


@pytest.mark.parametrize("value", [b"a", b"018f-7c2e", b"x" * 128, b'"quoted\\"'])
def test_a_valid_request_id_is_kept(value: bytes) -> None:
    assert started_request((b"x-request-id", value)).id == value.decode()


@pytest.mark.parametrize("value", [b"", b"x" * 129, b"two words", b"a\tb", b"\xc3\xa4", b"a\x1b[0m"])
def test_an_invalid_request_id_is_replaced(value: bytes) -> None:
    """An id that is empty, long or not printable must not get into a log or an answer."""
    assert started_request((b"x-request-id", value)).id.endswith("-1")


def test_a_trace_is_continued() -> None:
    """The trace id and flags stay, and the request gets a new span below the caller's."""
    trace = read_trace(f"00-{TRACE}-{PARENT}-01".encode())
    assert trace is not None
    assert (trace.id, trace.parent, trace.flags) == (TRACE, PARENT, 1)
    assert len(trace.span) == 16
    assert trace.span != PARENT
    assert started_request((b"traceparent", f"00-{TRACE}-{PARENT}-00".encode())).trace is not None


def test_unknown_versions_of_traceparent_are_read() -> None:
    """The four known fields of an unknown version are read, whatever follows them."""
    assert read_trace(f"cc-{TRACE}-{PARENT}-01-what-else".encode()) is not None
    assert read_trace(f"cc-{TRACE}-{PARENT}-01what".encode()) is None


@pytest.mark.parametrize(
    "value",
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
def test_an_invalid_traceparent_is_ignored(value: str) -> None:
    assert read_trace(value.encode()) is None
