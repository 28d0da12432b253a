"""One request as the door sees it: its id, its trace, and the headers that every answer has."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import pytest

from service.http.request_context import Exchange, new_ids, read_trace

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def exchange(*headers: tuple[bytes, bytes]) -> tuple[Exchange, list[Any]]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    return Exchange({"headers": list(headers)}, send, iter(["made-1"])), sent


def test_ids_are_never_the_same() -> None:
    """Neither those of one worker nor those of two."""
    mine, its = (set(islice(new_ids(), 1000)) for _ in range(2))
    assert len(mine | its) == 2000


@pytest.mark.parametrize("given", [b"a", b"018f-7c2e", b"x" * 128, b'"quoted\\"'])
def test_a_sane_id_is_kept(given: bytes) -> None:
    """An id of the caller's is the request's."""
    assert exchange((b"x-request-id", given))[0].id == given.decode()


@pytest.mark.parametrize("given", [b"", b"x" * 129, b"two words", b"a\tb", b"\xc3\xa4", b"a\x1b[0m"])
def test_an_odd_id_is_replaced(given: bytes) -> None:
    """What is long, empty or not printable never gets into a log or an answer."""
    assert exchange((b"x-request-id", given))[0].id == "made-1"


def test_a_trace_is_carried() -> None:
    """The trace and its flags stay, and we get a span of our own below the caller's."""
    trace = read_trace(f"00-{TRACE}-{PARENT}-01".encode())
    assert trace is not None
    assert (trace.id, trace.parent, trace.flags) == (TRACE, PARENT, 1)
    assert len(trace.span) == 16
    assert trace.span != PARENT
    assert exchange((b"traceparent", f"00-{TRACE}-{PARENT}-00".encode()))[0].trace is not None


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


def answered() -> tuple[Exchange, list[Any]]:
    passed, sent = exchange((b"x-request-id", b"mine"))
    shared = ((b"content-type", b"text/plain"),)

    async def answer() -> None:
        await passed({"type": "http.response.start", "status": 418, "headers": shared})
        await passed({"type": "http.response.body", "body": b"tea"})

    asyncio.run(answer())
    return passed, sent


def test_every_answer_has_its_headers() -> None:
    """The id and nosniff are added, the status is remembered, the body passes as it is."""
    passed, sent = answered()
    assert passed.status == 418
    assert sent[0]["headers"] == [
        (b"content-type", b"text/plain"),
        (b"x-request-id", b"mine"),
        (b"x-content-type-options", b"nosniff"),
    ]
    assert sent[1] == {"type": "http.response.body", "body": b"tea"}
