"""Rows read from files and typed text: parsed as intended, or refused with a message."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.page_modules import PageModules, page_modules

NUMBERS = [
    f"{order}{kind}" for order in "<>" for kind in ("f2", "f4", "f8", "i2", "i4", "i8", "u2", "u4", "u8")
]
X = {"name": "x", "datatype": "FP32", "shape": [-1, 1, 2, 3]}
IDS = {"name": "ids", "datatype": "INT8", "shape": [-1, -1, 2]}
FLAGS = {"name": "flags", "datatype": "BOOL", "shape": [-1, 3]}
WHOLE = {"name": "whole", "datatype": "FP64", "shape": [2, 2]}

PARSE = """async (file) => {
  const { parseNpy } = await import("/dashboard/inputs/npy_parser.js");
  const bytes = Uint8Array.from(atob(file), (letter) => letter.charCodeAt(0));
  try {
    const { shape, kind, values } = parseNpy(bytes.buffer);
    return { shape, kind, values: values(0, shape.reduce((product, dim) => product * dim, 1)) };
  } catch (error) { return error.message; }
}"""
ROWS = """async ([file, input]) => {
  const { rowsInNpy } = await import("/dashboard/inputs/npy_rows.js");
  const bytes = Uint8Array.from(atob(file), (letter) => letter.charCodeAt(0));
  try {
    const { count, row } = rowsInNpy(bytes.buffer, input);
    return { count, last: row(count - 1) };
  } catch (error) { return error.message; }
}"""
READ = """async ([input, text]) => {
  const { parseTensor } = await import("/dashboard/inputs/tensor_parser.js");
  try { return parseTensor(input, text); } catch (error) { return error.message; }
}"""
WRITE = """async ([certificate, text]) => {
  const module = await import("/dashboard/inputs/text_tensor.js");
  const format = module.textFormatOf({ inputs: [{ name: "ids" }], certificate });
  if (format === null) return null;
  const known = module.inKnownCase(format, text);
  return [module.textTensor(format, known).data[0], module.unreadParts(format, known)];
}"""
TEXT = {"input": "ids", "scheme": "alphabet", "words": 2, "characters": 4}


@pytest.fixture(scope="module")
def modules() -> Iterator[PageModules]:
    with page_modules() as modules:
        yield modules


def saved(array: np.ndarray[Any, Any], version: tuple[int, int] | None = None) -> str:
    """A .npy file encoded as base64, to pass it to the page."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version)
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.parametrize("order", ["C", "F"])
def test_numbers_of_every_width_and_byte_order_are_read(modules: PageModules, order: Any) -> None:
    values = np.random.default_rng(0).integers(0, 100, size=(2, 3, 4))
    for dtype in (*NUMBERS, "i1", "u1", "?"):
        array = np.asarray(values > 50 if dtype == "?" else values, dtype, order=order)
        read = modules.evaluate(PARSE, saved(array))
        assert read["shape"] == [2, 3, 4], dtype
        assert read["values"] == array.ravel().tolist(), dtype
        assert read["kind"] == np.dtype(dtype).kind, dtype


def test_all_versions_of_the_header_are_read(modules: PageModules) -> None:
    for version in ((1, 0), (2, 0), (3, 0)):
        assert modules.evaluate(PARSE, saved(np.array([1.5, -2.0]), version))["values"] == [1.5, -2.0]


def test_scalars_and_unusual_half_precision_are_read(modules: PageModules) -> None:
    """Half precision includes subnormal and negative numbers."""
    assert modules.evaluate(PARSE, saved(np.array(7)))["values"] == [7]
    halves = np.array([6e-8, -1.5, 65504, 0], np.float16)
    assert modules.evaluate(PARSE, saved(halves))["values"] == halves.astype(float).tolist()


def test_files_without_numeric_arrays_are_refused(modules: PageModules) -> None:
    text = base64.b64encode(b"a text of some length").decode()
    assert modules.evaluate(PARSE, text) == "expected the header of a .npy file, got other bytes"
    lying = b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + b" " * 300_000
    assert (
        modules.evaluate(PARSE, base64.b64encode(lying).decode())
        == "expected a header of at most 10000 bytes, got one of 2147483648"
    )
    short = base64.b64encode(base64.b64decode(saved(np.zeros(4)))[:-3]).decode()
    assert modules.evaluate(PARSE, short) == "expected 32 bytes for shape [4], got 29"
    assert "u1 to u8 or b1, got '<U3'" in modules.evaluate(PARSE, saved(np.array(["abc"])))
    assert "got [('a'" in modules.evaluate(PARSE, saved(np.zeros(2, [("a", "<f4")])))
    assert "got '|O'" in modules.evaluate(PARSE, saved(np.array([{}], object)))
    assert (
        modules.evaluate(PARSE, saved(np.array([2**60])))
        == f"expected whole numbers within 2^53, got {2**60}"
    )


def test_files_may_have_one_or_several_rows(modules: PageModules) -> None:
    """Axes of length 1 may be missing or added, and a row may be flat."""
    rows = np.arange(24, dtype=np.float32)
    for shape in ((4, 1, 2, 3), (4, 2, 3), (4, 6)):
        read = modules.evaluate(ROWS, [saved(rows.reshape(shape)), X])
        assert read == {"count": 4, "last": {"values": rows[18:].tolist(), "shape": [1, 2, 3]}}, shape
    for shape in ((1, 2, 3), (2, 3), (1, 1, 2, 3), (6,)):
        read = modules.evaluate(ROWS, [saved(rows[:6].reshape(shape)), X])
        assert read == {"count": 1, "last": {"values": rows[:6].tolist(), "shape": [1, 2, 3]}}, shape
    free = modules.evaluate(ROWS, [saved(np.zeros((2, 5, 2), np.int8)), IDS])
    assert free["count"] == 2
    assert free["last"]["shape"] == [5, 2]
    assert modules.evaluate(ROWS, [saved(rows.reshape(3, 8)), X]) == (
        "expected a row of shape [1, 2, 3] or several along a first axis, got shape [3, 8]"
    )
    assert (
        modules.evaluate(ROWS, [saved(np.ones((2, 3))), FLAGS])
        == "expected BOOL, got values of another kind (f)"
    )


def test_rows_may_be_written_in_many_ways(modules: PageModules) -> None:
    data = [1, 2, 3, 4.5, 5, 6]
    for text in (
        "[[[1, 2, 3], [4.5, 5, 6]]]",
        "[[[[1, 2, 3], [4.5, 5, 6]]]]",
        "[1, 2, 3, 4.5, 5, 6]",
        "1, 2, 3, 4.5, 5, 6",
        " 1 2 3\n4.5;5\t6 ",
    ):
        read = modules.evaluate(READ, [X, text])
        assert read == {"name": "x", "datatype": "FP32", "shape": [1, 1, 2, 3], "data": data}, text
    assert modules.evaluate(READ, [IDS, "1 2 3 4 5 6"])["shape"] == [1, 3, 2]
    assert modules.evaluate(READ, [FLAGS, "true, 0, 1"])["data"] == [True, False, True]
    assert modules.evaluate(READ, [FLAGS, "[true, false, true]"])["data"] == [True, False, True]
    assert modules.evaluate(READ, [WHOLE, "1 2 3 4"])["shape"] == [2, 2]


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        (X, "", "x: expected values, got none"),
        (X, "1 2 3", "x: expected 6 values for shape [1, 2, 3], got 3"),
        (
            X,
            "[[1, 2], [3, 4], [5, 6]]",
            "x: expected values of shape [1, 2, 3], flat or nested, got shape [3, 2]",
        ),
        (
            X,
            "[[1, 2], [3]]",
            "x: expected evenly nested lists, got lists of different length or depth",
        ),
        (X, "1 2 three", 'x: expected numbers, got "three"'),
        (X, "[1, 2", "x: expected JSON such as [1, 2] or numbers separated by commas, got neither"),
        (X, '[1, 2, 3, 4, 5, "6"]', 'x: value 6: expected a number, got "6"'),
        (X, "[1, 2, 3, 4, 5, [6]]", "x: value 6: expected a number, got [6]"),
        (X, "1 2 3 4 5 1e39", "x: value 6: expected a number of magnitude at most"),
        (X, "1 2 3 4 5 Infinity", "x: value 6: expected a number, got Infinity"),
        (IDS, "1 2 3", "ids: expected a multiple of 2 values for shape [any, 2], got 3"),
        (IDS, "1 1.5", "ids: value 2: expected a whole number from -128 to 127 (INT8), got 1.5"),
        (IDS, "1 128", "ids: value 2: expected a whole number from -128 to 127 (INT8), got 128"),
        (FLAGS, "[1, 0, 1]", "flags: value 1: expected true or false, got 1"),
        (
            {"name": "free", "datatype": "FP32", "shape": [-1, -1, -1]},
            "1 2",
            "free: expected nested JSON, because more than one axis of [any, any] varies",
        ),
    ],
)
def test_values_that_do_not_fit_the_input_are_refused(
    modules: PageModules, field: Any, text: str, message: str
) -> None:
    read = modules.evaluate(READ, [field, text])
    assert isinstance(read, str), read
    assert read.startswith(message)


@pytest.mark.parametrize(
    ("scheme", "text", "sent", "notes"),
    [
        ("alphabet", "ab  Caba", "AB  CABA", []),
        ("alphabet", "ab é ù", "AB é ù", ["Left out: é ù.", "Only the first 2 words are read."]),
        ("alphabet", "abcab", "ABCAB", ["Only the first 4 characters of a word are read."]),
        ("bytes", "ab é", "ab é", []),
        ("bytes", "abéü", "abéü", ["Only the first 4 bytes of a word are read."]),
        ("elmo", "abc", "abc", ["Only the first 2 bytes of a word are read."]),
        ("characterbert", "a", "a", ["Only the first 0 words are read."]),
    ],
)
def test_what_is_not_read_of_a_text_is_said(
    modules: PageModules, scheme: str, text: str, sent: str, notes: list[str]
) -> None:
    """Letters in the other case are replaced if only that has an id; marks take room."""
    certificate = {"alphabet": " ABC" if scheme == "alphabet" else "", "text": {**TEXT, "scheme": scheme}}
    assert modules.evaluate(WRITE, [certificate, text]) == [sent, notes]


@pytest.mark.parametrize("text", [None, {**TEXT, "input": "other"}])
def test_models_without_texts_have_no_text_entry(modules: PageModules, text: object) -> None:
    assert modules.evaluate(WRITE, [{"alphabet": " ABC", "text": text}, "a"]) is None


def test_random_rows_are_within_their_range(modules: PageModules) -> None:
    """Whole numbers include both ends of the range."""
    random_rows = modules.evaluate(
        """async (inputs) => {
          const { randomRow } = await import("/dashboard/inputs/random_row.js");
          return inputs.map((input) => randomRow(input, { low: -1, high: 2, lengths: [50] }));
        }""",
        [IDS, {**X, "shape": [-1, -1, 2]}, {**FLAGS, "shape": [-1, -1, 2]}],
    )
    assert [row["dims"] for row in random_rows] == [[50, 2]] * 3
    whole, numbers, flags = [row["values"] for row in random_rows]
    assert set(whole) == {-1, 0, 1, 2}
    assert all(-1 <= value <= 2 for value in numbers)
    assert len(set(numbers)) > 90
    assert set(flags) == {True, False}


def test_resizing_averages_areas(modules: PageModules) -> None:
    picture = np.random.default_rng(0).uniform(size=(7, 5)).astype(np.float32)
    small = modules.evaluate(
        """async ([data, height, width]) => {
          const { resize } = await import("/dashboard/pictures/pixels.js");
          return Array.from(resize({ height: 7, width: 5, channels: 1, data }, height, width).data);
        }""",
        [picture.ravel().tolist(), 3, 2],
    )
    # a common multiple of both sizes
    fine = np.kron(picture, np.ones((3, 2)))
    expected = fine.reshape(3, 7, 2, 5).mean((1, 3))
    np.testing.assert_allclose(np.reshape(small, (3, 2)), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "form", "likely"),
    [
        ([-1, 3, 4, 5], [4, 5, 3], True),
        ([-1, 1, 4, 5], [4, 5, 1], True),
        ([-1, 4, 5, 3], [4, 5, 3], True),
        ([-1, 6, 6], [6, 6, 1], True),
        ([-1, 4, 5], [4, 5, 1], False),
        ([-1, 64], [8, 8, 1], True),
        ([-1, 49], None, None),
        ([-1, 65], None, None),
        ([-1, -1, 5], None, None),
        ([2, 4, 5], None, None),
    ],
)
def test_pictures_are_recognized_by_their_shape(
    modules: PageModules, shape: list[int], form: Any, likely: Any
) -> None:
    """A picture becomes a tensor in the model's layout, and back."""
    result = modules.evaluate(
        """async (shape) => {
          const { pictureFormatOf, tensorToPixels, pixelsToTensor } =
            await import("/dashboard/pictures/picture_input.js");
          const certificate = { alphabet: "", text: null, ranges: { x: { low: -1, high: 1 } } };
          const picture = pictureFormatOf({ inputs: [{ name: "x", datatype: "FP32", shape }], certificate });
          if (picture === null) return null;
          const { height, width, channels, likely } = picture;
          const data = Array.from({ length: height * width * channels }, (_, i) => i / 100);
          const tensor = pixelsToTensor(picture, { height, width, channels, data });
          const back = Array.from(tensorToPixels(picture, tensor).data);
          return { form: [height, width, channels], likely, tensor, data, back };
        }""",
        shape,
    )
    if form is None:
        assert result is None
        return
    assert (result["form"], result["likely"]) == (form, likely)
    assert result["back"] == pytest.approx(result["data"], abs=1e-6)
    assert result["tensor"]["shape"] == [1, *shape[1:]]
    pixels = np.reshape(result["data"], form) * 2 - 1
    expected = pixels.transpose(2, 0, 1) if shape[1] in (1, 3) else pixels
    np.testing.assert_allclose(result["tensor"]["data"], expected.ravel(), atol=1e-3)
