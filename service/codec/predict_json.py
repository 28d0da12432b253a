"""The format of /v1 predict: decodes `{"instances": […]}`, and encodes `{"predictions": […]}`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from simdjson import Array as JsonArray
from simdjson import Object as JsonObject
from simdjson import Parser

from turnpike.common.datatypes import WIRE_DTYPES
from turnpike.service.artifact.limits import RequestLimits
from turnpike.service.artifact.manifest import Interval
from turnpike.service.artifact.signature import Signature
from turnpike.service.classification import probabilities
from turnpike.service.codec.cells import read_json_cells
from turnpike.service.codec.feature_names import expect_features
from turnpike.service.codec.json_document import (
    MISSING,
    expect_array,
    expect_object,
    expect_shallow,
    expect_short,
    keys,
    kind,
    parse,
    quoted,
    to_json,
    to_python,
)
from turnpike.service.codec.tables.cell_warnings import cell_warnings
from turnpike.service.codec.tables.intervals import with_bounds
from turnpike.service.codec.tensor_faults import first_fault
from turnpike.service.codec.tensors import arrays_in, expect_even, expect_fit, infer_shape, read_json
from turnpike.service.codec.text_input import text_ids, texts_in_json
from turnpike.service.errors import NotFiniteError, RequestError
from turnpike.service.inference_types import (
    Array,
    FeedLayout,
    InferAnswer,
    InferenceRequest,
    RequestedOutput,
    RequestForm,
)


def decode_instances(
    body: bytes | memoryview, signature: Signature, limits: RequestLimits
) -> InferenceRequest:
    """Decode a body whose instances are rows of the model's one input, or objects `{"input": row}`.

    A row is nested like the input's shape, or flat. If the input has features, a row may also be an object
    with a value for each of them; if features are more than plain numbers, rows have cells. If the input
    takes texts, a row may be a string. A model without a batch axis takes one instance.
    """
    text = bytes(body)
    expect_short(text, limits.max_json_bytes)
    request = parse(text)
    expect_shallow(text, limits.max_depth)
    present = keys(request, "body")
    instances = expect_array(request["instances"] if "instances" in present else MISSING, "instances")
    rows = len(instances)
    if rows > limits.max_rows:
        raise RequestError(f"instances: expected at most {limits.max_rows} rows (--max-rows), got {rows}")
    if signature.batch is None and rows != 1:
        raise RequestError(f"instances: expected 1, since the model has no batch axis, got {rows}")
    if signature.columns and rows:
        return _decode_cells(instances, signature)
    feeds: dict[str, Array] = {}
    sizes: dict[str, int] = {}
    brackets = text.count(b"[")
    encoder, has_texts = signature.text, False
    for name, values in _columns(instances, signature).items():
        where, tensor = f"instances ({name})", signature.inputs[name]
        if encoder is not None and encoder.input == name and rows and isinstance(values[0], str):
            feeds[name] = text_ids(texts_in_json(values, rows, "instances"), encoder, limits, where)
            expect_fit(feeds[name].shape, tensor, sizes, where)
            has_texts = True
            continue
        dims = tensor.dims if signature.batch is None else tensor.dims[1:]
        try:
            array = _read_rows(values, dims, tensor.dtype, where, brackets)
            feeds[name] = array[0] if signature.batch is None else array
            expect_fit(feeds[name].shape, tensor, sizes, where)
        except RequestError as error:
            member = "" if values is instances else f".{name}"
            features = signature.features if _is_named_row(instances, signature) else ()
            raise (_row_fault(values, dims, WIRE_DTYPES[tensor.dtype], member, features) or error) from None
    outputs = tuple(map(RequestedOutput, signature.outputs))
    form = RequestForm(rows, outputs, FeedLayout.of(feeds), has_texts=has_texts)
    return InferenceRequest(form, feeds)


def _decode_cells(instances: JsonArray, signature: Signature) -> InferenceRequest:
    """The request for rows of cells."""
    (tensor,) = signature.inputs.values()
    numbers, cells = read_json_cells(instances, signature)
    array = numbers.astype(WIRE_DTYPES[tensor.dtype])
    if signature.batch is None:
        array = array[0]
    expect_fit(array.shape, tensor, {}, f"instances ({tensor.name})")
    feeds = {tensor.name: array}
    outputs = tuple(map(RequestedOutput, signature.outputs))
    form = RequestForm(len(instances), outputs, FeedLayout.of(feeds))
    return InferenceRequest(form, feeds, warnings=cell_warnings(numbers, cells, signature))


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
    if _is_named_row(instances, signature):
        return _named_rows(instances, signature)
    rows: dict[str, list[bytes]] = {name: [] for name in signature.inputs}
    for index, instance in enumerate(instances):
        where = f"instances[{index}]"
        node = expect_object(instance, where)
        names = set(keys(node, where))
        if names != rows.keys():
            different = min(names ^ rows.keys())
            raise RequestError(
                f"{where}: expected an object with {', '.join(rows)}, "
                f"{'and it lacks' if different in rows else 'got'} {quoted(different)}"
            )
        for name, values in rows.items():
            values.append(to_json(node[name]))
    # put the values of each input together and parse them once more, as one array
    return {
        name: expect_array(Parser().parse(b"[" + b",".join(values) + b"]"), "instances")
        for name, values in rows.items()
    }


def _is_named_row(instances: JsonArray, signature: Signature) -> bool:
    """Whether the first instance is an object by features, and not by the model's inputs."""
    first: Any = instances[0] if signature.features and len(instances) else None
    if type(first) is not JsonObject:
        return False
    (name,) = signature.inputs
    return list(first) != [name] or type(first[name]) is not JsonArray


def _named_rows(instances: JsonArray, signature: Signature) -> dict[str, JsonArray]:
    """Rows that name their values, with the values in the order of the features."""
    features = signature.features
    (tensor,) = signature.inputs.values()
    types = {bool} if tensor.dtype == "bool" else {int, float}
    names = set(features)
    rows = []
    for index, (node, row) in enumerate(zip(instances, to_python(instances), strict=True)):
        where = f"instances[{index}]"
        # a dict has the last of several values of one key
        if type(row) is not dict or row.keys() != names or len(node) != len(row):  # type: ignore[arg-type]
            expect_features(list(expect_object(node, where)), features, where)
        values = [row[name] for name in features]
        if not types.issuperset(map(type, values)):
            column = next(column for column, value in enumerate(values) if type(value) not in types)
            raise RequestError(
                f"{where}, feature {quoted(features[column])}: expected "
                f"{'true or false' if bool in types else 'a number'}, got {kind(values[column])}"
            )
        rows.append(values)
    # parsed as one array, and then read and checked like rows without names
    return {tensor.name: expect_array(Parser().parse(orjson.dumps(rows)), "instances")}


def _read_rows(
    values: JsonArray, dims: tuple[int | str, ...], dtype: str, where: str, brackets: int
) -> Array:
    """Read the rows of one input.

    Args:
        values: The rows.
        dims: The dimensions of a row; rows may also be flat.
        dtype: The input's dtype.
        where: Names the value in error messages.
        brackets: The number of opening brackets in the whole body.
    """
    if not len(values):
        return np.empty((0, *(dim if isinstance(dim, int) else 0 for dim in dims)), dtype)
    json_shape = _shape_of_first(values)
    if len(json_shape) == 2 and len(dims) > 1:
        shape = (len(values), *infer_shape(dims, json_shape[1], where))
    elif len(json_shape) == 1 + len(dims):
        shape = json_shape
    else:
        raise RequestError(
            f"{where}: expected rows nested as {_nesting(dims)}, or flat, got {len(json_shape) - 1} levels"
        )
    array = read_json(values, json_shape, WIRE_DTYPES[dtype], where)
    # if the whole body has no more brackets than these rows should have, no array hides among the numbers
    if brackets != arrays_in(values, json_shape):
        expect_even(values, json_shape, where)
    return array.reshape(shape)


def _row_fault(
    values: JsonArray,
    dims: tuple[int | str, ...],
    dtype: np.dtype[Any],
    member: str,
    features: Sequence[str] = (),
) -> RequestError | None:
    """The error for the first row that does not fit.

    `member` names the input in a row, and `features` its values, if the row names them.
    """
    levels = _shape_of_first(values)
    if len(levels) == 1 + len(dims):
        # a dimension that varies has the size that it has in the first row
        rest = [dim if isinstance(dim, int) else size for dim, size in zip(dims, levels[1:], strict=True)]
    elif len(levels) == 2:
        fixed = all(isinstance(dim, int) for dim in dims)
        rest = [math.prod(dim for dim in dims if isinstance(dim, int)) if fixed else levels[1]]
    elif len(levels) == 1:
        got = kind(values[0])
        return RequestError(
            f"instances[0]{member}: expected an array nested as {_nesting(dims)}, or flat, got {got}"
        )
    else:
        return None
    return first_fault(values, (len(values), *rest), dtype, "instances", member, features)


def _nesting(dims: tuple[int | str, ...]) -> str:
    return f"[{', '.join(map(str, dims))}]"


def _shape_of_first(value: Any) -> tuple[int, ...]:
    """The shape of nested arrays, by the first element at each level."""
    shape: list[int] = []
    while type(value) is JsonArray:
        shape.append(len(value))
        value = value[0] if len(value) else None
    return tuple(shape)


def encode_predictions(
    answer: InferAnswer,
    distribution: bool | None,
    more: Mapping[str, Any] | None = None,
    interval: Interval | None = None,
) -> bytes:
    """Encode a prediction for each row.

    If the first output has one value for each label, a prediction has the label and all probabilities;
    otherwise it has the values. With several outputs, it is an object with a value for each output's name.

    `distribution` is True if the first output has probabilities, False for logits, None for neither. `more`
    are further members of the answer. With an `interval`, the number of the first output has bounds.
    """
    name, version, form, arrays, labels = answer
    columns = {}
    for index, (output, array) in enumerate(zip(form.outputs, arrays, strict=True)):
        if array.shape[:1] != (form.rows,):
            raise RequestError(
                f"{output.name}: expected an output of {form.rows} rows, got shape {list(array.shape)}; "
                f"ask for it by /v2/models/{name}/infer"
            )
        if not np.isfinite(array).all():
            raise NotFiniteError(
                f"{output.name}: NaN or Inf is among the values, which JSON cannot represent; "
                f"request binary data by /v2/models/{name}/infer"
            )
        has_labels = index == 0 and distribution is not None and array.shape[1:] == (len(labels),) and labels
        columns[output.name] = (
            _labelled(array, labels, distribution=bool(distribution))
            if has_labels
            else with_bounds(array, interval)
            if index == 0 and interval is not None and array.size == form.rows
            else list(np.ascontiguousarray(array))
        )
    lists = list(columns.values())
    predictions = (
        lists[0]
        if len(lists) == 1
        else [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]
    )
    return orjson.dumps(
        {"predictions": predictions, "model": name, "version": str(version), **(more or {})},
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def _labelled(array: Array, labels: Sequence[str], *, distribution: bool) -> list[dict[str, Any]]:
    """For each row: the most probable label, its probability, and the probabilities of all labels."""
    return [
        {
            "label": labels[best],
            "probability": row[best],
            "probabilities": dict(zip(labels, row, strict=True)),
        }
        for best, row in zip(
            array.argmax(axis=1).tolist(),
            probabilities(array, distribution=distribution).tolist(),
            strict=True,
        )
    ]
