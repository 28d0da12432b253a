"""An answer's body, of whichever wire, to what can be compared: arrays by name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadtest.plan import Wire
from loadtest.workload.payloads import HEADER
from loadtest.workload.tensors import DTYPES, Array

LENGTH = HEADER.lower()


class AnswerError(Exception):
    """An answer that the protocol does not know; says in a few fixed words why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered. Texts and bytes are arrays of objects; datatypes are as the answer names them."""

    model: str | None
    version: str | None
    arrays: dict[str, Array]
    datatypes: dict[str, str]


def decode(wire: Wire, headers: Mapping[str, str], data: bytes) -> Answer:
    """The answer to a request of this wire; names of headers are in lower case."""
    length = headers.get(LENGTH)
    try:
        size = len(data) if length is None else int(length)
        document = json.loads(data[:size])
    except (ValueError, RecursionError) as error:
        raise AnswerError("not JSON") from error
    if not isinstance(document, dict):
        raise AnswerError("not a JSON object")
    return _predictions(document) if wire == "v1" else _tensors(wire, document, _Tail(data, size))


def _tensors(wire: Wire, document: dict[str, Any], tail: _Tail) -> Answer:
    """The outputs of an answer, and what else it has on this wire."""
    arrays: dict[str, Array] = {}
    datatypes: dict[str, str] = {}
    for name, datatype, array in _outputs(document, tail):
        arrays[name], datatypes[name] = array, datatype
    if wire == "lesion":
        for name, datatype, array in _outputs(document.get("lesioned"), tail):
            arrays[f"lesioned {name}"], datatypes[f"lesioned {name}"] = array, datatype
    if wire == "gates":
        arrays |= _gates(document)
    if tail.left:
        raise AnswerError("binary data of another length")
    return Answer(_text(document.get("model_name")), _text(document.get("model_version")), arrays, datatypes)


class _Tail:
    """The bytes after the JSON, read tensor by tensor."""

    def __init__(self, data: bytes, begin: int) -> None:
        self._data, self._at = data, begin

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: Any) -> bytes:
        if size > self.left:
            raise AnswerError("binary data of another length")
        self._at += size
        return self._data[self._at - size : self._at]


def _outputs(document: Any, tail: _Tail) -> Iterator[tuple[str, str, Array]]:
    entries = document.get("outputs") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise AnswerError("no outputs")
    for entry in entries:
        try:
            name, datatype = str(entry["name"]), str(entry["datatype"])
            shape = _sizes(entry["shape"])
            size = (entry.get("parameters") or {}).get("binary_data_size")
            flat = _flat(entry["data"], datatype) if size is None else _of_bytes(tail.take(size), datatype)
            yield name, datatype, flat.reshape(shape)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise AnswerError("an output without name, datatype, shape and as many values") from error


def _sizes(shape: Any) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in shape)
    if min(sizes, default=0) < 0:
        raise ValueError("a size below zero")
    return sizes


def _flat(data: Any, datatype: str) -> Array:
    """The values of a JSON list, flat or nested."""
    dtype = DTYPES.get(datatype)
    if dtype is None:
        return _objects(_leaves(data))
    array = np.array(data)
    with np.errstate(over="ignore"):
        cast = array.astype(dtype, copy=False).ravel() if array.dtype.kind in "biuf" else None
    # what does not fit into whole numbers would be cut to it
    if cast is None or (dtype.kind != "f" and not (cast == array.ravel()).all()):
        raise AnswerError("values of another datatype")
    return cast


def _of_bytes(data: bytes, datatype: str) -> Array:
    if datatype == "BYTES":
        return _objects(list(_strings(data)))
    if datatype == "BF16":
        # the upper half of a float32
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    if datatype not in DTYPES:
        raise AnswerError("an unknown datatype")
    return np.frombuffer(data, DTYPES[datatype])


def _strings(data: bytes) -> Iterator[str]:
    """Strings, each after its length in four bytes."""
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        at += 4 + size
        if at > len(data):
            raise AnswerError("binary data of another length")
        yield data[at - size : at].decode("utf-8", "replace")


def _gates(document: dict[str, Any]) -> dict[str, Array]:
    """The mean of each gate: what a summary is about."""
    try:
        names = _objects([str(gate["name"]) for gate in document["gates"]])
        return {"gate": names, "mean of gates": np.array([gate["mean"] for gate in document["gates"]], float)}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise AnswerError("no means of gates") from error


def _predictions(document: dict[str, Any]) -> Answer:
    """Rows of the first protocol: the numbers of each in order, and its texts."""
    rows = document.get("predictions")
    if not isinstance(rows, list) or not rows:
        raise AnswerError("no predictions")
    leaves = [_leaves(row) for row in rows]
    figures = [[each for each in row if isinstance(each, int | float)] for row in leaves]
    texts = [each for row in leaves for each in row if not isinstance(each, int | float)]
    if len(set(map(len, figures))) > 1:
        raise AnswerError("predictions of several shapes")
    try:
        arrays = {"prediction": np.array(figures, float).reshape(len(rows), -1)}
    except OverflowError as error:
        raise AnswerError("values of another datatype") from error
    if texts:
        arrays["label"] = _objects(texts)
    return Answer(_text(document.get("model")), _text(document.get("version")), arrays, {})


def _leaves(value: Any) -> list[Any]:
    """All that lies in lists and objects, in order; objects by their keys, which are told as well."""
    found, waiting = [], [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key in sorted(value, reverse=True):
                waiting += [value[key], key]
        elif isinstance(value, list):
            waiting += reversed(value)
        else:
            found.append(value)
    return found


def _objects(values: list[Any]) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
