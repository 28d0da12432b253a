"""The request that a transport sends, and its tensors: made from arrays, lists and tables without loss.

pandas is never imported: a caller who passes a table has done so.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from turnpike.client.errors import InputError
from turnpike.common.datatypes import BYTES, DATATYPE_BY_DTYPE, DTYPE_BY_DATATYPE

Array = np.ndarray[Any, np.dtype[Any]]


class Table(Protocol):
    """A DataFrame of pandas, or a Series, which is one row."""

    @property
    def index(self) -> Any: ...
    @property
    def iloc(self) -> Any: ...


TableType = TypeVar("TableType", bound=Table)
# the values of one input
Values: TypeAlias = ArrayLike | Sequence[str | bytes]
# rows of cells, which are lists or have the names of columns
CellRows: TypeAlias = Sequence[Mapping[str, Any] | Sequence[Any]]
# rows of the one input of a model, or a dict with the values of each input
Rows: TypeAlias = Values | CellRows | Mapping[str, Values]
Inputs: TypeAlias = Rows | Table

# a text is an object: its bytes in UTF-8
TEXT = np.dtype(object)
MAX_SHOWN = 80  # characters of a text in an error


class Call(NamedTuple):
    """A request of an operation.

    Attributes:
        operation: What to do.
        model: The name of its model.
        version: The version of the model; the newest one if it is empty.
        tensors: The inputs, in the model's datatypes.
        fields: Other fields of the body; `instances` has rows in place of tensors.
        headers: Headers of this call, with names in lower case.
        deadline: When the caller stops waiting, in seconds of `time.monotonic`.
    """

    operation: str
    model: str = ""
    version: str | int = ""
    tensors: Mapping[str, Array] = {}
    fields: Mapping[str, Any] = {}
    headers: Mapping[str, str] = {}
    deadline: float = 0.0

    @property
    def rows(self) -> int | None:
        """The number of rows; None if the inputs have different ones."""
        if "instances" in self.fields:
            return len(self.fields["instances"])
        counts = {len(array) if array.ndim else 0 for array in self.tensors.values()}
        return counts.pop() if len(counts) == 1 else None

    def part(self, start: int, stop: int) -> Call:
        """The call with some of the rows."""
        if "instances" in self.fields:
            return self._replace(fields={**self.fields, "instances": self.fields["instances"][start:stop]})
        return self._replace(tensors={name: array[start:stop] for name, array in self.tensors.items()})


def to_tensors(inputs: Any, metadata: Mapping[str, Any]) -> dict[str, Array]:
    """The tensors for one input, or for a dict with one for each input. Rows may be flat."""
    expected, model = {tensor["name"]: tensor for tensor in metadata["inputs"]}, metadata["name"]
    if not isinstance(inputs, Mapping):
        inputs = {name if len(expected) == 1 else "": inputs for name in expected}
    if inputs.keys() != expected.keys():
        is_row = len(expected) == 1 and not any(
            hasattr(value, "__len__") and not isinstance(value, str) for value in inputs.values()
        )
        hint = "; put a row in a list, as in [{...}]" if is_row else ""
        reason = f"expected a dict with {list(expected)}, got {list(inputs)}{hint}"
        raise InputError(f"model {model!r}", reason)
    tensors = {}
    for name, tensor in expected.items():
        subject = f"input {name!r} of model {model!r}"
        texts = to_texts(inputs[name], subject) if "text" in tensor.get("parameters", {}) else None
        if texts is not None:
            tensors[name] = texts
            continue
        array = to_datatype(inputs[name], tensor["datatype"], subject)
        shape = tensor["shape"]
        if array.shape == (0,) and shape[0] == -1 and all(dim >= 0 for dim in shape[1:]):
            # an empty list has no rows, whatever their shape
            array = array.reshape(0, *shape[1:])
        is_flat = array.ndim == 2 <= len(shape) - 1 and array.shape[1] == math.prod(shape[1:])
        tensors[name] = array.reshape(-1, *shape[1:]) if is_flat else array
        _expect_shape(tensors[name], shape, subject)
    return tensors


def _expect_shape(array: Array, shape: Sequence[int], subject: str) -> None:
    """Raise InputError unless an array has the shape of an input, in which -1 is any length."""
    fits = array.ndim == len(shape) and all(
        dim in (-1, length) for dim, length in zip(shape, array.shape, strict=True)
    )
    if fits:
        return
    row = math.prod(shape[1:])
    is_row = shape[0] == -1 and row > 0 and (array.size == row and array.shape[:1] != (1,))
    flat = f", or rows of {row} numbers" if len(shape) > 2 and row > 0 else ""
    hint = "; put one row in a list" if is_row else ""
    raise InputError(subject, f"expected the shape {list(shape)}{flat}, got {list(array.shape)}{hint}")


def to_datatype(values: Any, datatype: str, subject: str) -> Array:
    """An array of this datatype. Floats may be rounded to shorter floats; no other number may change."""
    if isinstance(values, str | os.PathLike):
        hint = "pass a list, an array or a DataFrame, as pandas.read_csv reads one from a file"
        raise InputError(subject, f"expected rows, got {str(values)[:MAX_SHOWN]!r}: {hint}")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(subject, "expected an array, got lists of different lengths") from error
    if array.dtype.kind == "U" and array.size:
        # beside a text, numbers become texts too
        places = (place for place, text in np.ndenumerate(array) if not _is_number(text))
        place = next(places, (0,) * array.ndim)
        raise InputError(
            subject, f"expected numbers, got the text {array[place][:MAX_SHOWN]!r} at {list(place)}"
        )
    if array.dtype.kind not in "biuf" or datatype not in DTYPE_BY_DATATYPE:
        raise InputError(subject, f"expected numbers, to be sent as {datatype}, got {array.dtype}")
    if array.dtype == DTYPE_BY_DATATYPE[datatype]:
        return array
    with np.errstate(all="ignore"):
        converted = array.astype(DTYPE_BY_DATATYPE[datatype], copy=False)
        lost = _is_lost(array, converted)
    if lost.any():
        at = np.argwhere(lost)[0].tolist()
        raise InputError(subject, f"expected numbers that {datatype} holds, got {array[tuple(at)]} at {at}")
    return converted


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def to_texts(values: Any, subject: str) -> Array | None:
    """An array of texts as bytes in UTF-8, or None if these are no texts."""
    # an array of texts would lose NULs at their ends
    texts = values if isinstance(values, np.ndarray) else np.array(values, TEXT)
    is_empty_list = texts.shape == (0,)
    if not is_empty_list and not any(isinstance(text, str) for text in _scalars(texts)):
        return None
    if isinstance(values, str):
        hint = f"put a text in a list, as in [{values[:MAX_SHOWN]!r}]"
        raise InputError(subject, f"expected a list of texts, got one text: {hint}")
    if texts.ndim not in (1, 2) or texts.size != len(texts):
        raise InputError(
            subject, f"expected texts of the shape [texts] or [texts, 1], got {list(texts.shape)}"
        )
    encoded = np.empty(len(texts), TEXT)
    for index, text in enumerate(texts.flat):
        try:
            encoded[index] = text.encode()
        except (AttributeError, UnicodeEncodeError) as error:
            raise InputError(subject, f"expected texts of Unicode, got {text!r} at [{index}]") from error
    return encoded


def _scalars(array: Array) -> Iterable[Any]:
    """The elements of an array that may be texts."""
    return array.flat if array.dtype.kind in "OU" else ()


def not_finite(tensors: Mapping[str, Array]) -> tuple[str, bool]:
    """Which number JSON cannot carry, in words, or none; and whether it is a NaN, which may be a blank.

    An infinite number comes before a NaN.
    """
    found = "", True
    for name, array in tensors.items():
        if array.dtype.kind != "f" or np.isfinite(array).all():
            continue
        infinite = np.argwhere(np.isinf(array)).tolist()
        (*at,) = infinite[0] if infinite else np.argwhere(np.isnan(array))[0].tolist()
        number = array[tuple(at)]
        found = (
            f"expected finite numbers, since predict sends JSON, got {number} at {at} of input {name!r}: "
            "infer sends bytes",
            not infinite,
        )
        if infinite:
            break
    return found


def to_json_rows(tensors: Mapping[str, Array]) -> list[Any]:
    """The rows of tensors in JSON: values of the only input, or objects with those of each."""
    inputs = list(map(_to_lists, tensors.values()))
    if len(inputs) == 1:
        return inputs[0]
    return [dict(zip(tensors, row, strict=True)) for row in zip(*inputs, strict=True)]


def _to_lists(array: Array) -> list[Any]:
    """The rows of a tensor in JSON, which has null for NaN."""
    if array.dtype == TEXT:
        return [text.decode() for text in array]
    if array.dtype.kind == "f" and (missing := np.isnan(array)).any():
        array = array.astype(object)
        array[missing] = None
    rows: list[Any] = array.tolist()
    return rows


def datatype_of(array: Array) -> str:
    """The protocol's datatype of a tensor."""
    return BYTES if array.dtype == TEXT else DATATYPE_BY_DTYPE[array.dtype]


def to_bytes(array: Array) -> bytes:
    """The bytes of a tensor, in which the length of each text comes before it."""
    if array.dtype != TEXT:
        return array.tobytes()
    return b"".join(len(text).to_bytes(4, "little") + text for text in array)


def _is_lost(array: Array, converted: Array) -> Any:
    """Which numbers a conversion has changed, apart from floats that were rounded."""
    if converted.dtype.kind != "f":
        # a float that no integer equals, or that is out of range, converts to a number that differs from it;
        # -1 as an unsigned number becomes -1 again, but has lost its sign
        lost = (converted.astype(array.dtype) != array) | ((converted < 0) != (array < 0))
        # the conversion of a float that is too large depends on the processor
        limit = 2.0 ** (8 * converted.itemsize - (converted.dtype.kind == "i"))
        return lost | (array >= limit) if array.dtype.kind == "f" and converted.dtype.kind != "b" else lost
    infinite = np.isinf(converted)
    if array.dtype.kind == "f":
        return infinite & ~np.isinf(array)
    # converting back is undefined for floats outside of the integers, and exact up to 2**53 as float64
    lost = infinite | (converted.astype("f8") != array.astype("f8"))
    for at in np.argwhere(np.abs(array.astype("f8")) >= 2**53):
        place = tuple(at)
        lost[place] = infinite[place] or int(converted[place]) != int(array[place])
    return lost


def is_table(rows: object) -> bool:
    """Whether this is a DataFrame, or a Series, which is one row."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(rows, (pandas.DataFrame, pandas.Series))


def is_series(rows: object) -> bool:
    """Whether this is a Series of pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(rows, pandas.Series)


def is_columns(rows: object) -> bool:
    """Whether this is a dict of lists or arrays, which may be columns of a table."""
    return (
        isinstance(rows, Mapping)
        and bool(rows)
        and all(isinstance(value, list | tuple | np.ndarray) or is_series(value) for value in rows.values())
    )
