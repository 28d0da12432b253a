// Creates a row of random values within the range of an input.

import { rowDims } from "./tensor_parser.js";

/**
 * The values of a random row and its shape.
 *
 * @param {import("../state/api_types.js").TensorMetadata} input
 * @param {{low: number, high: number, lengths: number[]}} options  ends of the range, both included, and the
 *   length of each axis of any length
 * @param {() => number} random  returns a number from 0 up to, but not including, 1
 */
export function randomRow(input, { low, high, lengths }, random = Math.random) {
  const remaining = [...lengths];
  const dims = rowDims(input).map((dim) => (dim === -1 ? (remaining.shift() ?? 1) : dim));
  const count = dims.reduce((product, dim) => product * dim, 1);
  return { dims, values: Array.from({ length: count }, () => value(input.datatype, low, high, random())) };
}

function value(datatype, low, high, fraction) {
  if (datatype === "BOOL") return fraction < 0.5;
  if (!datatype.startsWith("FP"))
    return Math.ceil(low) + Math.floor(fraction * (Math.floor(high) - Math.ceil(low) + 1));
  // four significant digits can still be read
  return Number((low + fraction * (high - low)).toPrecision(4));
}
