"""Whether the shape of a tensor is one that the model takes."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

from service.errors import RequestError
from service.protocol.json_document import expect_array, expect_whole

if TYPE_CHECKING:
    from service.artifact.runtime import Tensor

# the widest numbers have 8 bytes
MOST_VALUES = sys.maxsize // 8


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
    if 0 in shape and math.prod(size for size in shape if size) > MOST_VALUES:
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
