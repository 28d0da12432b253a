"""A server of grpcio that answers calls with errors, as the service or something else would."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import grpc


class Failure(NamedTuple):
    """An answer with a code and trailing metadata, those of the service by default."""

    code: grpc.StatusCode
    trailers: tuple[tuple[str, str], ...] = (("x-request-id", "1"),)


@contextlib.contextmanager
def answering(*answers: Failure | bytes | None) -> Iterator[tuple[str, list[float]]]:
    """The address of a server whose calls get one answer each, the last one for all further ones.

    None is no answer. The list has the seconds that each call gave the server.
    """
    given: list[float] = []
    stop = threading.Event()

    def answer(_: bytes, context: grpc.ServicerContext) -> bytes:
        given.append(context.time_remaining())
        action = answers[min(len(given), len(answers)) - 1]
        if action is None:
            stop.wait(30)
        if isinstance(action, bytes):
            return action
        if action is not None:
            context.set_trailing_metadata(action.trailers)
            context.abort(action.code, "the reason")
        return b""

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, _: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.server(ThreadPoolExecutor(4), handlers=(Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}", given
    finally:
        stop.set()
        server.stop(None).wait(10)
