"""ModelInferRequest messages, and the bytes of protobuf's fields, for tests of the decoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict

from tests.support.infer_bodies import ROWS
from turnpike.common.datatypes import BYTES, DATATYPES
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.signature import Signature
from turnpike.service.errors import RequestError
from turnpike.service.grpc.messages.infer_request import CONTENT_FIELDS, InferRequest
from turnpike.service.grpc.messages.infer_request_cache import InferMessageDecoder
from turnpike.service.grpc.messages.infer_response import varint
from turnpike.service.inference_types import Array, InferenceRequest

LIMITS = RequestLimits(max_rows=50)

# fields of a ModelInferRequest that bytes are written for
NAME, VERSION, ID, PARAMETERS, INPUTS, OUTPUTS, RAW = range(1, 8)


def with_inputs(*, typed: bool = False, model: str = "m", **arrays: Array) -> Any:
    """A request with these inputs, as raw or as typed contents."""
    message = InferRequest(model_name=model)
    for name, array in arrays.items():
        entry = message.inputs.add(name=name, datatype=DATATYPES[array.dtype.name], shape=array.shape)
        if typed:
            getattr(entry.contents, CONTENT_FIELDS[array.dtype.name]).extend(array.ravel().tolist())
        else:
            message.raw_input_contents.append(array.tobytes())
    return message


def with_texts(
    texts: Sequence[str | bytes], shape: Sequence[int], *, typed: bool = False, model: str = "m"
) -> Any:
    """A request with the input `ids` as texts."""
    elements = [text.encode() if isinstance(text, str) else text for text in texts]
    message = InferRequest(model_name=model)
    entry = message.inputs.add(name="ids", datatype=BYTES, shape=shape)
    if typed:
        entry.contents.bytes_contents.extend(elements)
    else:
        raw = b"".join(len(element).to_bytes(4, "little") + element for element in elements)
        message.raw_input_contents.append(raw)
    return message


def field(number: int, data: bytes, *, wire_type: int = 2) -> bytes:
    """The bytes of a field that has bytes, by its number."""
    return varint(number << 3 | wire_type) + (varint(len(data)) + data if wire_type == 2 else data)


def tensor(array: Array, name: str = "x") -> bytes:
    """The bytes of the field `inputs` for a raw tensor."""
    entry = InferRequest.InferInputTensor(name=name, datatype=DATATYPES[array.dtype.name], shape=array.shape)
    return field(INPUTS, entry.SerializeToString())


def outcome(work: Callable[[], InferenceRequest]) -> tuple[Any, ...]:
    """Everything that a decoded request has, or the error."""
    try:
        request = work()
    except RequestError as error:
        return type(error), str(error)
    form = request.form
    feeds = [(name, array.dtype, array.shape, array.tobytes()) for name, array in request.feeds.items()]
    layout = (form.layout.rows, form.layout.size, form.layout.row_shapes)
    return feeds, form.rows, form.outputs, form.timeout_us, dict(form.parameters), layout


def decode(message: Any, model: Signature = ROWS) -> InferenceRequest:
    """Decode a message from its bytes, with a cache of its own."""
    messages = InferMessageDecoder(LIMITS, lambda request, model: None)
    return messages.decode(messages.split(message.SerializeToString()), model, 0)


def error_of(message: Any, model: Signature = ROWS) -> str:
    """The error with which a message is refused."""
    with pytest.raises(RequestError) as caught:
        decode(message, model)
    return str(caught.value)


def every_array(rows: int = 2) -> dict[str, Array]:
    """An array of each dtype by its name, with its extreme values."""
    arrays: dict[str, Array] = {}
    for name in DATATYPES:
        dtype = np.dtype(name)
        if dtype.kind == "b":
            values: list[Any] = [True, False, True]
        elif dtype.kind == "f":
            limits = np.finfo(dtype)
            values = [limits.min, limits.smallest_subnormal, limits.max]
        else:
            values = [np.iinfo(dtype).min, 1, np.iinfo(dtype).max]
        arrays[name] = np.array([values] * rows, dtype)
    return arrays


def as_json(message: Any) -> Any:
    """A message with all its fields, and with numbers as numbers."""
    record = MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return _with_numbers(record, message.DESCRIPTOR)


def _with_numbers(record: Any, descriptor: Any) -> Any:
    """Protobuf writes whole numbers of 64 bits as strings of JSON."""
    for field in descriptor.fields:
        if field.name not in record:
            continue
        value = record[field.name]
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for item in value if field.is_repeated else [value]:
                _with_numbers(item, field.message_type)
        elif field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64):
            record[field.name] = [int(item) for item in value] if field.is_repeated else int(value)
    return record
