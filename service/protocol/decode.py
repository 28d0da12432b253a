"""The body of an infer request, JSON or binary, to a request that fits the model."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from service.artifact.datatypes import DTYPES
from service.artifact.limits import Limits
from service.errors import RequestError
from service.inference_types import Inference, Wanted
from service.protocol.binary_tensor import read_binary
from service.protocol.inputs import Inputs
from service.protocol.json_document import (
    expect_array,
    expect_flag,
    expect_object,
    expect_short,
    expect_text,
    expect_whole,
    keys,
    parse,
    plain,
    scalars,
    shown,
    written,
)
from service.protocol.shape import solved

if TYPE_CHECKING:
    from service.registry.model import Signature

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


def decode(
    body: bytes | memoryview,
    header: int | None,
    signature: Signature,
    limits: Limits,
    extra: frozenset[str] = frozenset(),
) -> Inference:
    """The request whose JSON is the first `header` bytes of the body: all of them for None, for 0 none.

    What the body has under the keys in `extra` is kept among the parameters; other unknown keys mean nothing.
    """
    if header == 0:
        return _raw(body, signature, limits)
    if header is not None and header > len(body):
        raise RequestError(f"{LENGTH}: expected at most the {len(body)} bytes of the body, got {header}")
    text = bytes(body[:header])
    expect_short(text, limits.json)
    request = parse(text)
    present = keys(request, "body")
    parameters: dict[str, Any] = (
        scalars(request["parameters"], "parameters") if "parameters" in present else {}
    )
    for name, value in parameters.items():
        if name in RESERVED:
            RESERVED[name](value, f"parameters.{name}")
    inputs = Inputs(body, len(text), signature, limits)
    inputs.read(expect_array(request["inputs"] if "inputs" in present else None, "inputs"))
    inputs.expect_even(text, 1 if "outputs" in present else 0, limits.depth)
    binary = parameters.get("binary_data_output") is True
    outputs = _outputs(request["outputs"], signature, binary=binary) if "outputs" in present else ()
    for key in extra:
        if key in present:
            parameters[key] = _short(request[key], key)
    return Inference(
        feeds=inputs.feeds,
        rows=inputs.rows,
        outputs=outputs or _public(tuple(signature.outputs), binary=binary),
        id=expect_text(request["id"], "id") if "id" in present else None,
        # clients send 0 for none
        timeout=parameters.get("timeout") or None,
        parameters=parameters,
    )


def _short(value: Any, where: str) -> Any:
    """What an extra key holds, which is never much."""
    size = len(written(value))
    if size > MOST_EXTRA:
        raise RequestError(f"{where}: expected at most {MOST_EXTRA} bytes, got {size}")
    return plain(value)


def _outputs(value: Any, signature: Signature, *, binary: bool) -> tuple[Wanted, ...]:
    """The outputs asked for, in that order, hidden ones too."""
    wanted: dict[str, Wanted] = {}
    for index, entry in enumerate(expect_array(value, "outputs")):
        where = f"outputs[{index}]"
        node = expect_object(entry, where)
        present = keys(node, where)
        name = expect_text(node["name"] if "name" in present else None, f"{where}.name")
        if name not in signature.outputs and name not in signature.hidden:
            known = ", ".join(map(repr, signature.outputs))
            raise RequestError(f"{where}.name: expected one of {known} or a gate, got {shown(name)}")
        if name in wanted:
            raise RequestError(f"{where}.name: expected each output once, got {shown(name)} twice")
        given = node["parameters"] if "parameters" in present else None
        wanted[name] = (
            Wanted(name, binary)
            if given is None
            else _form(name, given, f"{where}.parameters", binary=binary)
        )
    return tuple(wanted.values())


def _form(name: str, value: Any, where: str, *, binary: bool) -> Wanted:
    """In which form an output is asked for."""
    parameters = scalars(value, where)
    if "shared_memory_region" in parameters:
        raise RequestError(f"{where}: shared memory is not spoken here; expected JSON or binary data")
    if "binary_data" in parameters:
        binary = expect_flag(parameters["binary_data"], f"{where}.binary_data")
    classes = expect_whole(parameters.get("classification", 0), f"{where}.classification")
    return Wanted(name, binary, classes)


@lru_cache(maxsize=1024)
def _public(names: Iterable[str], *, binary: bool) -> tuple[Wanted, ...]:
    """All public outputs of a model, which most requests ask for by naming none."""
    return tuple(Wanted(name, binary) for name in names)


def _raw(body: bytes | memoryview, signature: Signature, limits: Limits) -> Inference:
    """A request without JSON: the bytes of a model's one input."""
    if len(signature.inputs) != 1:
        raise RequestError(
            f"{LENGTH}: 0 needs a model of one input, and this one has {len(signature.inputs)}; expected JSON"
        )
    (tensor,) = signature.inputs.values()
    dtype = DTYPES[tensor.dtype]
    # bytes beyond whole values are found to be too many
    shape = solved(tensor.dims, len(body) // dtype.itemsize, "body")
    rows = 1 if signature.batch is None else shape[0]
    if rows > limits.rows:
        raise RequestError(f"body: expected at most {limits.rows} rows, got {rows}")
    array = read_binary(body, 0, len(body), shape, dtype, "body")
    return Inference({tensor.name: array}, rows, _public(tuple(signature.outputs), binary=True))
