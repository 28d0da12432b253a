"""A tensor written in JSON: numbers, flat or nested as its shape is, to an array of its dtype."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from simdjson import Array as JsonArray

from service.artifact.datatypes import DATATYPES
from service.errors import RequestError
from service.inference_types import Array
from service.protocol.json_document import expect_array, expect_whole, to_json, to_python

if TYPE_CHECKING:
    from service.artifact.runtime import Tensor

# how the parser hands over many numbers at once
WIDE = {"f": ("d", np.dtype("f8")), "i": ("i", np.dtype("i8")), "u": ("u", np.dtype("u8"))}


def read_json(value: object, shape: tuple[int, ...], dtype: np.dtype[np.generic], where: str) -> Array:
    """The array of a JSON value that is flat or nested as `shape` is.

    Arrays in place of single numbers may yet hide in it: see `arrays_in`.
    """
    data = expect_array(value, where)
    flat = booleans(data, where) if dtype.kind == "b" else numbers(data, dtype, where)
    if flat.size != math.prod(shape):
        raise RequestError(
            f"{where}: expected {math.prod(shape)} values for shape {list(shape)}, got {flat.size}"
        )
    if is_nested(data) and not agrees(data, shape):
        raise uneven(shape, where)
    return flat.reshape(shape)


def arrays_in(value: JsonArray, shape: tuple[int, ...]) -> int:
    """How many JSON arrays such a value is made of, itself too, when each number is a number."""
    if not is_nested(value):
        return 1
    arrays, level = 0, 1
    for size in shape:
        arrays += level
        level *= size
    return arrays


def expect_even(value: JsonArray, shape: tuple[int, ...], where: str) -> None:
    """Stop with a RequestError unless a value that was read is made of just so many arrays."""
    if to_json(value).count(b"[") != arrays_in(value, shape):
        raise uneven(shape, where)


def uneven(shape: tuple[int, ...], where: str) -> RequestError:
    return RequestError(f"{where}: expected values in one flat array, or nested as shape {list(shape)} is")


def is_nested(data: JsonArray) -> bool:
    return len(data) > 0 and type(data[0]) is JsonArray


def agrees(data: JsonArray, shape: tuple[int, ...]) -> bool:
    """Whether arrays are nested as the shape is, as far as the innermost arrays' lengths."""
    if len(shape) < 2 or len(data) != shape[0]:
        return False
    try:
        if len(shape) == 2:
            return set(map(len, data)) == {shape[1]}  # type: ignore[arg-type]
        return all(agrees(block, shape[1:]) for block in data)  # type: ignore[arg-type]
    except TypeError:  # a number among arrays
        return False


def numbers(data: JsonArray, dtype: np.dtype[np.generic], where: str) -> Array:
    """All numbers in an array and the arrays in it, in order."""
    letter, wide = WIDE[dtype.kind]
    try:
        buffer = data.as_buffer(of_type=letter)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise RequestError(f"{where}: expected {span(dtype)}, got something else among them") from error
    values = np.frombuffer(buffer, wide)
    if dtype == wide:
        return values
    if dtype.kind == "f":
        try:
            with np.errstate(over="raise"):
                return values.astype(dtype)
        except FloatingPointError as error:
            raise RequestError(f"{where}: expected {span(dtype)}, got one beyond that") from error
    narrow = values.astype(dtype)
    if not (narrow == values).all():
        raise RequestError(f"{where}: expected {span(dtype)}, got one beyond that")
    return narrow


def booleans(data: JsonArray, where: str) -> Array:
    """All of true and false in an array and the arrays in it, in order."""
    try:
        values = np.asarray(to_python(data))
    except ValueError as error:  # uneven, or deeper than any array of ours
        raise RequestError(f"{where}: expected true or false, evenly nested, got uneven arrays") from error
    if values.dtype != np.bool_ and values.size:
        raise RequestError(f"{where}: expected true or false (BOOL), got something else among them")
    return values.astype(np.bool_).ravel()


def span(dtype: np.dtype[Any]) -> str:
    """What numbers a dtype can hold."""
    name = DATATYPES[dtype.name]
    if dtype.kind == "f":
        return f"numbers of at most {float(np.finfo(dtype).max):.8g} in size ({name})"
    info = np.iinfo(dtype)
    return f"whole numbers from {info.min} to {info.max} ({name})"


def read_binary(
    body: bytes | memoryview,
    start: int,
    size: int,
    shape: tuple[int, ...],
    dtype: np.dtype[np.generic],
    where: str,
) -> Array:
    """The array of `size` bytes of the body from `start` on; it may be a view of them."""
    expected = math.prod(shape) * dtype.itemsize
    if size != expected:
        raise RequestError(
            f"{where}: expected {expected} bytes for shape {list(shape)} {DATATYPES[dtype.name]}, got {size}"
        )
    if start + size > len(body):
        raise RequestError(
            f"{where}: expected {size} bytes after the JSON, got {len(body) - start} that are left"
        )
    if not size:
        return np.empty(shape, dtype)
    array = np.frombuffer(body, dtype, math.prod(shape), start).reshape(shape)
    if dtype.kind == "b" and array.view(np.uint8).max() > 1:
        raise RequestError(f"{where}: expected bytes of 0 or 1 (BOOL), got another")
    # kernels may count on numbers that lie where numbers of their size do
    return array if array.flags.aligned else array.copy()


# the widest numbers have 8 bytes
MAX_VALUES = sys.maxsize // 8


def read_shape(value: object, tensor: Tensor, sizes: dict[str, int], where: str) -> tuple[int, ...]:
    """The shape in a request that fits the input, and what inputs before it said of named dimensions."""
    given = expect_array(value, where)
    if len(given) != len(tensor.dims):
        raise RequestError(
            f"{where}: expected {len(tensor.dims)} dimensions {dims_of(tensor)}, got {len(given)}"
        )
    shape: tuple[Any, ...] = tuple(given)
    for size in shape:
        if type(size) is not int or size < 0:
            expect_whole(size, where)
    expect_fit(shape, tensor, sizes, where)
    return shape


def expect_fit(shape: tuple[int, ...], tensor: Tensor, sizes: dict[str, int], where: str) -> None:
    """Stop with a RequestError unless the input takes the shape; its named dimensions go to `sizes`."""
    for size, dim in zip(shape, tensor.dims, strict=True):
        if size == dim or dim == "?":
            continue
        if isinstance(dim, int):
            raise RequestError(f"{where}: expected {dims_of(tensor)}, got {list(shape)}")
        if sizes.setdefault(dim, size) != size:
            raise RequestError(
                f"{where}: expected {dims_of(tensor)} with {dim} = {sizes[dim]} as before, got {list(shape)}"
            )
    if 0 in shape and math.prod(size for size in shape if size) > MAX_VALUES:
        raise RequestError(f"{where}: expected dimensions that some machine could hold, got {list(shape)}")


def dims_of(tensor: Tensor) -> str:
    return f"[{', '.join(map(str, tensor.dims))}]"


def solved(dims: tuple[int | str, ...], count: int, where: str) -> tuple[int, ...]:
    """The shape of `count` values that came without one: a single dimension that varies follows from them."""
    known = math.prod(dim for dim in dims if isinstance(dim, int))
    if sum(isinstance(dim, str) for dim in dims) > 1:
        raise RequestError(
            f"{where}: expected a shape, since more than one of [{', '.join(map(str, dims))}] varies"
        )
    if not known or count % known:
        raise RequestError(f"{where}: expected a multiple of {known} values, got {count}")
    shape = tuple(dim if isinstance(dim, int) else count // known for dim in dims)
    if math.prod(shape) != count:
        raise RequestError(f"{where}: expected {math.prod(shape)} values, got {count}")
    return shape
