"""Server reflection: sends clients such as grpcurl the services, and the files that define them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import FileDescriptor

from turnpike.service.grpc.connection.call import Call
from turnpike.service.grpc.connection.status import StatusCode
from turnpike.service.grpc.messages.descriptors import POOL, message_class, parse
from turnpike.service.grpc.methods.read_messages import next_message
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.requests.body import BodyReader

ReflectionRequest = message_class("grpc.reflection.v1.ServerReflectionRequest")
ReflectionResponse = message_class("grpc.reflection.v1.ServerReflectionResponse")


class ReflectionEndpoint:
    """Answers each message of a stream. `services` are the full names of those to list."""

    def __init__(self, bodies: BodyReader, budget: MemoryBudget, services: Iterable[str]) -> None:
        self._bodies, self._budget = bodies, budget
        self._services = sorted(services)

    async def __call__(self, call: Call) -> None:
        while (data := await next_message(self._bodies, self._budget, call)) is not None:
            answer = self._answer(parse(ReflectionRequest, data))
            await call.send_message(answer.SerializeToString())
        call.finish()

    def _answer(self, request: Any) -> Any:
        answer = ReflectionResponse(valid_host=request.host, original_request=request)
        question = request.WhichOneof("message_request")
        try:
            if question == "list_services":
                for name in self._services:
                    answer.list_services_response.service.add(name=name)
            elif question == "file_by_filename":
                _add_file(answer, POOL.FindFileByName(request.file_by_filename))
            elif question == "file_containing_symbol":
                _add_file(answer, POOL.FindFileContainingSymbol(request.file_containing_symbol))
            elif question == "all_extension_numbers_of_type":
                # these messages have no extensions
                name = POOL.FindMessageTypeByName(request.all_extension_numbers_of_type).full_name
                answer.all_extension_numbers_response.base_type_name = name
        except KeyError:
            pass
        if answer.WhichOneof("message_response") is None:
            answer.error_response.error_code = StatusCode.NOT_FOUND
            answer.error_response.error_message = "there is no such file, symbol or extension"
        return answer


def _add_file(answer: Any, file: FileDescriptor) -> None:
    """Add a file and all that it imports."""
    data = answer.file_descriptor_response.file_descriptor_proto
    files, seen = [file], {file.name}
    for file in files:
        data.append(file.serialized_pb)
        for imported in file.dependencies:
            if imported.name not in seen:
                seen.add(imported.name)
                files.append(imported)
