"""Decodes the body of an infer request, JSON with or without binary tensors, and validates it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from simdjson import Array as JsonArray
from simdjson import Object as JsonObject

from turnpike.common.datatypes import DATATYPES, WIRE_DTYPES
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.artifact.text_encoder import TextEncoder
from turnpike.service.codec.json_document import (
    MISSING,
    expect_array,
    expect_flag,
    expect_object,
    expect_shallow,
    expect_short,
    expect_text,
    expect_whole,
    has_more_than,
    keys,
    parse,
    quoted,
    scalars,
    to_json,
    to_python,
)
from turnpike.service.codec.request_inputs import RequestInputs
from turnpike.service.codec.tensor_faults import first_fault
from turnpike.service.codec.tensors import (
    arrays_in,
    expect_even,
    expect_fit,
    infer_shape,
    read_binary,
    read_json,
    read_shape,
    read_sizes,
)
from turnpike.service.codec.text_input import split_elements, texts_in_bytes, texts_in_json
from turnpike.service.errors import RequestError
from turnpike.service.inference_types import Array, FeedLayout, InferenceRequest, RequestedOutput, RequestForm


class InputReader(RequestInputs):
    """Reads the `inputs` of a request into arrays.

    Binary tensors follow the JSON in the body, in the order of the inputs.
    """

    __slots__ = ("_body", "_json_arrays", "_json_data", "_json_depth", "_position")

    def __init__(
        self, body: bytes | memoryview, position: int, signature: Signature, limits: RequestLimits
    ) -> None:
        super().__init__(signature, limits)
        self._body = body
        # where the next binary tensor begins in the body
        self._position = position
        # the tensors in JSON: value, shape, dtype, and its position
        self._json_data: list[tuple[JsonArray, tuple[int, ...], np.dtype[Any], str]] = []
        # the number of JSON arrays that these should consist of, and the depth of the deepest
        self._json_arrays = self._json_depth = 0

    def read(self, entries: JsonArray) -> None:
        """Read all inputs of the request, and check that none is missing and no bytes are left over."""
        for index, entry in enumerate(entries):
            self._read_input(entry, f"inputs[{index}]")
        self.expect_complete()
        if self._position != len(self._body):
            raise RequestError(
                f"body: expected {self._position} bytes, which are its JSON and the tensors that this names, "
                f"got {len(self._body)}"
            )

    def expect_even(self, text: bytes, other_arrays: int, max_depth: int) -> None:
        """Raise RequestError if an array is in place of a number, or the text is nested too deeply.

        `other_arrays` is the number of arrays in the text that are not part of the inputs. For most requests,
        counting brackets is enough: as many as there should be means that no array hides among the numbers.
        """
        # `inputs` itself is an array, and so is each shape
        outer_arrays = other_arrays + 1 + len(self.feeds)
        has_more_arrays = has_more_than(text, b"[", outer_arrays + self._json_arrays)
        if has_more_arrays:
            for data, shape, dtype, where in self._json_data:
                try:
                    expect_even(data, shape, where)
                except RequestError as error:
                    raise first_fault(data, shape, dtype, where) or error from None
        if has_more_arrays or has_more_than(text, b"{", max_depth - outer_arrays - self._json_depth):
            expect_shallow(text, max_depth)

    def _read_input(self, entry: Any, where: str) -> None:
        # Which input of the model is it, and do its datatype and shape fit?
        present = keys(expect_object(entry, where), where)
        name = expect_text(entry["name"] if "name" in present else MISSING, f"{where}.name")
        tensor = self.find(name, where)
        datatype = entry["datatype"] if "datatype" in present else MISSING
        if datatype != DATATYPES[tensor.dtype]:
            datatype = expect_text(datatype, f"{where}.datatype")
            self._read_texts(entry, present, tensor, self.text_encoder(datatype, tensor, where), where)
            return
        shape = read_shape(
            entry["shape"] if "shape" in present else MISSING, tensor, self.dim_sizes, f"{where}.shape"
        )
        self.expect_rows(shape, f"{where}.shape")

        # read its values from the JSON or from the bytes that follow
        size = _binary_size(entry["parameters"], where) if "parameters" in present else None
        if size is None:
            data = entry["data"] if "data" in present else MISSING
            self.feeds[tensor.name] = self._read_json(data, shape, tensor.dtype, f"{where}.data")
        elif "data" in present:
            raise RequestError(f"{where}: expected data or parameters.binary_data_size, got both")
        else:
            self.feeds[tensor.name] = read_binary(
                self._body,
                self._position,
                size,
                shape,
                WIRE_DTYPES[tensor.dtype],
                f"{where}.parameters.binary_data_size",
            )
            self._position += size

    def _read_texts(
        self, entry: JsonObject, present: list[str], tensor: Tensor, encoder: TextEncoder, where: str
    ) -> None:
        """Read an input that was sent as texts, and convert them to ids."""
        shape = read_sizes(entry["shape"] if "shape" in present else MISSING, f"{where}.shape")
        count = self.expect_texts(shape, tensor, encoder, f"{where}.shape")
        size = _binary_size(entry["parameters"], where) if "parameters" in present else None
        if size is None:
            data = expect_array(entry["data"] if "data" in present else MISSING, f"{where}.data")
            texts = texts_in_json(data, count, f"{where}.data")
            self._json_arrays += arrays_in(data, (count, 1))
            self._json_depth = max(self._json_depth, 2)
        elif "data" in present:
            raise RequestError(f"{where}: expected data or parameters.binary_data_size, got both")
        else:
            end = self._position + size
            if end > len(self._body):
                raise RequestError(
                    f"{where}.parameters.binary_data_size: expected {size} bytes after the JSON, "
                    f"got {len(self._body) - self._position}"
                )
            content = memoryview(self._body)[self._position : end]
            texts = texts_in_bytes(split_elements(content, count, f"{where}.data"), f"{where}.data")
            self._position = end
        self.add_texts(tensor.name, texts, encoder, where)

    def _read_json(self, data: Any, shape: tuple[int, ...], dtype: str, where: str) -> Array:
        if dtype == "float16":
            raise RequestError(f"{where}: FP16 cannot be written in JSON; expected binary data")
        wire_dtype = WIRE_DTYPES[dtype]
        try:
            array = read_json(data, shape, wire_dtype, where)
        except RequestError as error:
            raise first_fault(data, shape, wire_dtype, where) or error from None
        self._json_data.append((data, shape, wire_dtype, where))
        self._json_arrays += arrays_in(data, shape)
        self._json_depth = max(self._json_depth, len(shape))
        return array


def _binary_size(value: Any, where: str) -> int | None:
    """The size of a binary tensor in bytes; None if the tensor is in the JSON."""
    parameters = scalars(value, f"{where}.parameters")
    if "shared_memory_region" in parameters:
        raise RequestError(f"{where}: shared memory is not supported; expected data or binary data")
    if "binary_data_size" not in parameters:
        return None
    return expect_whole(parameters["binary_data_size"], f"{where}.parameters.binary_data_size")


JSON_LENGTH_HEADER = "Inference-Header-Content-Length"

# bytes of JSON that the body may have under an extra key
MAX_EXTRA_BYTES = 64 * 1024

# checks of the parameters that the protocol defines; others may be any scalar
PARAMETER_CHECKS = {
    "binary_data_output": expect_flag,
    "priority": expect_whole,
    "sequence_end": expect_flag,
    "sequence_start": expect_flag,
    "timeout": expect_whole,
}


def decode_infer(
    body: bytes | memoryview,
    json_size: int | None,
    signature: Signature,
    limits: RequestLimits,
    extra: frozenset[str] = frozenset(),
) -> InferenceRequest:
    """Decode and validate the body of an infer request; raises RequestError.

    Args:
        body: The whole body.
        json_size: The first bytes of the body that are JSON: all of them if None. If 0, the whole body is the
            binary data of the model's one input.
        signature: The model's tensors.
        limits: How large the request may be.
        extra: Keys of the body whose values are kept among the parameters. Other unknown keys are ignored.
    """
    if json_size == 0:
        return _decode_raw(body, signature, limits)
    if json_size is not None and json_size > len(body):
        raise RequestError(
            f"{JSON_LENGTH_HEADER}: expected at most the {len(body)} bytes of the body, got {json_size}"
        )

    # parse the JSON, and read the parameters
    text = bytes(body[:json_size])
    expect_short(text, limits.max_json_bytes)
    request = parse(text)
    present = keys(request, "body")
    parameters: dict[str, Any] = (
        scalars(request["parameters"], "parameters") if "parameters" in present else {}
    )
    for name, value in parameters.items():
        if name in PARAMETER_CHECKS:
            PARAMETER_CHECKS[name](value, f"parameters.{name}")

    # read the inputs and the requested outputs
    if "instances" in present and "inputs" not in present:
        raise RequestError(
            "inputs: expected tensors (name, shape, datatype, data), got `instances`, which only "
            ":predict takes"
        )
    inputs = InputReader(body, len(text), signature, limits)
    inputs.read(expect_array(request["inputs"] if "inputs" in present else MISSING, "inputs"))
    inputs.expect_even(text, 1 if "outputs" in present else 0, limits.max_depth)
    binary = parameters.get("binary_data_output") is True
    outputs = _outputs(request["outputs"], signature, binary=binary) if "outputs" in present else ()
    for key in extra:
        if key in present:
            parameters[key] = _extra_value(request[key], key)
    form = RequestForm(
        rows=inputs.rows,
        outputs=outputs or all_outputs(tuple(signature.outputs), binary=binary),
        layout=FeedLayout.of(inputs.feeds),
        id=expect_text(request["id"], "id") if "id" in present else None,
        # clients send 0 for no timeout
        timeout_us=parameters.get("timeout") or None,
        parameters=parameters,
        has_texts=inputs.has_texts,
    )
    return InferenceRequest(form, inputs.feeds)


def _extra_value(value: Any, where: str) -> Any:
    """The value of an extra key, of limited size."""
    size = len(to_json(value))
    if size > MAX_EXTRA_BYTES:
        raise RequestError(f"{where}: expected at most {MAX_EXTRA_BYTES} bytes, got {size}")
    return to_python(value)


def _outputs(value: Any, signature: Signature, *, binary: bool) -> tuple[RequestedOutput, ...]:
    """The requested outputs in order, including hidden ones."""
    requested: dict[str, RequestedOutput] = {}
    for index, entry in enumerate(expect_array(value, "outputs")):
        where = f"outputs[{index}]"
        node = expect_object(entry, where)
        present = keys(node, where)
        name = expect_text(node["name"] if "name" in present else MISSING, f"{where}.name")
        if name not in signature.outputs and name not in signature.hidden:
            known = ", ".join(map(repr, signature.outputs))
            raise RequestError(f"{where}.name: expected one of {known} or a gate, got {quoted(name)}")
        if name in requested:
            raise RequestError(f"{where}.name: expected each output once, got {quoted(name)} twice")
        parameters = node["parameters"] if "parameters" in present else None
        requested[name] = (
            RequestedOutput(name, binary)
            if parameters is None
            else _requested_output(name, parameters, f"{where}.parameters", binary=binary)
        )
    return tuple(requested.values())


def _requested_output(name: str, value: Any, where: str, *, binary: bool) -> RequestedOutput:
    """An output in the form that its parameters ask for; `binary` is the default for the request."""
    parameters = scalars(value, where)
    if "shared_memory_region" in parameters:
        raise RequestError(f"{where}: shared memory is not supported; expected JSON or binary data")
    if "binary_data" in parameters:
        binary = expect_flag(parameters["binary_data"], f"{where}.binary_data")
    classes = expect_whole(parameters.get("classification", 0), f"{where}.classification")
    return RequestedOutput(name, binary, classes)


@lru_cache(maxsize=1024)
def all_outputs(names: Iterable[str], *, binary: bool) -> tuple[RequestedOutput, ...]:
    """All public outputs of a model: what most requests ask for, by naming none."""
    return tuple(RequestedOutput(name, binary) for name in names)


def _decode_raw(body: bytes | memoryview, signature: Signature, limits: RequestLimits) -> InferenceRequest:
    """Decode a request without JSON, whose body is the binary data of the model's one input."""
    if len(signature.inputs) != 1:
        raise RequestError(
            f"{JSON_LENGTH_HEADER}: 0 needs a model with one input, and this one has "
            f"{len(signature.inputs)}; expected JSON"
        )
    (tensor,) = signature.inputs.values()
    dtype = WIRE_DTYPES[tensor.dtype]
    dims = tensor.dims
    if signature.batch is not None and any(isinstance(dim, str) for dim in dims[1:]):
        # the size of a dimension that varies follows from that of one row
        dims = (1, *dims[1:])
    # a rest that is no whole value makes the size wrong, which read_binary reports
    shape = infer_shape(dims, len(body) // dtype.itemsize, "body")
    expect_fit(shape, tensor, {}, "body")
    rows = 1 if signature.batch is None else shape[0]
    if rows > limits.max_rows:
        raise RequestError(f"body: expected at most {limits.max_rows} rows (--max-rows), got {rows}")
    array = read_binary(body, 0, len(body), shape, dtype, "body")
    feeds = {tensor.name: array}
    outputs = all_outputs(tuple(signature.outputs), binary=True)
    return InferenceRequest(RequestForm(rows, outputs, FeedLayout.of(feeds)), feeds)
