"""Encodes the response to an infer request: JSON, with binary tensors after it if requested."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import orjson

from service.artifact.datatypes import BYTES, DATATYPE_BY_DTYPE
from service.errors import NotFiniteError, RequestError
from service.inference_types import Array, InferenceRequest, InferenceResult
from service.protocol.classification import classification

HALF = np.dtype(np.float16).char

Entry = dict[str, Any]
Buffer = bytes | memoryview


def encode_infer(
    name: str, version: int, request: InferenceRequest, result: InferenceResult, labels: Sequence[str]
) -> tuple[bytes, int | None]:
    """Encode the response; see `assemble` for what is returned.

    Args:
        name: The model's name.
        version: The model's version.
        request: Names the outputs and their forms.
        result: Has their arrays.
        labels: The model's class labels, for outputs requested as classes.
    """
    if request.id is None and len(request.outputs) == len(result.arrays) == 1:
        (output,), (array,) = request.outputs, result.arrays
        if not (output.binary or output.classes or array.dtype.char == HALF):
            return _encode_one(name, version, output.name, array), None
    entries: list[Entry] = []
    tail: list[Buffer] = []
    for output, array in zip(request.outputs, result.arrays, strict=True):
        if output.classes:
            entries.append(_class_entry(output.name, array, request.rows, output.classes, labels))
            if output.binary:
                tail.append(_pop_strings(entries[-1]))
        else:
            entries.append(_tensor_entry(output.name, array, tail, binary=output.binary))
    head: Entry = {"model_name": name, "model_version": str(version), "outputs": entries}
    if request.id is not None:
        head["id"] = request.id
    return assemble(head, tail)


def _encode_one(name: str, version: int, output: str, array: Array) -> bytes:
    """The response of most requests: one tensor in JSON. Takes 1.4 instead of 2.5 µs for ten numbers."""
    numbers = orjson.dumps(array.ravel(), option=orjson.OPT_SERIALIZE_NUMPY)
    # orjson writes NaN and Inf as null
    if b"null" in numbers:
        _expect_finite({"outputs": [{"name": output, "data": array}]})
    return b"%b%b}]}" % (_before_numbers(name, version, output, array.dtype, array.shape), numbers)


@lru_cache(maxsize=1024)
def _before_numbers(
    name: str, version: int, output: str, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> bytes:
    """The JSON of a response with one tensor, up to its numbers."""
    entry = {"name": output, "datatype": DATATYPE_BY_DTYPE[dtype], "shape": shape, "data": []}
    text = orjson.dumps({"model_name": name, "model_version": str(version), "outputs": [entry]})
    return text.removesuffix(b"[]}]}")


def encode_tensors(pairs: Iterable[tuple[str, Array]], *, binary: bool) -> tuple[list[Entry], list[Buffer]]:
    """Encode tensors as JSON entries, and the bytes that follow the JSON; both are meant for `assemble`."""
    tail: list[Buffer] = []
    return [_tensor_entry(name, array, tail, binary=binary) for name, array in pairs], tail


def assemble(head: Entry, tail: Sequence[Buffer]) -> tuple[bytes, int | None]:
    """Build a body from its JSON object and the bytes that follow it.

    Returns the body, and how many bytes of it are JSON; None if all are. Raises NotFiniteError if a tensor in
    the JSON has NaN or Inf.
    """
    text = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    # orjson writes NaN and Inf as null
    if b"null" in text:
        _expect_finite(head)
    return (b"".join((text, *tail)), len(text)) if tail else (text, None)


def _tensor_entry(name: str, array: Array, tail: list[Buffer], *, binary: bool) -> Entry:
    """The JSON entry of a tensor; the bytes of a binary tensor go to the tail."""
    entry: Entry = {"name": name, "datatype": DATATYPE_BY_DTYPE[array.dtype], "shape": array.shape}
    if binary:
        entry["parameters"] = {"binary_data_size": array.nbytes}
        tail.append(np.ascontiguousarray(array).data)
    elif array.dtype.char == HALF:
        raise RequestError(
            f"outputs: {name!r} is FP16, which cannot be written in JSON; expected a request for binary data"
        )
    else:
        entry["data"] = array.ravel()
    return entry


def _class_entry(name: str, array: Array, rows: int, count: int, labels: Sequence[str]) -> Entry:
    """The JSON entry of an output requested as classes."""
    if not np.isfinite(array).all():
        raise NotFiniteError(
            f"outputs: {name!r} has NaN or Inf among its values, which no class is the best of"
        )
    shape, data = classification(array, rows, count, labels)
    return {"name": name, "datatype": BYTES, "shape": shape, "data": data}


def _pop_strings(entry: Entry) -> bytes:
    """Take the strings out of an entry and return them as bytes, each after its length."""
    strings = [text.encode() for text in entry.pop("data")]
    data = b"".join(len(string).to_bytes(4, "little") + string for string in strings)
    entry["parameters"] = {"binary_data_size": len(data)}
    return data


def _expect_finite(head: Entry) -> None:
    """Raise NotFiniteError if a tensor of the JSON has NaN or Inf."""
    for key, entries in head.items():
        for entry in entries if isinstance(entries, list) else ():
            data = entry.get("data") if isinstance(entry, dict) else None
            if isinstance(data, np.ndarray) and not np.isfinite(data).all():
                raise NotFiniteError(
                    f"{key}: {entry['name']!r} has NaN or Inf among its values, which JSON cannot represent; "
                    "request binary data"
                )
