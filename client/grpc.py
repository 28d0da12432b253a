"""The transport over gRPC, with grpcio: writes messages with raw tensors, reads answers and errors.

The messages are those of the service, so another client of gRPC may be imported in the same program.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any
from urllib.parse import urlsplit

import grpc
import grpc.aio
from google.protobuf.message import Message

from turnpike.client.errors import (
    ClientError,
    DeadlineError,
    InputError,
    NotConnectedError,
    RequestRefusedError,
    ServerError,
    UnavailableError,
)
from turnpike.client.inputs import Array, Call, datatype_of, to_bytes
from turnpike.client.transport import AsyncWaits, BlockingWaits, TransportOptions, printable, read_array
from turnpike.service.grpc.messages.descriptors import message_class

INFERENCE = "inference.GRPCInferenceService"
GATES, MODELS = "turnpike.v1.GateService", "turnpike.v1.ModelService"
# the documents that Describe reads
DOCUMENTS = {"certificate": "CERTIFICATE", "samples": "SAMPLES", "profile": "GATE_PROFILE"}
OPTIONS = (
    # messages may be larger than 4 MiB
    ("grpc.max_send_message_length", -1),
    # milliseconds between attempts to connect; the pauses of the client are added
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
# the status over HTTP for each code that means the service refused the request
REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 413,
    grpc.StatusCode.FAILED_PRECONDITION: 421,
    grpc.StatusCode.OUT_OF_RANGE: 422,
    grpc.StatusCode.UNIMPLEMENTED: 501,
}


class AsyncTransport(AsyncWaits):
    """Sends calls with a channel of `grpc.aio`, which belongs to the event loop of the first call."""

    grpc: Any = grpc.aio
    _is_closed = False

    def __init__(self, url: str, options: TransportOptions) -> None:
        address = urlsplit(url)
        if not address.port or address.path.strip("/"):
            raise ValueError(f"url: expected {address.scheme}://HOST:PORT, got {url!r}")
        self._is_tls, self._target, self._options = address.scheme == "grpcs", address.netloc, options
        if options.tls is not None and not self._is_tls:
            raise ValueError(f"tls: expected grpcs://HOST:PORT for credentials, got {url!r}")

    @functools.cached_property
    def _channel(self) -> Any:
        options = (*OPTIONS, ("grpc.max_receive_message_length", self._options.max_answer))
        if not self._is_tls:
            return self.grpc.insecure_channel(self._target, options)
        credentials = self._options.tls or grpc.ssl_channel_credentials()
        return self.grpc.secure_channel(self._target, credentials, options)

    async def send(self, call: Call, subject: str, seconds: float) -> dict[str, Any]:
        """The fields that the answer has over HTTP, with arrays by name in place of lists of tensors.

        Raises:
            ClientError: There is no such answer within these seconds.
        """
        if self._is_closed:
            raise RuntimeError("expected an open client, got one that was closed")
        service, name, fields = encode(call, subject)
        message = f"{service.rpartition('.')[0]}.{name}"
        try:
            request = message_class(f"{message}Request")(**fields)
        except (ValueError, TypeError) as error:
            raise InputError(subject, f"expected arguments that fit in a message, got {error}") from error
        answer = message_class(f"{message}Response")
        method = self._channel.unary_unary(
            f"/{service}/{name}", type(request).SerializeToString, answer.FromString
        )
        try:
            metadata = tuple({**self._options.headers, **call.headers}.items())
            return decode(call, await self._exchange(method, request, seconds, metadata))
        except grpc.RpcError as error:
            raise error_of(error, subject) from error
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise ServerError(subject, "expected an answer of the protocol, got another") from error

    async def _exchange(self, method: Any, request: Any, seconds: float, metadata: Any) -> Any:
        return await method(request, timeout=seconds, metadata=metadata)

    async def close(self) -> None:
        self._is_closed = True
        await self._channel.close()


class BlockingTransport(BlockingWaits, AsyncTransport):
    """Sends calls with a channel of `grpc`, and never suspends."""

    grpc = grpc

    def __init__(self, url: str, options: TransportOptions) -> None:
        super().__init__(url, options)
        # one for all threads
        self._channel = super()._channel

    async def _exchange(self, method: Any, request: Any, seconds: float, metadata: Any) -> Any:
        return method(request, timeout=seconds, metadata=metadata)

    async def close(self) -> None:
        self._is_closed = True
        self._channel.close()


def encode(call: Call, subject: str) -> tuple[str, str, dict[str, Any]]:
    """The service, the method and the fields of the message for a call; raises InputError."""
    model = {"name": call.model, "version": str(call.version)}
    document = {"model_name": call.model, "model_version": str(call.version)}
    infer = {
        **document,
        "inputs": [
            {"name": name, "datatype": datatype_of(array), "shape": array.shape}
            for name, array in call.tensors.items()
        ],
        "raw_input_contents": list(map(to_bytes, call.tensors.values())),
    }
    moves = {key: call.fields[key] for key in ("close", "open", "shift") if key in call.fields}
    for key in moves.keys() - {"shift"}:
        if isinstance(moves[key], str) or not isinstance(moves[key], Iterable):
            raise InputError(subject, f"{key}: expected a list of layers or gates' names, got {moves[key]!r}")
        # the number of a layer is a text
        moves[key] = list(map(str, moves[key]))
    if "shift" in moves:
        moves["shift"] = _to_shifts(moves["shift"], subject)
    match call.operation:
        case "infer":
            outputs = [_with_parameters(output) for output in call.fields.get("outputs", ())]
            return INFERENCE, "ModelInfer", infer | {"outputs": outputs}
        case "gates":
            detail = call.fields["parameters"]["detail"].upper()
            return GATES, "ReadGates", {"infer": infer, "moves": moves, "detail": detail}
        case "lesion":
            return GATES, "Lesion", {"infer": infer, "moves": moves}
        case "lesion_curve":
            return GATES, "LesionCurve", {"infer": infer}
        case "predict":
            return MODELS, "Predict", document | {"json": json.dumps(call.fields).encode()}
        case "certificate" | "samples" | "profile":
            return MODELS, "Describe", document | {"document": DOCUMENTS[call.operation]}
        case "metadata":
            return INFERENCE, "ModelMetadata", model
        case "statistics":
            return INFERENCE, "ModelStatistics", model
        case "load" | "unload":
            method = f"RepositoryModel{call.operation.capitalize()}"
            return INFERENCE, method, {"model_name": call.model}
        case "models":
            return INFERENCE, "RepositoryIndex", {"ready": True}
        case "ready":
            return (INFERENCE, "ModelReady", model) if call.model else (INFERENCE, "ServerReady", {})
    raise InputError(subject, f"expected an address of HTTP, as gRPC has no {call.operation}")


def _to_shifts(shift: Any, subject: str) -> dict[str, float]:
    if not isinstance(shift, Mapping):
        raise InputError(subject, f"shift: expected a dict of numbers by layer or gate, got {shift!r}")
    for gate, change in shift.items():
        if isinstance(change, bool) or not isinstance(change, Real):
            raise InputError(subject, f"shift: {gate}: expected a number, got {change!r}")
    return {str(gate): float(change) for gate, change in shift.items()}


def _with_parameters(output: Mapping[str, Any]) -> dict[str, Any]:
    """A requested output, whose parameters are whole numbers."""
    parameters = {name: {"int64_param": value} for name, value in output.get("parameters", {}).items()}
    return {**output, "parameters": parameters}


def decode(call: Call, message: Any) -> dict[str, Any]:
    """The fields of an answer, as those of HTTP."""
    answer: dict[str, Any] = to_fields(message)
    if "json" in answer:
        answer = json.loads(answer["json"])
        if not isinstance(answer, dict):
            raise TypeError("expected an object")
        return answer
    if call.operation == "models":
        return {"models": sorted({entry["name"] for entry in answer["models"]})}
    if call.operation == "metadata":
        for tensor in [*answer["inputs"], *answer["outputs"]]:
            parameters = {key: next(iter(value.values())) for key, value in tensor["parameters"].items()}
            tensor["parameters"] = parameters
            if not parameters:
                del tensor["parameters"]
    answer |= answer.pop("infer", {})
    for part in (answer, answer.get("lesioned", {})):
        if "raw_output_contents" in part:
            part["outputs"] = to_arrays(part["outputs"], part.pop("raw_output_contents"))
    if call.operation == "gates":
        contents = [tensor["raw_contents"] for tensor in answer["tensors"]]
        answer["tensors"] = to_arrays(answer["tensors"], contents)
        # figures of no rows, which are null over HTTP
        unknown = dict.fromkeys(("mean", "sd", "closed", "open", "carried"))
        answer["gates"] = [unknown | gate for gate in answer["gates"]]
    return answer


def to_fields(value: Any) -> Any:
    """A message as dicts and lists. Fields that are not set are left out if that can be told apart from 0."""
    if isinstance(value, Message):
        return {
            field.name: to_fields(getattr(value, field.name))
            for field in value.DESCRIPTOR.fields
            if not field.has_presence or value.HasField(field.name)
        }
    if isinstance(value, Mapping):
        return {key: to_fields(value[key]) for key in sorted(value)}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [to_fields(item) for item in value]
    return value


def to_arrays(entries: Sequence[Any], contents: Sequence[bytes]) -> dict[str, Array]:
    """Arrays by name, of tensors and their bytes."""
    arrays = {}
    for entry, content in zip(entries, contents, strict=True):
        arrays[entry["name"]], end = read_array(content, 0, entry)
        if end != len(content):
            raise ValueError(f"expected {end} bytes, got {len(content)}")
    return arrays


def error_of(error: Any, subject: str) -> ClientError:
    """The error that an answer with another code than OK, or none, means."""
    code, trailers = error.code(), dict(error.trailing_metadata() or ())
    reason = printable(error.details() or "")
    # what the service answers has the id of the request
    is_answer, after = "x-request-id" in trailers, trailers.get("retry-after")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        if is_answer:
            return DeadlineError(subject, reason, 504)
        return DeadlineError(subject, "expected an answer within the timeout, got none")
    if code is grpc.StatusCode.UNAVAILABLE or after is not None:
        if is_answer:
            return UnavailableError(subject, reason, 503, None if after is None else float(after))
        # a bad certificate will not become a good one
        again = None if "CERTIFICATE_VERIFY_FAILED" in reason else 0.0
        kind = NotConnectedError if "failed to connect" in reason.lower() else UnavailableError
        return kind(subject, f"expected an answer, got {reason}", retry_after=again)
    if code in REFUSALS:
        return RequestRefusedError(subject, reason, REFUSALS[code])
    return ServerError(subject, f"{code.name}: {reason}", 500 if is_answer else None)
