"""Cases of gRPC: messages as data, and how they are sent and the answers compared."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from tests.conformance.pattern import ANYTHING, difference

SERVICE = "inference.GRPCInferenceService"
SECONDS = 20
# the class of a message, by its name
Stubs = Callable[[str], Any]


@dataclass(frozen=True)
class GrpcCase:
    """A call and its answer.

    `method` is one of the protocol's service, or a whole path. `request` has the fields of the message, or is
    the bytes of one. Several make a stream, and `answer` is then a list. `answer` is a pattern of the fields
    of the answer, or its bytes. `code` is the name of the status.
    """

    name: str
    method: str
    request: Mapping[str, Any] | bytes | Sequence[Mapping[str, Any]] = field(default_factory=dict)
    code: str = "OK"
    answer: Any = ANYTHING
    # bytes that are added to those of the message
    more: bytes = b""
    compression: str | None = None


class GrpcServer:
    """A server at `host:port`, called with the messages of some stubs."""

    def __init__(self, address: str, stubs: Stubs) -> None:
        self._stubs = stubs
        self._channel = grpc.insecure_channel(address)

    def close(self) -> None:
        self._channel.close()

    def difference(self, case: GrpcCase) -> str | None:
        """Where the server's answer differs from the case, in words; None if it does not."""
        try:
            answer = self._call(case)
        except grpc.RpcError as error:
            # grpc itself answers calls that it does not know
            if case.code == error.code().name and (error.details() or case.code == "UNIMPLEMENTED"):
                return None
            return f"code: expected {case.code}, got {error.code().name}, {error.details()!r}"
        except DecodeError as error:
            return f"expected a message of the protocol, got another ({error})"
        if case.code != "OK":
            return f"code: expected {case.code}, got an answer"
        return difference(case.answer, answer)

    def _call(self, case: GrpcCase) -> Any:
        """The answer as its fields, or as bytes, or a list of these for a stream."""
        path = case.method if case.method.startswith("/") else f"/{SERVICE}/{case.method}"
        name = path.rpartition("/")[2]
        options: dict[str, Any] = {"timeout": SECONDS}
        if case.compression is not None:
            options["compression"] = getattr(grpc.Compression, case.compression)
        if isinstance(case.request, bytes):
            return self._channel.unary_unary(path)(case.request, **options)
        if not isinstance(case.request, Mapping):
            requests = [self._message("ModelInferRequest", fields) for fields in case.request]
            answers = self._channel.stream_stream(path)(iter(requests), **options)
            response = self._stubs("ModelStreamInferResponse")
            return [_fields(response.FromString(data)) for data in answers]
        data = self._channel.unary_unary(path)(
            self._message(f"{name}Request", case.request) + case.more, **options
        )
        return _fields(self._stubs(f"{name}Response").FromString(data))

    def _message(self, name: str, fields: Mapping[str, Any]) -> bytes:
        message = self._stubs(name)()
        _fill(message, fields)
        data: bytes = message.SerializeToString()
        return data


def _fill(message: Any, fields: Mapping[str, Any]) -> None:
    """Set the fields of a message, in which dicts are messages or maps."""
    for name, value in fields.items():
        if isinstance(value, Mapping):
            target = getattr(message, name)
            descriptor = message.DESCRIPTOR.fields_by_name[name].message_type
            if descriptor.GetOptions().map_entry:
                for key, item in value.items():
                    _fill(target[key], item)
            else:
                target.SetInParent()
                _fill(target, value)
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for item in value:
                _fill(getattr(message, name).add(), item)
        elif isinstance(value, list):
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)


def _fields(message: Any) -> dict[str, Any]:
    """The fields of a message. Empty lists, texts and messages are left out, as if they were not set."""
    record: dict[str, Any] = {}
    for descriptor in message.DESCRIPTOR.fields:
        value = getattr(message, descriptor.name)
        if descriptor.message_type is None:
            if descriptor.is_repeated:
                value = list(value)
            if value or not (descriptor.is_repeated or descriptor.type == descriptor.TYPE_STRING):
                record[descriptor.name] = value
        elif descriptor.is_repeated:
            is_map = descriptor.message_type.GetOptions().map_entry
            if value and not is_map:
                record[descriptor.name] = [_fields(item) for item in value]
        elif message.HasField(descriptor.name) and (fields := _fields(value)):
            record[descriptor.name] = fields
    return record


def stubs_of(module: str) -> Stubs:
    """The messages of a module that was generated from a .proto file."""
    generated = importlib.import_module(module)

    def message_class(name: str) -> Any:
        return getattr(generated, name)

    return message_class
