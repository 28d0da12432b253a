"""Messages are not kept for longer than their bytes count: until they are decoded."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from unittest.mock import patch

import grpc
import numpy as np
import pytest

from tests.support.grpc_worker import INFERENCE, NAME, grpc_worker
from turnpike.service.grpc.messages.descriptors import message_class
from turnpike.service.grpc.messages.infer_request_cache import InferMessageDecoder, SplitMessage

ROWS = 1000
GATES = [f"layer{number:02}.transform_gate" for number in range(10)]
# a client whose windows are far smaller than the answer, which is read at the end of each test
SMALL_WINDOWS = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536)]
# numbers as a field of the message: the arrays of the request are copies, and no views of it
MESSAGE = message_class("inference.ModelInferRequest")(model_name=NAME)
MESSAGE.inputs.add(name="x", datatype="FP32", shape=[ROWS, 1, 8, 8]).contents.fp32_contents.extend(
    np.zeros(ROWS * 64)
)
for gate in GATES:
    MESSAGE.outputs.add(name=gate)


@pytest.fixture
def seen() -> Iterator[list[bytes]]:
    """The messages that were received."""
    messages: list[bytes] = []
    split = InferMessageDecoder.split

    def spy(self: InferMessageDecoder, data: bytes) -> SplitMessage:
        messages.append(data)
        return split(self, data)

    with patch.object(InferMessageDecoder, "split", spy):
        yield messages


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_a_message_is_freed_before_its_answer_is_read(seen: list[bytes], method: str) -> None:
    """A client that reads slowly would otherwise hold memory that nothing counts."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            await worker.channel.close()
            worker.channel = grpc.aio.insecure_channel(f"127.0.0.1:{worker.port}", SMALL_WINDOWS)
            if method == "ModelInfer":
                reading = asyncio.ensure_future(worker.method(INFERENCE, method)(MESSAGE))
            else:
                call = worker.method(INFERENCE, method)()
                await call.write(MESSAGE)
                reading = asyncio.ensure_future(call.read())
            budget = worker.app.context.budget
            async with asyncio.timeout(10):
                # the answer counts, which is ten times as large as the message
                while budget.bytes < 5 * ROWS * 64 * 4:
                    await asyncio.sleep(0)
            (size,) = map(len, seen)
            assert size > ROWS * 64 * 4
            references = sys.getrefcount(seen[0])
            # this list, and the argument of the function
            assert references == 2
            await reading

    asyncio.run(scene())
