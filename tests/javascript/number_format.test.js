import assert from "node:assert/strict";
import test from "node:test";

import {
  bytes,
  count,
  duration,
  elapsed,
  finePercent,
  number,
  percent,
  shapeText,
} from "../../service/dashboard/dom/number_format.js";

const expectTexts = (format, texts) => {
  for (const [value, text] of texts) assert.equal(format(value), text, `${value}`);
};

test("numbers have three digits, above a thousand four, and at the ends a power", () => {
  expectTexts(number, [
    [0, "0"],
    [1234.56, "1,235"],
    [12.345, "12.3"],
    [0.012345, "0.0123"],
    [0.001, "0.001"],
    [0.00099, "9.9e−4"],
    [-0.5, "−0.5"],
    [-1e-7, "−1.0e−7"],
    [999.6, "1,000"],
    [123_456, "123,500"],
    [1e6, "1M"],
    [1_234_567, "1.2M"],
    [1.25e9, "1.3B"],
    [5e-324, "4.9e−324"],
  ]);
});

test("values that are no finite numbers have a sign of their own", () => {
  expectTexts(number, [[null, "–"], [undefined, "–"], [NaN, "–"], [Infinity, "∞"], [-Infinity, "−∞"]]);
  for (const format of [percent, finePercent, duration]) expectTexts(format, [[null, "–"], [NaN, "–"]]);
});

test("shares", () => {
  expectTexts(percent, [[0.1234, "12.3 %"], [0, "0 %"], [1, "100 %"], [-0.05, "−5 %"], [12.345, "1,230 %"]]);
  expectTexts(finePercent, [[0.92534, "92.53 %"], [1, "100.00 %"]]);
});

test("durations have the unit in which they are read best", () => {
  expectTexts(duration, [[0.0000123, "12.3 µs"], [0.0009, "900 µs"], [0.001, "1 ms"], [0.25, "250 ms"], [1, "1 s"], [90, "90 s"]]);
  expectTexts(elapsed, [[99, "99 s"], [100, "2 min"], [5999, "100 min"], [6000, "2 h"]]);
});

test("sizes and counts", () => {
  expectTexts(bytes, [[0, "0 bytes"], [1023, "1023 bytes"], [1024, "1 KiB"], [1.5 * 2 ** 20, "1.5 MiB"], [395_176, "386 KiB"], [98_881_024, "94.3 MiB"], [3 * 2 ** 30, "3 GiB"]]);
  expectTexts(count, [[58_788, "58,788"], [0, "0"]]);
});

test("axes of any length", () => {
  expectTexts(shapeText, [[[-1, 3, -1], "n × 3 × ?"], [[2, 0], "2 × 0"], [[], "a single value"]]);
});
