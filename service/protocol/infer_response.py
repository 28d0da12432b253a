"""The answer of an infer request: as JSON, or as JSON with the bytes of tensors after it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    name: str, version: int, inference: InferenceRequest, answer: InferenceResult, labels: Sequence[str]
) -> tuple[bytes, int | None]:
    """The body of an answer, and how many bytes of it are its JSON; None where all are."""
    entries: list[Entry] = []
    tail: list[Buffer] = []
    for wanted, array in zip(inference.outputs, answer.arrays, strict=True):
        if wanted.classes:
            entries.append(_classes(wanted.name, array, inference.rows, wanted.classes, labels))
            if wanted.binary:
                tail.append(_moved(entries[-1]))
        else:
            entries.append(_tensor(wanted.name, array, tail, binary=wanted.binary))
    head: Entry = {"model_name": name, "model_version": str(version), "outputs": entries}
    if inference.id is not None:
        head["id"] = inference.id
    return assemble(head, tail)


def encode_tensors(pairs: Iterable[tuple[str, Array]], *, binary: bool) -> tuple[list[Entry], list[Buffer]]:
    """Tensors as entries of an answer's lists, and the bytes that follow its JSON; all for `assemble`."""
    tail: list[Buffer] = []
    return [_tensor(name, array, tail, binary=binary) for name, array in pairs], tail


def assemble(head: Entry, tail: Sequence[Buffer]) -> tuple[bytes, int | None]:
    """The body of an answer with lists of tensors, and how many bytes are its JSON; None where all are."""
    text = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    # which is what becomes of NaN and Inf
    if b"null" in text:
        _expect_finite(head)
    return (b"".join((text, *tail)), len(text)) if tail else (text, None)


def _tensor(name: str, array: Array, tail: list[Buffer], *, binary: bool) -> Entry:
    """The entry of one tensor; the bytes of a binary one go to the tail."""
    entry: Entry = {"name": name, "datatype": DATATYPE_BY_DTYPE[array.dtype], "shape": array.shape}
    if binary:
        entry["parameters"] = {"binary_data_size": array.nbytes}
        tail.append(np.ascontiguousarray(array).data)
    elif array.dtype.char == HALF:
        raise RequestError(
            f"outputs: {name!r} is FP16, which has no form in JSON; expected a wish for the binary form"
        )
    else:
        entry["data"] = array.ravel()
    return entry


def _classes(name: str, array: Array, rows: int, count: int, labels: Sequence[str]) -> Entry:
    """The entry of an output of which the best classes are asked for."""
    if not np.isfinite(array).all():
        raise NotFiniteError(
            f"outputs: {name!r} has NaN or Inf among its values, which no class is the best of"
        )
    shape, data = classification(array, rows, count, labels)
    return {"name": name, "datatype": BYTES, "shape": shape, "data": data}


def _moved(entry: Entry) -> bytes:
    """The strings of an entry as bytes, each after its length; the entry keeps how many bytes they are."""
    strings = [text.encode() for text in entry.pop("data")]
    data = b"".join(len(string).to_bytes(4, "little") + string for string in strings)
    entry["parameters"] = {"binary_data_size": len(data)}
    return data


def _expect_finite(head: Entry) -> None:
    """Stop with NotFinite where a tensor cannot be told in JSON."""
    for key, entries in head.items():
        for entry in entries if isinstance(entries, list) else ():
            data = entry.get("data") if isinstance(entry, dict) else None
            if isinstance(data, np.ndarray) and not np.isfinite(data).all():
                raise NotFiniteError(
                    f"{key}: {entry['name']!r} has NaN or Inf among its values, which JSON cannot say; "
                    "ask for the binary form"
                )
