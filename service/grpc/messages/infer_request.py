"""Decodes and validates ModelInferRequest messages that protobuf has parsed.

This decoder reports all errors. `infer_request_cache` saves most requests the way through it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from turnpike.common.datatypes import DATATYPES, WIRE_DTYPES
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.signature import Signature
from turnpike.service.codec.infer_request import PARAMETER_CHECKS, all_outputs
from turnpike.service.codec.json_document import expect_whole, quoted
from turnpike.service.codec.request_inputs import RequestInputs
from turnpike.service.codec.tensors import expect_fit, read_binary, value_range
from turnpike.service.codec.text_input import split_elements, texts_in_bytes
from turnpike.service.errors import RequestError
from turnpike.service.grpc.messages.descriptors import message_class
from turnpike.service.inference_types import (
    Array,
    FeedLayout,
    InferenceRequest,
    Parameter,
    RequestedOutput,
    RequestForm,
)

InferRequest = message_class("inference.ModelInferRequest")

# the field of `contents` for each dtype
CONTENT_FIELDS = {
    "bool": "bool_contents",
    "int8": "int_contents",
    "int16": "int_contents",
    "int32": "int_contents",
    "int64": "int64_contents",
    "uint8": "uint_contents",
    "uint16": "uint_contents",
    "uint32": "uint_contents",
    "uint64": "uint64_contents",
    "float32": "fp32_contents",
    "float64": "fp64_contents",
}


def decode_message(message: Any, signature: Signature, limits: RequestLimits) -> InferenceRequest:
    """Validate a parsed message; raises RequestError. Its id is left out, so that messages share a form.

    Args:
        message: The ModelInferRequest.
        signature: The model's tensors.
        limits: How large the request may be.
    """
    raw = list(message.raw_input_contents)
    if raw and len(raw) != len(message.inputs):
        raise RequestError(
            f"raw_input_contents: expected one for each of the {len(message.inputs)} inputs, or none, "
            f"got {len(raw)}"
        )
    parameters = read_parameters(message.parameters, "parameters")
    for name, value in parameters.items():
        if name in PARAMETER_CHECKS:
            PARAMETER_CHECKS[name](value, f"parameters.{name}")
    inputs = MessageInputs(signature, limits)
    for index, entry in enumerate(message.inputs):
        inputs.read(entry, raw[index] if raw else None, f"inputs[{index}]")
    inputs.expect_complete()
    outputs = _outputs(message.outputs, signature, binary=bool(raw))
    form = RequestForm(
        rows=inputs.rows,
        outputs=outputs or all_outputs(tuple(signature.outputs), binary=bool(raw)),
        layout=FeedLayout.of(inputs.feeds),
        # clients send 0 for no timeout
        timeout_us=parameters.get("timeout") or None,  # type: ignore[arg-type]
        parameters=parameters,
        has_texts=inputs.has_texts,
    )
    return InferenceRequest(form, inputs.feeds)


class MessageInputs(RequestInputs):
    """Reads the `inputs` of a message into arrays."""

    __slots__ = ()

    def read(self, entry: Any, raw: bytes | None, where: str) -> None:
        """Read one input, whose values are `raw`, or in its contents if that is None."""
        tensor = self.find(entry.name, where)
        is_number = entry.datatype == DATATYPES[tensor.dtype]
        encoder = None if is_number else self.text_encoder(entry.datatype, tensor, where)
        parameters = read_parameters(entry.parameters, f"{where}.parameters")
        if "shared_memory_region" in parameters:
            raise RequestError(f"{where}: shared memory is not supported; expected raw or typed contents")
        if raw is not None and entry.HasField("contents"):
            raise RequestError(f"{where}: expected raw_input_contents or contents, got both")
        shape = tuple(entry.shape)
        for size in shape:
            expect_whole(size, f"{where}.shape")
        if encoder is not None:
            count = self.expect_texts(shape, tensor, encoder, f"{where}.shape")
            place = f"{where}.contents" if raw is None else f"raw_input_contents of {where}"
            self.add_texts(tensor.name, _texts(entry.contents, raw, count, place), encoder, place)
            return
        if len(shape) != len(tensor.dims):
            raise RequestError(
                f"{where}.shape: expected {len(tensor.dims)} dimensions "
                f"[{', '.join(map(str, tensor.dims))}], got {len(shape)}"
            )
        expect_fit(shape, tensor, self.dim_sizes, f"{where}.shape")
        self.expect_rows(shape, f"{where}.shape")
        dtype = WIRE_DTYPES[tensor.dtype]
        if raw is None:
            self.feeds[tensor.name] = read_contents(entry.contents, shape, dtype, f"{where}.contents")
        else:
            self.feeds[tensor.name] = read_binary(
                raw, 0, len(raw), shape, dtype, f"raw_input_contents of {where}"
            )


def _texts(contents: Any, raw: bytes | None, count: int, where: str) -> list[str]:
    """The texts of an input, raw or in its contents."""
    if raw is not None:
        return texts_in_bytes(split_elements(raw, count, where), where)
    elements = _values_in(contents, "bytes_contents", where)
    if len(elements) != count:
        raise RequestError(f"{where}: expected {count} strings, got {len(elements)}")
    return texts_in_bytes(elements, where)


def read_contents(contents: Any, shape: tuple[int, ...], dtype: np.dtype[np.generic], where: str) -> Array:
    """Read typed values, which must all be in the field of the dtype."""
    if dtype == np.float16:
        raise RequestError(f"{where}: FP16 has no typed contents; expected raw_input_contents")
    values = _values_in(contents, CONTENT_FIELDS[dtype.name], where)
    count = math.prod(shape)
    if len(values) != count:
        raise RequestError(f"{where}: expected {count} values for shape {list(shape)}, got {len(values)}")
    if dtype.kind == "f" and count:
        # serialized again, floats are the bytes of an array after a tag and a length; unknown fields are last
        contents.DiscardUnknownFields()
        return np.frombuffer(contents.SerializeToString()[-count * dtype.itemsize :], dtype).reshape(shape)
    array = np.fromiter(values, np.dtype("int64" if dtype.kind == "i" else "uint64"), count)
    narrow = array.astype(dtype)
    if not (narrow == array).all():
        raise RequestError(f"{where}: expected {value_range(dtype)}, got {array[narrow != array][0]}")
    return narrow.reshape(shape)


def _values_in(contents: Any, field: str, where: str) -> Sequence[Any]:
    """The values of the field of a datatype; raises RequestError if there are any in another field."""
    for descriptor, _ in contents.ListFields():
        if descriptor.name != field:
            raise RequestError(f"{where}: expected values in {field}, got {descriptor.name}")
    values: Sequence[Any] = getattr(contents, field)
    return values


def read_parameters(parameters: Mapping[str, Any], where: str) -> dict[str, Parameter]:
    """Parameters as values of Python."""
    values: dict[str, Parameter] = {}
    for name, parameter in parameters.items():
        kind = parameter.WhichOneof("parameter_choice")
        if kind is None:
            raise RequestError(f"{where}.{name[:40]}: expected a value, got none")
        values[name] = getattr(parameter, kind)
    return values


def _outputs(entries: Sequence[Any], signature: Signature, *, binary: bool) -> tuple[RequestedOutput, ...]:
    """The requested outputs in order, including hidden ones."""
    requested: dict[str, RequestedOutput] = {}
    for index, entry in enumerate(entries):
        where, name = f"outputs[{index}]", entry.name
        if name not in signature.outputs and name not in signature.hidden:
            known = ", ".join(map(repr, signature.outputs))
            raise RequestError(f"{where}.name: expected one of {known} or a gate, got {quoted(name)}")
        if name in requested:
            raise RequestError(f"{where}.name: expected each output once, got {quoted(name)} twice")
        parameters = read_parameters(entry.parameters, f"{where}.parameters")
        if "shared_memory_region" in parameters:
            raise RequestError(f"{where}.parameters: shared memory is not supported")
        classes = expect_whole(parameters.get("classification", 0), f"{where}.parameters.classification")
        requested[name] = RequestedOutput(name, binary, classes)
    return tuple(requested.values())
