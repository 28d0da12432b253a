"""Calls and loads over gRPC, against a server of Python's gRPC library."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import NoReturn

import grpc
import pytest

from benchmarks.contestants.grpc_messages import MESSAGE_PREFIX
from benchmarks.contestants.wire_formats import EncodedRequest
from benchmarks.errors import BenchmarkError, FailedRequestError
from benchmarks.measurement import h2load

requires_programs = pytest.mark.skipif(
    any(shutil.which(program) is None for program in h2load.PACKAGES), reason="requires h2load and curl"
)
ANSWER = b"an answer"
REQUEST = EncodedRequest(
    MESSAGE_PREFIX.pack(0, 7) + b"message", {"content-type": "application/grpc", "te": "trailers"}
)


@contextmanager
def answering(answer: Callable[[bytes, grpc.ServicerContext], bytes]) -> Iterator[str]:
    """Run a server with one method; yields the method's address."""
    server = grpc.server(ThreadPoolExecutor(4))
    method = {"Answer": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Service", method)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}/test.Service/Answer"
    finally:
        server.stop(None).wait()


def refuse(context: grpc.ServicerContext) -> NoReturn:
    context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no room")
    raise AssertionError


@requires_programs
def test_a_call_returns_the_message_of_the_answer() -> None:
    received = []

    def answer(message: bytes, context: grpc.ServicerContext) -> bytes:
        received.append(message)
        return ANSWER

    with answering(answer) as url:
        assert h2load.call(url, REQUEST) == MESSAGE_PREFIX.pack(0, len(ANSWER)) + ANSWER
    assert received == [b"message"]


@requires_programs
def test_a_call_that_fails_is_reported_with_its_status() -> None:
    """The status of HTTP is 200."""
    with (
        answering(lambda message, context: refuse(context)) as url,
        pytest.raises(FailedRequestError, match="expected the status 0 of gRPC, got 8 'no room'"),
    ):
        h2load.call(url, REQUEST)


@requires_programs
def test_a_server_that_cannot_be_reached_is_reported() -> None:
    """Nothing listens on this port."""
    with pytest.raises(FailedRequestError, match="expected an answer, got: curl: "):
        h2load.call("http://127.0.0.1:9/", REQUEST)


@pytest.mark.slow
@requires_programs
@pytest.mark.parametrize(("connections", "streams"), [(2, 1), (1, 4)])
def test_requests_that_are_refused_are_counted(connections: int, streams: int) -> None:
    """Every third request is, with the status 200 of HTTP."""
    numbers = count()

    def answer(message: bytes, context: grpc.ServicerContext) -> bytes:
        return ANSWER if next(numbers) % 3 else refuse(context)

    with answering(answer) as url:
        load = h2load.run_h2load(
            url, REQUEST, connections=connections, streams=streams, seconds=1, answer_bytes=5 + len(ANSWER)
        )
    assert load.requests > 10
    assert load.lost == 0
    assert abs(3 * load.refused - load.requests) <= 3 * (connections + streams)
    assert load.rate == load.requests - load.refused


@requires_programs
def test_a_load_without_an_answer_is_an_error() -> None:
    with pytest.raises(BenchmarkError, match="h2load: expected a result for http://127.0.0.1:9/, got: "):
        h2load.run_h2load("http://127.0.0.1:9/", REQUEST, connections=1, streams=1, seconds=1, answer_bytes=1)


def test_without_h2load_the_message_has_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BenchmarkError, match="found none: apt install nghttp2-client"):
        h2load.require_h2load()
