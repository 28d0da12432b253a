"""Reads tensors of requests, in JSON or as bytes, into arrays, and checks their shapes."""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any

import numpy as np
from simdjson import Array as JsonArray

from turnpike.common.datatypes import DATATYPES, WIRE_DTYPES
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.codec.json_document import expect_array, expect_whole, to_json, to_python
from turnpike.service.errors import RequestError
from turnpike.service.inference_types import Array

# A number too large for the dtype that it is cast to is an error. NumPy only warns of it, and its own way to
# raise an error, `np.errstate`, would take 1 µs of each request.
warnings.filterwarnings("error", "overflow encountered in cast", RuntimeWarning)

# by kind of dtype: the 64-bit type in which the parser returns many numbers at once, by its names
PARSER_TYPES = {"f": ("d", np.dtype("f8")), "i": ("i", np.dtype("i8")), "u": ("u", np.dtype("u8"))}


def read_json(value: object, shape: tuple[int, ...], dtype: np.dtype[np.generic], where: str) -> Array:
    """Read a JSON array that is flat or nested like `shape`.

    Does not notice every array in place of a number: compare the brackets with `arrays_in`, or call
    `expect_even`.
    """
    data = expect_array(value, where)
    flat = booleans(data, where) if dtype.kind == "b" else NUMBER_READERS[dtype].read(data, where)
    if flat.size != math.prod(shape):
        raise RequestError(
            f"{where}: expected {math.prod(shape)} values for shape {list(shape)}, got {flat.size}"
        )
    if is_nested(data) and not _nests_like(data, shape):
        raise _uneven_error(shape, where)
    return flat.reshape(shape)


def arrays_in(value: JsonArray, shape: tuple[int, ...]) -> int:
    """The number of JSON arrays, including itself, that a value of this shape consists of."""
    if not is_nested(value):
        return 1
    arrays, level = 0, 1
    for size in shape:
        arrays += level
        level *= size
    return arrays


def expect_even(value: JsonArray, shape: tuple[int, ...], where: str) -> None:
    """Raise RequestError if a value that was read has arrays in place of numbers."""
    if to_json(value).count(b"[") != arrays_in(value, shape):
        raise _uneven_error(shape, where)


def _uneven_error(shape: tuple[int, ...], where: str) -> RequestError:
    return RequestError(f"{where}: expected values in one flat array, or nested like shape {list(shape)}")


def is_nested(data: JsonArray) -> bool:
    return len(data) > 0 and type(data[0]) is JsonArray


def _nests_like(data: JsonArray, shape: tuple[int, ...]) -> bool:
    """Whether arrays are nested like the shape, down to the lengths of the innermost arrays."""
    if len(shape) < 2 or len(data) != shape[0]:
        return False
    try:
        if len(shape) == 2:
            return set(map(len, data)) == {shape[1]}  # type: ignore[arg-type]
        return all(_nests_like(block, shape[1:]) for block in data)  # type: ignore[arg-type]
    except TypeError:  # a number among arrays
        return False


class NumberReader:
    """Reads all numbers in a JSON array and its nested arrays, in order, as one flat array of a dtype."""

    __slots__ = ("_dtype", "_is_float", "_is_parsed_dtype", "_parsed_dtype", "_type_code")

    def __init__(self, dtype: np.dtype[np.generic]) -> None:
        self._dtype = dtype
        self._is_float = dtype.kind == "f"
        self._type_code, self._parsed_dtype = PARSER_TYPES[dtype.kind]
        self._is_parsed_dtype = dtype == self._parsed_dtype

    def read(self, data: JsonArray, where: str) -> Array:
        try:
            buffer = data.as_buffer(of_type=self._type_code)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise self._error("something else among them", where) from error
        parsed = np.frombuffer(buffer, self._parsed_dtype)
        if self._is_parsed_dtype:
            return parsed
        try:
            values = parsed.astype(self._dtype)
        except RuntimeWarning as error:
            raise self._error("one outside of that", where) from error
        if not self._is_float and not (values == parsed).all():
            raise self._error("one outside of that", where)
        return values

    def _error(self, got: str, where: str) -> RequestError:
        return RequestError(f"{where}: expected {value_range(self._dtype)}, got {got}")


# a reader for each dtype of JSON numbers
NUMBER_READERS = {dtype: NumberReader(dtype) for dtype in WIRE_DTYPES.values() if dtype.kind in PARSER_TYPES}


def booleans(data: JsonArray, where: str) -> Array:
    """All booleans in an array and its nested arrays, in order, as one flat array."""
    try:
        values = np.asarray(to_python(data))
    except ValueError as error:  # uneven, or nested deeper than NumPy can
        raise RequestError(f"{where}: expected true or false, evenly nested, got uneven arrays") from error
    if values.dtype != np.bool_ and values.size:
        raise RequestError(f"{where}: expected true or false (BOOL), got something else among them")
    return values.astype(np.bool_).ravel()


def value_range(dtype: np.dtype[Any]) -> str:
    """The numbers that a dtype can hold, for error messages."""
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
    """Read a tensor from bytes of the body; the array may be a view of them.

    Args:
        body: The whole body.
        start: Where the tensor begins.
        size: Its size in bytes.
        shape: Its shape.
        dtype: Its dtype, in little-endian order.
        where: Names the size in error messages.
    """
    expected = math.prod(shape) * dtype.itemsize
    if size != expected:
        raise RequestError(
            f"{where}: expected {expected} bytes for shape {list(shape)} {DATATYPES[dtype.name]}, got {size}"
        )
    if start + size > len(body):
        raise RequestError(f"{where}: expected {size} bytes after the JSON, got {len(body) - start}")
    if not size:
        return np.empty(shape, dtype)
    array = np.frombuffer(body, dtype, math.prod(shape), start).reshape(shape)
    if dtype.kind == "b" and array.view(np.uint8).max() > 1:
        raise RequestError(f"{where}: expected bytes of 0 or 1 (BOOL), got another")
    # kernels may rely on aligned memory, and the tensor can begin at any byte of the body
    return array if array.flags.aligned else array.copy()


# values of a tensor that can be addressed, at 8 bytes for the widest dtypes
MAX_VALUES = sys.maxsize // 8


def read_shape(value: object, tensor: Tensor, sizes: dict[str, int], where: str) -> tuple[int, ...]:
    """Read a shape, and check it against the input's dimensions.

    `sizes` has the sizes of named dimensions from the inputs before, and gets those of this one.
    """
    array = expect_array(value, where)
    if len(array) != len(tensor.dims):
        raise RequestError(
            f"{where}: expected {len(tensor.dims)} dimensions {_dims_text(tensor)}, got {len(array)}"
        )
    shape = read_sizes(array, where)
    expect_fit(shape, tensor, sizes, where)
    return shape


def read_sizes(value: object, where: str) -> tuple[int, ...]:
    """Read the sizes of a shape."""
    shape: tuple[Any, ...] = tuple(expect_array(value, where))
    for size in shape:
        if type(size) is not int or size < 0:
            expect_whole(size, where)
    return shape


def expect_fit(shape: tuple[int, ...], tensor: Tensor, sizes: dict[str, int], where: str) -> None:
    """Raise RequestError unless the input accepts the shape; adds its named dimensions to `sizes`."""
    for size, dim in zip(shape, tensor.dims, strict=True):
        if size == dim or dim == "?":
            continue
        if isinstance(dim, int):
            raise RequestError(f"{where}: expected {_dims_text(tensor)}, got {list(shape)}")
        if sizes.setdefault(dim, size) != size:
            raise RequestError(
                f"{where}: expected {_dims_text(tensor)} with {dim} = {sizes[dim]} as before, "
                f"got {list(shape)}"
            )
    if 0 in shape and math.prod(size for size in shape if size) > MAX_VALUES:
        raise RequestError(f"{where}: expected dimensions that fit into memory, got {list(shape)}")


def _dims_text(tensor: Tensor) -> str:
    return f"[{', '.join(map(str, tensor.dims))}]"


def infer_shape(dims: tuple[int | str, ...], count: int, where: str) -> tuple[int, ...]:
    """The shape of `count` values; if only one dimension varies, its size follows from their number."""
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
