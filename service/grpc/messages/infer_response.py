"""Encodes ModelInferResponse messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from turnpike.common.datatypes import BYTES, DATATYPE_BY_DTYPE
from turnpike.service.classification import classification
from turnpike.service.errors import NotFiniteError
from turnpike.service.grpc.messages.descriptors import message_class
from turnpike.service.grpc.messages.infer_request import CONTENT_FIELDS
from turnpike.service.inference_types import Array, InferAnswer, RequestedOutput, RequestForm

InferResponse = message_class("inference.ModelInferResponse")
# first bytes of the fields `id` and `raw_output_contents`
ID, RAW_OUTPUTS = b"\x1a", b"\x32"
# (name, dtype, shape) of each output
Outputs = tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]


@dataclass(frozen=True)
class RawAnswers:
    """Writes the answers to requests for raw tensors; an `OutputProcessor`, called once for each run."""

    model_name: str
    model_version: int
    output_names: tuple[str, ...]

    @classmethod
    def of(cls, name: str, version: int, form: RequestForm) -> RawAnswers | None:
        """For requests of a form if all of their outputs are raw tensors, else None."""
        if not all(output.binary and not output.classes for output in form.outputs):
            return None
        return cls(name, version, form.output_names)

    def process(self, arrays: Mapping[str, Array], rows: int, requests: int) -> list[bytes]:
        """The answer to each request."""
        if len(self.output_names) == 1:
            (name,) = self.output_names
            array = arrays[name]
            shape = (array.shape[0] // requests, *array.shape[1:]) if array.ndim else ()
            size = array.nbytes // requests
            before = _before_raw(self.model_name, self.model_version, ((name, array.dtype, shape),))
            before += RAW_OUTPUTS + varint(size)
            data = array.tobytes()
            return [before + data[size * index : size * (index + 1)] for index in range(requests)]
        return [
            encode_raw(
                self.model_name,
                self.model_version,
                [(name, _part(arrays[name], index, requests)) for name in self.output_names],
            )
            for index in range(requests)
        ]


def _part(array: Array, index: int, requests: int) -> Array:
    """The entries of one of the requests that an output is for."""
    if requests == 1:
        return array
    entries = len(array) // requests
    return array[index * entries : (index + 1) * entries]


@lru_cache(maxsize=1024)
def _before_raw(name: str, version: int, outputs: Outputs) -> bytes:
    """A response up to its first raw tensor."""
    message = InferResponse(model_name=name, model_version=str(version))
    for output, dtype, shape in outputs:
        message.outputs.add(name=output, datatype=DATATYPE_BY_DTYPE[dtype], shape=shape)
    data: bytes = message.SerializeToString()
    return data


def encode_raw(name: str, version: int, pairs: Sequence[tuple[str, Array]]) -> bytes:
    """A response with these arrays as raw tensors."""
    parts = [_before_raw(name, version, tuple((output, array.dtype, array.shape) for output, array in pairs))]
    for _, array in pairs:
        data = array.tobytes()
        parts += [RAW_OUTPUTS, varint(len(data)), data]
    return b"".join(parts)


def encode_response(answer: InferAnswer) -> bytes:
    """Encode a response of any kind: raw or typed tensors, or classes."""
    message = InferResponse()
    fill_response(message, answer)
    data: bytes = message.SerializeToString()
    return data


def fill_response(message: Any, answer: InferAnswer) -> None:
    """Fill a ModelInferResponse, which may be part of another message."""
    form = answer.form
    message.model_name, message.model_version = answer.model_name, str(answer.model_version)
    # there is no typed FP16, and either all tensors of a message are raw or none is
    is_raw = any(
        output.binary or (array.dtype == np.float16 and not output.classes)
        for output, array in zip(form.outputs, answer.arrays, strict=True)
    )
    for output, array in zip(form.outputs, answer.arrays, strict=True):
        entry = message.outputs.add(name=output.name)
        if output.classes:
            shape, strings = _classes(output, array, form.rows, answer.labels)
            entry.datatype = BYTES
            entry.shape.extend(shape)
            if is_raw:
                message.raw_output_contents.append(
                    b"".join(len(string).to_bytes(4, "little") + string for string in strings)
                )
            else:
                entry.contents.bytes_contents.extend(strings)
            continue
        entry.datatype = DATATYPE_BY_DTYPE[array.dtype]
        entry.shape.extend(array.shape)
        if is_raw:
            message.raw_output_contents.append(array.tobytes())
        else:
            getattr(entry.contents, CONTENT_FIELDS[array.dtype.name]).extend(array.ravel().tolist())


def _classes(
    output: RequestedOutput, array: Array, rows: int, labels: Sequence[str]
) -> tuple[tuple[int, int], list[bytes]]:
    """The best classes of each row, as the shape and the strings."""
    if not np.isfinite(array).all():
        raise NotFiniteError(
            f"outputs: {output.name!r} has NaN or Inf among its values, which no class is the best of"
        )
    shape, strings = classification(array, rows, output.classes, labels)
    return shape, [string.encode() for string in strings]


def with_id(response: bytes, request_id: bytes) -> bytes:
    """A response with the id of its request, which may come after the other fields."""
    return b"%b%b%b%b" % (response, ID, varint(len(request_id)), request_id) if request_id else response


def varint(number: int) -> bytes:
    """A number as protobuf writes lengths: 7 bits in each byte, the lowest first."""
    data = bytearray()
    while number >= 128:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
    return bytes(data)
