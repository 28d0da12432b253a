"""Tensors of requests: JSON and bytes converted to arrays, and shapes compared with a model's inputs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import orjson
import pytest

from turnpike.common.datatypes import WIRE_DTYPES
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.codec.json_document import parse
from turnpike.service.codec.tensors import expect_even, infer_shape, read_binary, read_json, read_shape
from turnpike.service.errors import RequestError
from turnpike.service.inference_types import Array


def read(data: Any, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """The array of a JSON value or text; both ways to check it must agree."""
    text = data if isinstance(data, str) else json.dumps(data)
    value = parse(b'{"data": ' + text.encode() + b"}")["data"]
    array = read_json(value, shape, WIRE_DTYPES[dtype], "data")
    expect_even(value, shape, "data")  # type: ignore[arg-type]
    return array


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
def test_flat_and_nested_data_give_the_same_array(dtype: str) -> None:
    array = (np.arange(24).reshape(2, 3, 4) % 2).astype(dtype)
    for data in (array.tolist(), array.ravel().tolist()):
        got = read(data, (2, 3, 4), dtype)
        assert got.dtype == array.dtype
        np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize("dtype", [name for name in WIRE_DTYPES if WIRE_DTYPES[name].kind in "iu"])
def test_integers_are_exact_up_to_their_limits(dtype: str) -> None:
    """The smallest and the largest value are accepted, the next ones are not, even beyond 2**53."""
    info = np.iinfo(dtype)
    ends = [int(info.min), int(info.max), int(info.max) - 1]
    assert read(ends, (3,), dtype).tolist() == ends
    for beyond in (int(info.min) - 1, int(info.max) + 1):
        with pytest.raises(RequestError, match="expected whole numbers from|fit into 64 bits"):
            read([0, beyond], (2,), dtype)


@pytest.mark.parametrize("value", ["1.0", "1e0", "true", "null", '"1"', "{}"])
def test_only_integers_are_accepted_for_integer_tensors(value: str) -> None:
    with pytest.raises(RequestError, match=r"data: expected whole numbers from -128 to 127 \(INT8\)"):
        read(f"[0, {value}]", (2,), "int8")


def test_floats_keep_every_bit() -> None:
    """The shortest decimal form of each float32 and float64 is decoded to the same bits."""
    bits = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
    wide = np.random.default_rng(0).integers(0, 2**63, 5_000, dtype=np.uint64).view(np.float64)
    for array in (bits[np.isfinite(bits)], wide[np.isfinite(wide)]):
        text = (
            "[" + ",".join(repr(value.item()) if value.itemsize == 8 else str(value) for value in array) + "]"
        )
        got = read(text, array.shape, array.dtype.name)
        assert got.tobytes() == array.tobytes()


@pytest.mark.parametrize(("dtype", "value"), [("float32", 3.5e38), ("float32", -1e300), ("float16", 65520)])
def test_numbers_beyond_the_dtype_are_refused(dtype: str, value: float) -> None:
    """They would become Inf."""
    with pytest.raises(RequestError, match="data: expected numbers of at most .* got one outside of that"):
        read([0, value], (2,), dtype)


def test_numbers_beyond_the_dtype_are_refused_outside_of_tests() -> None:
    """In tests every warning is an error. A worker has Python's own filters and those of the service."""
    program = """
import numpy as np, simdjson
from turnpike.service.errors import RequestError
from turnpike.service.codec.tensors import NumberReader
try:
    NumberReader(np.dtype("<f4")).read(simdjson.Parser().parse(b"[0, 3.5e38]"), "data")
except RequestError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("data: expected numbers of at most 3.4028235e+38 in size (FP32), got one")
    assert done.stderr == ""


@pytest.mark.parametrize("value", ["true", "null", '"1"', "{}", '["a"]'])
def test_only_numbers_are_accepted_for_float_tensors(value: str) -> None:
    with pytest.raises(RequestError, match="data: expected numbers of at most"):
        read(f"[0, {value}]", (2,))


@pytest.mark.parametrize("value", ["1", "null", '"true"', "[true]", "[]", "{}"])
def test_only_true_and_false_are_accepted_for_boolean_tensors(value: str) -> None:
    """1 is refused too."""
    with pytest.raises(RequestError, match="data: expected true or false|in one flat array"):
        read(f"[false, {value}]", (2,), "bool")


@pytest.mark.parametrize("data", [3, "null", '"abc"', "{}", "true"])
def test_data_must_be_an_array(data: Any) -> None:
    """A single value is refused."""
    with pytest.raises(RequestError, match="data: expected an array, got"):
        read(data, (1,))


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        ([[1, 2], [3, 4, 5]], (2, 2)),
        ([1, 2, 3], (2, 2)),
        ([], (1,)),
        ([[], []], (1, 2)),
    ],
)
def test_the_number_of_values_must_fit_the_shape(data: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(RequestError, match="data: expected . values for shape"):
        read(data, shape)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint64"])
@pytest.mark.parametrize(
    ("data", "shape"),
    [
        ([[1, 2, 3], [4]], (2, 2)),
        ([[1], [2, 3, 4]], (2, 2)),
        ([[1, 2, 3, 4]], (2, 2)),
        ([[1], [2], [3], [4]], (2, 2)),
        ([[1, 2], 3, 4], (2, 2)),
        ([[1, 2], [3, [4]]], (2, 2)),
        ([[1, []], [2, [3, 4]]], (2, 2)),
        ([[[1, 2], [3, 4]]], (2, 2)),
        ([[1, 2], [3, 4]], (4,)),
        ([1, [2], 3], (3,)),
        ([1, [], 2, [3]], (3,)),
        ([[1]], (1,)),
        ([[[1], [2]], [[3], [4]]], (1, 2, 2)),
        ([[1, 2], [3, 4]], (1, 2, 2)),
        ([[5]], ()),
    ],
)
def test_values_nested_unlike_the_shape_are_refused(data: Any, shape: tuple[int, ...], dtype: str) -> None:
    """The number of values is right, but their nesting is not."""
    with pytest.raises(RequestError, match="data: expected values in one flat array, or nested like shape"):
        read(data, shape, dtype)


@pytest.mark.parametrize(("data", "shape"), [([], (0, 3)), ([], (2, 0)), ([[], []], (2, 0)), ([], (0,))])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool"])
def test_an_empty_tensor_keeps_its_shape(data: Any, shape: tuple[int, ...], dtype: str) -> None:
    """A shape that contains a zero keeps its other dimensions."""
    assert read(data, shape, dtype).shape == shape


def test_a_shape_of_more_than_2_to_64_values_is_refused() -> None:
    """The product of the sizes must not overflow."""
    with pytest.raises(RequestError, match="expected 73786976294838206464 values"):
        read([], (2**33, 2**33))


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
@pytest.mark.parametrize("start", range(9))
def test_binary_data_is_read_from_any_offset(dtype: str, start: int) -> None:
    """The array is aligned and has the same bits, wherever the tensor is in the body."""
    data = np.random.default_rng(0).integers(0, 2, 6 * WIRE_DTYPES[dtype].itemsize, np.uint8)
    body = b"\xff" * start + data.tobytes() + b"\xff"
    for content in (body, memoryview(body)):
        got = read_binary(content, start, data.size, (2, 3), WIRE_DTYPES[dtype], "here")
        assert got.tobytes() == data.tobytes()
        assert got.dtype == WIRE_DTYPES[dtype]
        assert got.shape == (2, 3)
        assert got.flags.aligned


def test_an_aligned_tensor_is_not_copied() -> None:
    body = np.arange(12, dtype="<f4").tobytes()
    assert np.shares_memory(
        read_binary(body, 0, 48, (12,), WIRE_DTYPES["float32"], ""), np.frombuffer(body, "<f4")
    )


def test_nan_and_inf_are_accepted_as_binary() -> None:
    """The bits of a NaN are kept."""
    data = np.array([0x7FC00001, 0xFF800000, 0x7F800000, 0x80000000], "<u4").tobytes()
    assert read_binary(data, 0, 16, (4,), WIRE_DTYPES["float32"], "").tobytes() == data


@pytest.mark.parametrize("size", [0, 1, 23, 25, 48])
def test_a_binary_size_must_fit_the_shape(size: int) -> None:
    """The message has both sizes and the place."""
    with pytest.raises(RequestError, match=rf"here: expected 24 bytes for shape \[2, 3\] FP32, got {size}"):
        read_binary(bytes(100), 0, size, (2, 3), WIRE_DTYPES["float32"], "here")


def test_a_body_that_ends_early_is_refused() -> None:
    """The declared size fits the shape, but the body is shorter."""
    with pytest.raises(RequestError, match="here: expected 24 bytes after the JSON, got 20"):
        read_binary(bytes(24), 4, 24, (2, 3), WIRE_DTYPES["float32"], "here")


def test_boolean_bytes_must_be_0_or_1() -> None:
    """The kernels of onnxruntime must never get another byte as a boolean."""
    with pytest.raises(RequestError, match="here: expected bytes of 0 or 1"):
        read_binary(b"\0\1\2", 0, 3, (3,), WIRE_DTYPES["bool"], "here")


def test_an_empty_binary_tensor_is_accepted() -> None:
    """It may be at the end of the body."""
    assert read_binary(b"abcd", 4, 0, (0, 3), WIRE_DTYPES["float32"], "here").shape == (0, 3)


IMAGE = Tensor("x", "float32", ("batch", 1, 8, "width"))


def read_request_shape(
    shape: Any, tensor: Tensor = IMAGE, sizes: dict[str, int] | None = None
) -> tuple[int, ...]:
    return read_shape(
        parse(orjson.dumps({"shape": shape}))["shape"], tensor, {} if sizes is None else sizes, "shape"
    )


def test_a_matching_shape_is_accepted() -> None:
    """The sizes of named dimensions are recorded."""
    sizes: dict[str, int] = {}
    assert read_request_shape([3, 1, 8, 5], sizes=sizes) == (3, 1, 8, 5)
    assert sizes == {"batch": 3, "width": 5}
    assert read_request_shape([0, 1, 8, 0]) == (0, 1, 8, 0)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ([3, 1, 8], r"shape: expected 4 dimensions \[batch, 1, 8, width\], got 3"),
        ([], "expected 4 dimensions"),
        ([3, 1, 9, 5], r"shape: expected \[batch, 1, 8, width\], got \[3, 1, 9, 5\]"),
        ([3, 1, 8, -1], "shape: expected a whole number from 0, got -1"),
        ([3, 1.0, 8, 5], "shape: expected a whole number from 0, got 1.0"),
        ([3, True, 8, 5], "shape: expected a whole number from 0, got a boolean"),
        ([3, "1", 8, 5], "shape: expected a whole number from 0, got a string"),
        ([3, None, 8, 5], "got null"),
        ([3, [1], 8, 5], "got an array"),
        (3, "shape: expected an array, got a number"),
        (None, "shape: expected an array, got null"),
        ([0, 1, 8, 2**63], "shape: expected dimensions that fit into memory"),
    ],
)
def test_a_shape_that_does_not_match_is_refused(shape: Any, message: str) -> None:
    """The message names the dimensions as the model does."""
    with pytest.raises(RequestError, match=message):
        read_request_shape(shape)


def test_a_named_dimension_has_one_size_in_all_inputs() -> None:
    """A dimension without a name may differ between inputs."""
    with pytest.raises(RequestError, match=r"with width = 4 as before, got \[3, 1, 8, 5\]"):
        read_request_shape([3, 1, 8, 5], sizes={"width": 4})
    assert read_request_shape([3, 5], Tensor("y", "float32", ("?", "?")), {"?": 4}) == (3, 5)


def test_a_shape_is_inferred_from_the_number_of_values() -> None:
    """One dimension may be free. More free dimensions, and numbers that do not fit, are refused."""
    assert infer_shape(("batch", 2, 3), 12, "body") == (2, 2, 3)
    assert infer_shape((2, 3), 6, "body") == (2, 3)
    assert infer_shape(("batch",), 0, "body") == (0,)
    for dims, count, message in (
        (("batch", 2, 3), 13, "body: expected a multiple of 6 values, got 13"),
        ((2, 3), 12, "body: expected 6 values, got 12"),
        (("batch", "time"), 6, "more than one of .batch, time. varies"),
        (("batch", 0), 6, "expected a multiple of 0 values"),
    ):
        with pytest.raises(RequestError, match=message):
            infer_shape(dims, count, "body")
