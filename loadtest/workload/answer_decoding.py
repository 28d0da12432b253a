"""Decodes the body of an answer, in any wire format, into named arrays that can be compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from turnpike.common.datatypes import DTYPE_BY_DATATYPE
from turnpike.loadtest.plan import Wire
from turnpike.loadtest.workload.payloads import JSON_LENGTH_HEADER
from turnpike.loadtest.workload.tensors import Array

LENGTH_HEADER = JSON_LENGTH_HEADER.lower()


class AnswerError(Exception):
    """An answer that does not follow the protocol; the message is one of a few fixed texts."""


@dataclass(frozen=True, slots=True)
class DecodedAnswer:
    """An answer as arrays. Texts and bytes are object arrays; datatypes are those that the answer names."""

    model: str | None
    version: str | None
    arrays: dict[str, Array]
    datatypes: dict[str, str]


def decode(wire: Wire, headers: Mapping[str, str], data: bytes) -> DecodedAnswer:
    """Decode the answer to a request of this wire format; names of headers are in lower case."""
    length = headers.get(LENGTH_HEADER)
    try:
        size = len(data) if length is None else int(length)
        document = json.loads(data[:size])
    except (ValueError, RecursionError) as error:
        raise AnswerError("not JSON") from error
    if not isinstance(document, dict):
        raise AnswerError("not a JSON object")
    if wire == "v1":
        return _decode_predictions(document)
    return _decode_tensors(wire, document, _BinaryData(data, size))


def _decode_tensors(wire: Wire, document: dict[str, Any], binary: _BinaryData) -> DecodedAnswer:
    """The outputs of a /v2 answer, and the gates or lesioned outputs that some wire formats add."""
    arrays: dict[str, Array] = {}
    datatypes: dict[str, str] = {}
    for name, datatype, array in _outputs(document, binary):
        arrays[name], datatypes[name] = array, datatype
    if wire == "lesion":
        for name, datatype, array in _outputs(document.get("lesioned"), binary):
            arrays[f"lesioned {name}"], datatypes[f"lesioned {name}"] = array, datatype
    if wire == "gates":
        arrays |= _gates(document)
    if binary.left:
        raise AnswerError("binary data of another length")
    model, version = _text(document.get("model_name")), _text(document.get("model_version"))
    return DecodedAnswer(model, version, arrays, datatypes)


class _BinaryData:
    """The bytes after the JSON, read tensor by tensor."""

    def __init__(self, data: bytes, begin: int) -> None:
        self._data, self._position = data, begin

    @property
    def left(self) -> int:
        return len(self._data) - self._position

    def take(self, size: Any) -> bytes:
        if size > self.left:
            raise AnswerError("binary data of another length")
        self._position += size
        return self._data[self._position - size : self._position]


def _outputs(document: Any, binary: _BinaryData) -> Iterator[tuple[str, str, Array]]:
    """Name, datatype and values of each output."""
    entries = document.get("outputs") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise AnswerError("no outputs")
    for entry in entries:
        try:
            name, datatype = str(entry["name"]), str(entry["datatype"])
            shape = _sizes(entry["shape"])
            size = (entry.get("parameters") or {}).get("binary_data_size")
            if size is None:
                flat = _from_json(entry["data"], datatype)
            else:
                flat = _from_bytes(binary.take(size), datatype)
            yield name, datatype, flat.reshape(shape)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise AnswerError("an output without name, datatype, shape and matching values") from error


def _sizes(shape: Any) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in shape)
    if min(sizes, default=0) < 0:
        raise ValueError("a size below zero")
    return sizes


def _from_json(data: Any, datatype: str) -> Array:
    """The values of a flat or nested JSON list."""
    dtype = DTYPE_BY_DATATYPE.get(datatype)
    if dtype is None:
        return _objects(_leaves(data))
    array = np.array(data)
    with np.errstate(over="ignore"):
        cast = array.astype(dtype, copy=False).ravel() if array.dtype.kind in "biuf" else None
    # a cast to whole numbers would silently cut off fractions
    if cast is None or (dtype.kind != "f" and not (cast == array.ravel()).all()):
        raise AnswerError("values of another datatype")
    return cast


def _from_bytes(data: bytes, datatype: str) -> Array:
    if datatype == "BYTES":
        return _objects(list(_strings(data)))
    if datatype == "BF16":
        # the upper half of a float32
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    if datatype not in DTYPE_BY_DATATYPE:
        raise AnswerError("an unknown datatype")
    return np.frombuffer(data, DTYPE_BY_DATATYPE[datatype])


def _strings(data: bytes) -> Iterator[str]:
    """Strings, each preceded by its length in four bytes."""
    position = 0
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "little")
        position += 4 + size
        if position > len(data):
            raise AnswerError("binary data of another length")
        yield data[position - size : position].decode("utf-8", "replace")


def _gates(document: dict[str, Any]) -> dict[str, Array]:
    """Name and mean of each gate."""
    try:
        names = _objects([str(gate["name"]) for gate in document["gates"]])
        return {"gate": names, "mean of gates": np.array([gate["mean"] for gate in document["gates"]], float)}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise AnswerError("no means of gates") from error


def _decode_predictions(document: dict[str, Any]) -> DecodedAnswer:
    """The rows of a /v1 answer: an array of all numbers, and one of all texts."""
    rows = document.get("predictions")
    if not isinstance(rows, list) or not rows:
        raise AnswerError("no predictions")
    leaves = [_leaves(row) for row in rows]
    numbers = [[leaf for leaf in row if isinstance(leaf, int | float)] for row in leaves]
    texts = [leaf for row in leaves for leaf in row if not isinstance(leaf, int | float)]
    if len(set(map(len, numbers))) > 1:
        raise AnswerError("predictions of several shapes")
    try:
        arrays = {"prediction": np.array(numbers, float).reshape(len(rows), -1)}
    except OverflowError as error:
        raise AnswerError("values of another datatype") from error
    if texts:
        arrays["label"] = _objects(texts)
    return DecodedAnswer(_text(document.get("model")), _text(document.get("version")), arrays, {})


def _leaves(value: Any) -> list[Any]:
    """All values in nested lists and objects, in order; of an object its keys, too, in alphabetical order."""
    leaves, stack = [], [value]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            for key in sorted(value, reverse=True):
                stack += [value[key], key]
        elif isinstance(value, list):
            stack += reversed(value)
        else:
            leaves.append(value)
    return leaves


def _objects(values: list[Any]) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
