"""Sends predictions over gRPC with grpcio from several threads, each with a channel of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from turnpike.service.grpc.messages.descriptors import message_class

InferRequest = message_class("inference.ModelInferRequest")
InferResponse = message_class("inference.ModelInferResponse")
# of one call; a server that loses it would let the client wait for ever
SECONDS = 30


def digit_request(name: str = "digits-10") -> Any:
    """A request with one empty digit."""
    request = InferRequest(model_name=name)
    request.inputs.add(name="x", datatype="FP32", shape=[1, 1, 8, 8])
    request.raw_input_contents.append(np.zeros(64, np.float32).tobytes())
    return request


def infer_method(channel: grpc.Channel) -> Any:
    """ModelInfer on a channel."""
    return channel.unary_unary(
        "/inference.GRPCInferenceService/ModelInfer",
        request_serializer=InferRequest.SerializeToString,
        response_deserializer=InferResponse.FromString,
    )


@dataclass
class GrpcTally:
    """What the threads have seen: good answers, errors, and answers that differ from the first."""

    good: int = 0
    errors: list[str] = field(default_factory=list)
    wrong: int = 0
    expected: bytes = b""


@contextmanager
def grpc_load(address: str, threads: int = 6) -> Iterator[GrpcTally]:
    """Send from before the first answer of each thread until the end of the block."""
    tally, lock = GrpcTally(), threading.Lock()
    stopping, answered = threading.Event(), threading.Semaphore(0)
    request = digit_request()

    def send() -> None:
        with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            infer, is_first = infer_method(channel), True
            while not stopping.is_set():
                try:
                    raw = infer(request, timeout=SECONDS).raw_output_contents[0]
                except grpc.RpcError as error:
                    with lock:
                        tally.errors.append(f"{error.code().name}: {error.details()}")
                else:
                    with lock:
                        tally.good += 1
                        tally.expected = tally.expected or raw
                        tally.wrong += raw != tally.expected
                if is_first:
                    is_first = False
                    answered.release()

    senders = [threading.Thread(target=send) for _ in range(threads)]
    for sender in senders:
        sender.start()
    try:
        for _ in senders:
            assert answered.acquire(timeout=SECONDS)
        yield tally
    finally:
        stopping.set()
        for sender in senders:
            sender.join(2 * SECONDS)
