"""Rows as a person writes them, `{"instances": […]}`, to a request that fits the model; and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from simdjson import Array as JsonArray
from simdjson import Object as JsonObject
from simdjson import Parser

from service.artifact.datatypes import WIRE_DTYPES
from service.artifact.limits import RequestLimits
from service.errors import NotFiniteError, RequestError
from service.inference_types import Array, InferenceRequest, InferenceResult, RequestedOutput
from service.protocol.classification import probabilities
from service.protocol.json_document import (
    expect_array,
    expect_object,
    expect_shallow,
    expect_short,
    keys,
    kind,
    parse,
    quoted,
    to_json,
)
from service.protocol.tensors import arrays_in, expect_even, expect_fit, read_json, solved

if TYPE_CHECKING:
    from service.artifact.runtime import Signature


def decode_instances(
    body: bytes | memoryview, signature: Signature, limits: RequestLimits
) -> InferenceRequest:
    """The request of a body whose instances are rows of a model's one input, or objects of `{"input": row}`.

    A row is nested as the model takes it, or flat. A model without a batch axis takes one instance, whole.
    """
    text = bytes(body)
    expect_short(text, limits.max_json_bytes)
    request = parse(text)
    expect_shallow(text, limits.max_depth)
    present = keys(request, "body")
    instances = expect_array(request["instances"] if "instances" in present else None, "instances")
    rows = len(instances)
    if rows > limits.max_rows:
        raise RequestError(f"instances: expected at most {limits.max_rows} rows, got {rows}")
    if signature.batch is None and rows != 1:
        raise RequestError(f"instances: expected 1, since the model knows no rows, got {rows}")
    feeds: dict[str, Array] = {}
    sizes: dict[str, int] = {}
    brackets = text.count(b"[")
    for name, values in _columns(instances, signature).items():
        where, tensor = f"instances ({name})", signature.inputs[name]
        if signature.batch is None:
            feeds[name] = _rows(values, tensor.dims, tensor.dtype, where, brackets)[0]
        else:
            feeds[name] = _rows(values, tensor.dims[1:], tensor.dtype, where, brackets)
        expect_fit(feeds[name].shape, tensor, sizes, where)
    return InferenceRequest(feeds, rows, tuple(map(RequestedOutput, signature.outputs)))


def _columns(instances: JsonArray, signature: Signature) -> dict[str, JsonArray]:
    """The rows of each input."""
    if not len(instances):
        return dict.fromkeys(signature.inputs, instances)
    first: Any = instances[0]
    if type(first) is not JsonObject:
        if len(signature.inputs) > 1:
            raise RequestError(
                f"instances[0]: expected an object with {', '.join(signature.inputs)}, got {kind(first)}"
            )
        return dict.fromkeys(signature.inputs, instances)
    rows: dict[str, list[bytes]] = {name: [] for name in signature.inputs}
    for index, instance in enumerate(instances):
        where = f"instances[{index}]"
        node = expect_object(instance, where)
        given = set(keys(node, where))
        if given != rows.keys():
            odd = min(given ^ rows.keys())
            raise RequestError(
                f"{where}: expected an object with {', '.join(rows)}, "
                f"{'and it lacks' if odd in rows else 'got'} {quoted(odd)}"
            )
        for name, values in rows.items():
            values.append(to_json(node[name]))
    # what lies scattered over the rows is read at once, as if it had come so
    return {
        name: expect_array(Parser().parse(b"[" + b",".join(values) + b"]"), "instances")
        for name, values in rows.items()
    }


def _rows(values: JsonArray, dims: tuple[int | str, ...], dtype: str, where: str, brackets: int) -> Array:
    """The array of rows, each nested as `dims` are, or flat; `brackets` are those of the whole text."""
    if not len(values):
        return np.empty((0, *(dim if isinstance(dim, int) else 0 for dim in dims)), dtype)
    to_json = _outline(values)
    if len(to_json) == 2 and len(dims) > 1:
        shape = (len(values), *solved(dims, to_json[1], where))
    elif len(to_json) == 1 + len(dims):
        shape = to_json
    else:
        raise RequestError(
            f"{where}: expected rows nested as [{', '.join(map(str, dims))}], or flat, "
            f"got {len(to_json) - 1} levels"
        )
    array = read_json(values, to_json, WIRE_DTYPES[dtype], where)
    # where the text has no more than the arrays of even rows, strings and all, none hides among the numbers
    if brackets != arrays_in(values, to_json):
        expect_even(values, to_json, where)
    return array.reshape(shape)


def _outline(value: Any) -> tuple[int, ...]:
    """The shape of nested arrays, going by the first of each."""
    shape: list[int] = []
    while type(value) is JsonArray:
        shape.append(len(value))
        value = value[0] if len(value) else None
    return tuple(shape)


def encode_predictions(
    name: str,
    version: int,
    inference: InferenceRequest,
    answer: InferenceResult,
    labels: Sequence[str],
    distribution: bool | None,
) -> bytes:
    """A prediction for each row: label and probabilities where the first output has a value for each label,
    else the values; those of several outputs by name.

    `distribution` is True where that first output holds probabilities, False for logits, None for neither.
    """
    columns = {}
    for index, (wanted, array) in enumerate(zip(inference.outputs, answer.arrays, strict=True)):
        if array.shape[:1] != (inference.rows,):
            raise RequestError(
                f"{wanted.name}: expected an output of {inference.rows} rows, got shape {list(array.shape)}; "
                f"ask for it by /v2/models/{name}/infer"
            )
        if not np.isfinite(array).all():
            raise NotFiniteError(
                f"{wanted.name}: NaN or Inf is among the values, which JSON cannot say; "
                f"ask for the binary form by /v2/models/{name}/infer"
            )
        named = index == 0 and distribution is not None and array.shape[1:] == (len(labels),) and labels
        columns[wanted.name] = (
            _labelled(array, labels, distribution=bool(distribution))
            if named
            else list(np.ascontiguousarray(array))
        )
    lists = list(columns.values())
    predictions = (
        lists[0]
        if len(lists) == 1
        else [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
    )
    return orjson.dumps(
        {"predictions": predictions, "model": name, "version": str(version)},
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def _labelled(array: Array, labels: Sequence[str], *, distribution: bool) -> list[dict[str, Any]]:
    """Label, its probability, and all of them, for each row."""
    return [
        {
            "label": labels[place],
            "probability": row[place],
            "probabilities": dict(zip(labels, row, strict=True)),
        }
        for place, row in zip(
            array.argmax(axis=1).tolist(),
            probabilities(array, distribution=distribution).tolist(),
            strict=True,
        )
    ]
