import assert from "node:assert/strict";
import test from "node:test";

import { parseTensor, shapeMatches, tensorFromValues } from "../../service/dashboard/inputs/tensor_parser.js";

const input = (datatype, ...shape) => ({ name: "x", datatype, shape: [-1, ...shape] });

test("the axis of any length follows from the number of values", () => {
  assert.deepEqual(parseTensor(input("FP32", -1, 2), "1 2 3 4 5 6").shape, [1, 3, 2]);
  assert.throws(() => parseTensor(input("FP32", -1, 2), "1 2 3"), /expected a multiple of 2 values for shape \[any, 2\], got 3/);
  assert.throws(() => parseTensor(input("FP32", -1, -1), "1 2"), /expected nested JSON, because more than one axis/);
});

test("an input without an axis of rows keeps its shape", () => {
  assert.deepEqual(parseTensor({ name: "x", datatype: "FP64", shape: [2, 2] }, "[[1, 2], [3, 4]]").shape, [2, 2]);
});

test("lists of different length or depth are refused", () => {
  for (const text of ["[[1, 2], [3]]", "[[1], 2]", "[[[1]], [2]]"])
    assert.throws(() => parseTensor(input("FP32", 2, 2), text), /evenly nested lists/, text);
});

test("the ends of each type are accepted, and what is beyond is not", () => {
  for (const [datatype, low, high] of [
    ["INT8", -128, 127],
    ["UINT8", 0, 255],
    ["INT16", -32_768, 32_767],
    ["UINT32", 0, 4_294_967_295],
    ["INT64", Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
  ]) {
    assert.deepEqual(tensorFromValues(input(datatype, 2), [low, high], [2]).data, [low, high]);
    for (const value of [low - 1, high + 1, 0.5])
      assert.throws(() => tensorFromValues(input(datatype, 1), [value], [1]), new RegExp(`value 1: expected a whole number from ${low} `));
  }
});

test("float32 ends at its highest number, and has neither NaN nor infinity", () => {
  assert.deepEqual(parseTensor(input("FP32", 2), "3.4028234663852886e38, -0").data, [3.4028234663852886e38, -0]);
  for (const text of ["3.5e38", "1e21 -1e39"])
    assert.throws(() => parseTensor(input("FP32", text.split(" ").length), text), /of magnitude at most 3\.4/);
  assert.throws(() => parseTensor(input("FP32", 1), "nan"), /expected numbers, got "nan"/);
  assert.throws(() => parseTensor(input("FP32", 1), "Infinity"), /value 1: expected a number, got Infinity/);
  assert.throws(() => parseTensor(input("FP32", 1), "[null]"), /value 1: expected a number, got null/);
});

test("booleans are words or 0 and 1, but in JSON no numbers", () => {
  assert.deepEqual(parseTensor(input("BOOL", 4), "true FALSE 1 0").data, [true, false, true, false]);
  assert.throws(() => parseTensor(input("BOOL", 1), "[1]"), /value 1: expected true or false, got 1/);
  assert.throws(() => parseTensor(input("BOOL", 1), "2"), /expected true or false, got 2/);
});

test("a shape matches axes of any length", () => {
  assert.equal(shapeMatches([3, 7], [3, -1]), true);
  assert.equal(shapeMatches([3, 7], [3]), false);
  assert.equal(shapeMatches([], []), true);
});

test("a row of a million values is read", () => {
  const text = Array.from({ length: 1_000_000 }, (_, n) => n % 10).join(",");
  assert.equal(parseTensor(input("FP32", 1_000_000), text).data.length, 1_000_000);
});
