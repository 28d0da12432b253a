"""The body of an infer request, JSON or binary, to a request that fits the model."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from simdjson import Array as JsonArray

from service.artifact.datatypes import DATATYPES, WIRE_DTYPES
from service.artifact.limits import RequestLimits
from service.errors import RequestError
from service.inference_types import Array, InferenceRequest, RequestedOutput
from service.protocol.json_document import (
    expect_array,
    expect_flag,
    expect_object,
    expect_shallow,
    expect_short,
    expect_text,
    expect_whole,
    holds_more,
    keys,
    parse,
    quoted,
    scalars,
    to_json,
    to_python,
)
from service.protocol.tensors import arrays_in, expect_even, read_binary, read_json, read_shape, solved

if TYPE_CHECKING:
    from service.artifact.runtime import Signature, Tensor


class InputReader:
    """What was read so far: `feeds` by name, and their `rows`."""

    __slots__ = (
        "_arrays",
        "_body",
        "_deepest",
        "_limits",
        "_position",
        "_signature",
        "_sizes",
        "_written",
        "feeds",
        "rows",
    )

    def __init__(
        self, body: bytes | memoryview, position: int, signature: Signature, limits: RequestLimits
    ) -> None:
        self._body, self._signature, self._limits = body, signature, limits
        # where in the body the next tensor begins that is written as bytes
        self._position = position
        self._sizes: dict[str, int] = {}
        # what is written as JSON: the value, its shape and where it is
        self._written: list[tuple[JsonArray, tuple[int, ...], str]] = []
        # how many arrays these should be made of, and how deep they go
        self._arrays = self._deepest = 0
        self.feeds: dict[str, Array] = {}
        self.rows = 1

    def read(self, entries: JsonArray) -> None:
        """All inputs of the request; afterwards each of the model's has its array."""
        for index, entry in enumerate(entries):
            self._read_one(entry, f"inputs[{index}]")
        if len(self.feeds) < len(self._signature.inputs):
            absent = next(name for name in self._signature.inputs if name not in self.feeds)
            raise RequestError(f"inputs: expected one named {quoted(absent)}, which is missing")
        if self._position != len(self._body):
            raise RequestError(
                f"body: expected {self._position} bytes, which are its JSON and the tensors that this names, "
                f"got {len(self._body)}"
            )

    def expect_even(self, text: bytes, others: int, depth: int) -> None:
        """Stop with a RequestError where arrays lie in place of numbers, or the text is nested too deeply.

        Of its arrays `others` are no part of the inputs. Of most requests, brackets tell that all is well,
        and nothing needs to be looked through.
        """
        # `inputs` itself is an array, and each shape
        around = others + 1 + len(self.feeds)
        uneven = holds_more(text, b"[", around + self._arrays)
        if uneven:
            for data, shape, where in self._written:
                expect_even(data, shape, where)
        if uneven or holds_more(text, b"{", depth - around - self._deepest):
            expect_shallow(text, depth)

    def _read_one(self, entry: Any, where: str) -> None:
        present = keys(expect_object(entry, where), where)
        tensor = self._tensor(entry["name"] if "name" in present else None, where)
        given = entry["datatype"] if "datatype" in present else None
        if given != DATATYPES[tensor.dtype]:
            given = expect_text(given, f"{where}.datatype")
            raise RequestError(f"{where}.datatype: expected {DATATYPES[tensor.dtype]}, got {quoted(given)}")
        shape = read_shape(
            entry["shape"] if "shape" in present else None, tensor, self._sizes, f"{where}.shape"
        )
        if self._signature.batch is not None:
            self._expect_rows(shape[0], f"{where}.shape")
        size = _binary_size(entry["parameters"], where) if "parameters" in present else None
        if size is None:
            data = entry["data"] if "data" in present else None
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

    def _read_json(self, data: Any, shape: tuple[int, ...], dtype: str, where: str) -> Array:
        if dtype == "float16":
            raise RequestError(f"{where}: FP16 has no form in JSON; expected the binary form")
        array = read_json(data, shape, WIRE_DTYPES[dtype], where)
        self._written.append((data, shape, where))
        self._arrays += arrays_in(data, shape)
        self._deepest = max(self._deepest, len(shape))
        return array

    def _tensor(self, given: Any, where: str) -> Tensor:
        """The model's input of that name, which was not given before."""
        name = expect_text(given, f"{where}.name")
        tensor = self._signature.inputs.get(name)
        if tensor is None:
            known = ", ".join(map(repr, self._signature.inputs))
            raise RequestError(f"{where}.name: expected one of {known}, got {quoted(name)}")
        if name in self.feeds:
            raise RequestError(f"{where}.name: expected each input once, got {quoted(name)} twice")
        return tensor

    def _expect_rows(self, rows: int, where: str) -> None:
        if rows > self._limits.max_rows:
            raise RequestError(f"{where}: expected at most {self._limits.max_rows} rows, got {rows}")
        if self.feeds and rows != self.rows:
            raise RequestError(f"{where}: expected {self.rows} rows as in the inputs before it, got {rows}")
        self.rows = rows


def _binary_size(value: Any, where: str) -> int | None:
    """How many bytes of the body are the tensor; None where it is written as JSON."""
    parameters = scalars(value, f"{where}.parameters")
    if "shared_memory_region" in parameters:
        raise RequestError(f"{where}: shared memory is not spoken here; expected data or binary data")
    if "binary_data_size" not in parameters:
        return None
    return expect_whole(parameters["binary_data_size"], f"{where}.parameters.binary_data_size")


LENGTH = "Inference-Header-Content-Length"

# bytes of what the body has under an extra key
MOST_EXTRA = 64 * 1024

# what the protocol says of these parameters; others may be any scalar
RESERVED = {
    "binary_data_output": expect_flag,
    "priority": expect_whole,
    "sequence_end": expect_flag,
    "sequence_start": expect_flag,
    "timeout": expect_whole,
}


def decode_infer(
    body: bytes | memoryview,
    header: int | None,
    signature: Signature,
    limits: RequestLimits,
    extra: frozenset[str] = frozenset(),
) -> InferenceRequest:
    """The request whose JSON is the first `header` bytes of the body: all of them for None, for 0 none.

    What the body has under the keys in `extra` is kept among the parameters; other unknown keys mean nothing.
    """
    if header == 0:
        return _raw(body, signature, limits)
    if header is not None and header > len(body):
        raise RequestError(f"{LENGTH}: expected at most the {len(body)} bytes of the body, got {header}")
    text = bytes(body[:header])
    expect_short(text, limits.max_json_bytes)
    request = parse(text)
    present = keys(request, "body")
    parameters: dict[str, Any] = (
        scalars(request["parameters"], "parameters") if "parameters" in present else {}
    )
    for name, value in parameters.items():
        if name in RESERVED:
            RESERVED[name](value, f"parameters.{name}")
    inputs = InputReader(body, len(text), signature, limits)
    inputs.read(expect_array(request["inputs"] if "inputs" in present else None, "inputs"))
    inputs.expect_even(text, 1 if "outputs" in present else 0, limits.max_depth)
    binary = parameters.get("binary_data_output") is True
    outputs = _outputs(request["outputs"], signature, binary=binary) if "outputs" in present else ()
    for key in extra:
        if key in present:
            parameters[key] = _short(request[key], key)
    return InferenceRequest(
        feeds=inputs.feeds,
        rows=inputs.rows,
        outputs=outputs or _public(tuple(signature.outputs), binary=binary),
        id=expect_text(request["id"], "id") if "id" in present else None,
        # clients send 0 for none
        timeout_us=parameters.get("timeout") or None,
        parameters=parameters,
    )


def _short(value: Any, where: str) -> Any:
    """What an extra key holds, which is never much."""
    size = len(to_json(value))
    if size > MOST_EXTRA:
        raise RequestError(f"{where}: expected at most {MOST_EXTRA} bytes, got {size}")
    return to_python(value)


def _outputs(value: Any, signature: Signature, *, binary: bool) -> tuple[RequestedOutput, ...]:
    """The outputs asked for, in that order, hidden ones too."""
    wanted: dict[str, RequestedOutput] = {}
    for index, entry in enumerate(expect_array(value, "outputs")):
        where = f"outputs[{index}]"
        node = expect_object(entry, where)
        present = keys(node, where)
        name = expect_text(node["name"] if "name" in present else None, f"{where}.name")
        if name not in signature.outputs and name not in signature.hidden:
            known = ", ".join(map(repr, signature.outputs))
            raise RequestError(f"{where}.name: expected one of {known} or a gate, got {quoted(name)}")
        if name in wanted:
            raise RequestError(f"{where}.name: expected each output once, got {quoted(name)} twice")
        given = node["parameters"] if "parameters" in present else None
        wanted[name] = (
            RequestedOutput(name, binary)
            if given is None
            else _form(name, given, f"{where}.parameters", binary=binary)
        )
    return tuple(wanted.values())


def _form(name: str, value: Any, where: str, *, binary: bool) -> RequestedOutput:
    """In which form an output is asked for."""
    parameters = scalars(value, where)
    if "shared_memory_region" in parameters:
        raise RequestError(f"{where}: shared memory is not spoken here; expected JSON or binary data")
    if "binary_data" in parameters:
        binary = expect_flag(parameters["binary_data"], f"{where}.binary_data")
    classes = expect_whole(parameters.get("classification", 0), f"{where}.classification")
    return RequestedOutput(name, binary, classes)


@lru_cache(maxsize=1024)
def _public(names: Iterable[str], *, binary: bool) -> tuple[RequestedOutput, ...]:
    """All public outputs of a model, which most requests ask for by naming none."""
    return tuple(RequestedOutput(name, binary) for name in names)


def _raw(body: bytes | memoryview, signature: Signature, limits: RequestLimits) -> InferenceRequest:
    """A request without JSON: the bytes of a model's one input."""
    if len(signature.inputs) != 1:
        raise RequestError(
            f"{LENGTH}: 0 needs a model of one input, and this one has {len(signature.inputs)}; expected JSON"
        )
    (tensor,) = signature.inputs.values()
    dtype = WIRE_DTYPES[tensor.dtype]
    # bytes beyond whole values are found to be too many
    shape = solved(tensor.dims, len(body) // dtype.itemsize, "body")
    rows = 1 if signature.batch is None else shape[0]
    if rows > limits.max_rows:
        raise RequestError(f"body: expected at most {limits.max_rows} rows, got {rows}")
    array = read_binary(body, 0, len(body), shape, dtype, "body")
    return InferenceRequest({tensor.name: array}, rows, _public(tuple(signature.outputs), binary=True))
