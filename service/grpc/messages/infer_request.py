"""Decodes and validates ModelInferRequest messages.

A message is cut into its form (names, shapes, datatypes, outputs) and the raw bytes of its tensors. Clients
repeat the same form, which is decoded once and kept, as `service.protocol.infer_request_cache` does for HTTP.
Decoding takes 3 µs then. Only `decode_message` reports errors: it gets every message that is new or wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from service.artifact.datatypes import DATATYPES, WIRE_DTYPES
from service.artifact.limits import RequestLimits
from service.bounded_cache import BoundedCache
from service.errors import RequestError
from service.grpc.messages.descriptors import message_class, parse
from service.inference_types import (
    Array,
    FeedLayout,
    InferenceRequest,
    Parameter,
    RequestedOutput,
    RequestForm,
)
from service.protocol.infer_request import PARAMETER_CHECKS, all_outputs
from service.protocol.json_document import expect_whole, quoted
from service.protocol.request_inputs import RequestInputs
from service.protocol.tensors import expect_fit, read_binary, value_range
from service.protocol.text_input import split_elements, texts_in_bytes

if TYPE_CHECKING:
    from service.artifact.runtime import Signature

InferRequest = message_class("inference.ModelInferRequest")

# more than the forms of requests that are in use at any one time
MAX_TEMPLATES = 512
# bytes of a form; with MAX_TEMPLATES, this bounds the keys of the cache to a megabyte
MAX_TEMPLATE_BYTES = 2048
# first bytes of two fields of a ModelInferRequest: the number of the field times 8, plus 2 for bytes
ID, RAW_INPUTS = 3 * 8 + 2, 7 * 8 + 2
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


class InferMessage(NamedTuple):
    """A message, cut into its form and its tensors.

    `form` is the message without its id and its raw tensors, and `raw` has these, as views of the message. If
    it cannot be cut, `form` is None.
    """

    data: bytes
    model_name: str
    model_version: str | None
    id: bytes
    form: bytes | None
    raw: tuple[memoryview, ...] = ()


def _cut(data: bytes) -> tuple[bytes, bytes, tuple[memoryview, ...]] | None:
    """Cut a message into its form, its id and its raw tensors.

    None if the raw tensors are not its last fields, or it has a field that is unknown.
    """
    position, end = 0, len(data)
    form_end = 0
    id_start = id_end = 0
    request_id = b""
    raw: list[memoryview] = []
    view = memoryview(data)
    while position < end:
        tag = data[position]
        start = position
        position += 1
        if tag & 7 != 2 or tag > RAW_INPUTS:
            return None
        # the length, an integer of 7 bits in each byte
        size = shift = 0
        while True:
            if position >= end or shift > 28:
                return None
            byte = data[position]
            position += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        stop = position + size
        if stop > end:
            return None
        if tag == RAW_INPUTS:
            raw.append(view[position:stop])
        elif raw:
            return None
        else:
            form_end = stop
            if tag == ID:
                # the last one counts, and those before stay in the form
                id_start, id_end, request_id = start, stop, data[position:stop]
        position = stop
    form = data[:form_end] if not id_end else data[:id_start] + data[id_end:form_end]
    return form, request_id, tuple(raw)


class TensorSlot(NamedTuple):
    """Name, shape and dtype of a tensor whose bytes change from request to request."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    size: int


class Template(NamedTuple):
    """The form of a request, and the slots for its tensors in the order of the message."""

    form: RequestForm
    slots: tuple[TensorSlot, ...]


class InferMessages:
    """Decodes the ModelInferRequest messages of all models.

    `check` raises a RequestError for a decoded request that is refused. It may depend only on names and
    shapes, since it is not called again for requests that differ only in their numbers.
    """

    def __init__(self, limits: RequestLimits, check: Callable[[InferenceRequest, Signature], None]) -> None:
        self._limits = limits
        self._check = check
        # the name and version of the model, by the form
        self._models: BoundedCache[bytes, tuple[str, str | None]] = BoundedCache(MAX_TEMPLATES)
        # by the serial number of the loaded model, and the form
        self._templates: BoundedCache[tuple[int, bytes], Template] = BoundedCache(MAX_TEMPLATES)

    def open(self, data: bytes) -> InferMessage:
        """Cut a message, and read which model it names. Raises RequestError if it is no valid message."""
        parts = _cut(data)
        if parts is None:
            message = parse(InferRequest, data)
            return InferMessage(data, *_model_of(message), message.id.encode(), None)
        form, request_id, raw = parts
        if not request_id.isascii():
            # raises the error for text that is not UTF-8
            parse(InferRequest, data)
        model = self._models.get(form)
        if model is None:
            model = _model_of(parse(InferRequest, form))
            # the form of typed tensors has their numbers, so it is seldom repeated
            if raw and len(form) <= MAX_TEMPLATE_BYTES:
                self._models.add(form, model)
        return InferMessage(data, *model, request_id, form, raw)

    def decode(self, message: InferMessage, signature: Signature, serial: int) -> InferenceRequest:
        """Decode a message for the loaded model with this signature and serial number."""
        if message.form is None:
            return self._decode_uncached(message, signature)
        template = self._templates.get((serial, message.form))
        if template is not None and len(template.slots) == len(message.raw):
            feeds: dict[str, Array] = {}
            for slot, raw in zip(template.slots, message.raw, strict=True):
                if len(raw) != slot.size:
                    break
                array: Array = np.frombuffer(raw, slot.dtype).reshape(slot.shape)
                # kernels may rely on aligned memory, and the tensor can begin at any byte of the message
                feeds[slot.name] = array if array.flags.aligned else array.copy()
            else:
                return InferenceRequest(template.form, feeds)

        # remember the form if all tensors are raw numbers; the bytes of booleans need checking
        request = self._decode_uncached(message, signature)
        arrays = request.feeds
        if (
            message.raw
            and not request.form.has_texts
            and len(message.form) <= MAX_TEMPLATE_BYTES
            and all(array.dtype.kind in "fiu" and array.size for array in arrays.values())
        ):
            slots = [
                TensorSlot(name, array.shape, array.dtype, array.nbytes) for name, array in arrays.items()
            ]
            self._templates.add((serial, message.form), Template(request.form, tuple(slots)))
        return request

    def _decode_uncached(self, message: InferMessage, signature: Signature) -> InferenceRequest:
        request = decode_message(parse(InferRequest, message.data), signature, self._limits)
        self._check(request, signature)
        return request


def _model_of(message: Any) -> tuple[str, str | None]:
    return message.model_name, message.model_version or None


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
        parameters = read_parameters(entry.parameters, f"{where}.parameters")
        if "shared_memory_region" in parameters:
            raise RequestError(f"{where}: shared memory is not supported; expected raw or typed contents")
        if raw is not None and entry.HasField("contents"):
            raise RequestError(f"{where}: expected raw_input_contents or contents, got both")
        shape = tuple(entry.shape)
        for size in shape:
            expect_whole(size, f"{where}.shape")
        if entry.datatype != DATATYPES[tensor.dtype]:
            encoder = self.text_encoder(entry.datatype, tensor, where)
            count = self.expect_texts(shape, tensor, encoder, f"{where}.shape")
            self.add_texts(tensor.name, _texts(entry.contents, raw, count, where), encoder, where)
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
        place = f"raw_input_contents of {where}"
        return texts_in_bytes(split_elements(raw, count, place), place)
    place = f"{where}.contents.bytes_contents"
    _expect_only_field(contents, "bytes_contents", f"{where}.contents")
    if len(contents.bytes_contents) != count:
        raise RequestError(f"{place}: expected {count} strings, got {len(contents.bytes_contents)}")
    return texts_in_bytes(contents.bytes_contents, place)


def read_contents(contents: Any, shape: tuple[int, ...], dtype: np.dtype[np.generic], where: str) -> Array:
    """Read typed values, which must all be in the field of the dtype."""
    if dtype == np.float16:
        raise RequestError(f"{where}: FP16 has no typed contents; expected raw_input_contents")
    field = CONTENT_FIELDS[dtype.name]
    _expect_only_field(contents, field, where)
    values = getattr(contents, field)
    count = math.prod(shape)
    if len(values) != count:
        raise RequestError(f"{where}: expected {count} values for shape {list(shape)}, got {len(values)}")
    if dtype.kind == "f" and count:
        # serialized again, floats are the bytes of an array after a tag and a length; unknown fields are last
        contents.DiscardUnknownFields()
        return np.frombuffer(contents.SerializeToString()[-count * dtype.itemsize :], dtype).reshape(shape)
    array = np.fromiter(values, getattr(np, "int64" if dtype.kind == "i" else "uint64"), count)
    narrow = array.astype(dtype)
    if not (narrow == array).all():
        raise RequestError(f"{where}: expected {value_range(dtype)}, got one outside of that")
    return narrow.reshape(shape)


def _expect_only_field(contents: Any, name: str, where: str) -> None:
    for field, _ in contents.ListFields():
        if field.name != name:
            raise RequestError(f"{where}: expected values in {name}, got {field.name}")


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
