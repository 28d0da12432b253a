// A row of random values, within what the input takes.

import { rowDims } from "./tensor_parser.js";

/**
 * The values of a random row and its shape.
 *
 * @param {{low: number, high: number, lengths: number[]}} wish  the ends of the range, both of which may
 *   come, and a length for each axis of any length, in their order
 * @param {() => number} chance  from 0 up to but not 1
 */
export function randomRow(input, { low, high, lengths }, chance = Math.random) {
  const left = [...lengths];
  const dims = rowDims(input).map((dim) => (dim === -1 ? left.shift() : dim));
  const count = dims.reduce((product, dim) => product * dim, 1);
  return { dims, values: Array.from({ length: count }, () => value(input.datatype, low, high, chance())) };
}

function value(datatype, low, high, chance) {
  if (datatype === "BOOL") return chance < 0.5;
  if (!datatype.startsWith("FP"))
    return Math.ceil(low) + Math.floor(chance * (Math.floor(high) - Math.ceil(low) + 1));
  // four figures can be read, and are as random as any
  return Number((low + chance * (high - low)).toPrecision(4));
}
