"""Reflection: a client without .proto files finds the services and all that it needs to call them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tests.support.grpc_worker import GrpcWorker, grpc_worker, infer_request
from turnpike.service.grpc.application import (
    GATES,
    HEALTH,
    INFERENCE,
    MODELS,
    OLD_REFLECTION,
    REFLECTION,
)
from turnpike.service.grpc.messages.descriptors import POOL, message_class

ReflectionRequest = message_class("grpc.reflection.v1.ServerReflectionRequest")


async def ask(worker: GrpcWorker, *questions: Any) -> list[Any]:
    """The answers to questions on one stream."""
    stream = worker.method(REFLECTION, "ServerReflectionInfo")(iter(questions))
    return [answer async for answer in stream]


def test_all_services_are_listed() -> None:
    """Each with a descriptor. The older name of reflection has none, but the same messages."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            (answer,) = await ask(worker, ReflectionRequest(list_services=""))
            names = {service.name for service in answer.list_services_response.service}
            assert names == {INFERENCE, GATES, MODELS, HEALTH, REFLECTION}
            files = await ask(worker, *(ReflectionRequest(file_containing_symbol=name) for name in names))
            assert all(file.file_descriptor_response.file_descriptor_proto for file in files)
            old = worker.channel.stream_stream(
                f"/{OLD_REFLECTION}/ServerReflectionInfo",
                request_serializer=ReflectionRequest.SerializeToString,
                response_deserializer=type(answer).FromString,
            )
            async for again in old(iter([ReflectionRequest(list_services="")])):
                assert again == answer

    asyncio.run(scene())


def test_a_model_is_called_by_reflection_alone() -> None:
    """As grpcurl does: the files of a symbol are enough to write a request and to read its answer."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            (answer,) = await ask(worker, ReflectionRequest(file_containing_symbol=GATES))
            pool = DescriptorPool()
            # a file comes before those that it imports
            for data in reversed(answer.file_descriptor_response.file_descriptor_proto):
                pool.Add(FileDescriptorProto.FromString(data))
            method = pool.FindMethodByName(f"{GATES}.ReadGates")
            request = GetMessageClass(method.input_type)()
            request.infer.ParseFromString(infer_request([[[[0.0] * 8] * 8]]).SerializeToString())
            call = worker.channel.unary_unary(
                f"/{GATES}/ReadGates",
                request_serializer=type(request).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            assert len((await call(request)).gates) == 10

    asyncio.run(scene())


@pytest.mark.parametrize(
    "question",
    [
        {"file_by_filename": "absent.proto"},
        {"file_containing_symbol": "absent.Service"},
        {"file_containing_extension": {"containing_type": "inference.ModelInferRequest"}},
        {"all_extension_numbers_of_type": "absent.Message"},
        {},
    ],
)
def test_what_there_is_not_is_an_error_within_the_stream(question: dict[str, Any]) -> None:
    """Further questions on the stream are answered."""

    async def scene() -> None:
        async with grpc_worker() as worker:
            known = ReflectionRequest(file_by_filename="inference.proto")
            absent, present = await ask(worker, ReflectionRequest(**question), known)
            assert absent.error_response.error_code == 5
            (data,) = present.file_descriptor_response.file_descriptor_proto
            assert data == POOL.FindFileByName("inference.proto").serialized_pb

    asyncio.run(scene())
