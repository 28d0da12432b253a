"""The inputs of an infer request, read one after the other: from its JSON, or from the bytes after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simdjson import Array as JsonArray

from service.artifact.datatypes import DATATYPES, DTYPES
from service.artifact.limits import Limits
from service.errors import RequestError
from service.inference_types import Array
from service.protocol.binary_tensor import read_binary
from service.protocol.json_document import (
    expect_object,
    expect_shallow,
    expect_text,
    expect_whole,
    holds_more,
    keys,
    scalars,
    shown,
)
from service.protocol.json_tensor import arrays_in, expect_even, read_json
from service.protocol.shape import read_shape

if TYPE_CHECKING:
    from service.artifact.runtime import Tensor
    from service.registry.model import Signature


class Inputs:
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

    def __init__(self, body: bytes | memoryview, position: int, signature: Signature, limits: Limits) -> None:
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
            raise RequestError(f"inputs: expected one named {shown(absent)}, which is missing")
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
            raise RequestError(f"{where}.datatype: expected {DATATYPES[tensor.dtype]}, got {shown(given)}")
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
                DTYPES[tensor.dtype],
                f"{where}.parameters.binary_data_size",
            )
            self._position += size

    def _read_json(self, data: Any, shape: tuple[int, ...], dtype: str, where: str) -> Array:
        if dtype == "float16":
            raise RequestError(f"{where}: FP16 has no form in JSON; expected the binary form")
        array = read_json(data, shape, DTYPES[dtype], where)
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
            raise RequestError(f"{where}.name: expected one of {known}, got {shown(name)}")
        if name in self.feeds:
            raise RequestError(f"{where}.name: expected each input once, got {shown(name)} twice")
        return tensor

    def _expect_rows(self, rows: int, where: str) -> None:
        if rows > self._limits.rows:
            raise RequestError(f"{where}: expected at most {self._limits.rows} rows, got {rows}")
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
