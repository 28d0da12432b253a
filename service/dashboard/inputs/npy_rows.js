// Rows in a .npy file: one row of an input, or several along the first axis.

import { parseNpy } from "./npy_parser.js";
import { shapeMatches } from "./tensor_parser.js";

/**
 * The rows in a file that fit an input: their number, and each as a list of values with its shape.
 *
 * @returns {{count: number, row: (index: number) => {values: (number|boolean)[], shape: number[]}}}
 */
export function rowsInNpy(buffer, input) {
  const { shape, kind, values } = parseNpy(buffer);
  const dims = input.shape[0] === -1 ? input.shape.slice(1) : input.shape;
  if ((kind === "b") !== (input.datatype === "BOOL")) {
    throw new Error(`expected ${input.datatype}, got values of another kind (${kind})`);
  }
  const [first, ...rest] = shape;
  const elementCount = (axes) => axes.reduce((product, dim) => product * dim, 1);
  const rowShape = matchingRowShape(shape, dims);
  if (rowShape) return { count: 1, row: () => ({ values: values(0, elementCount(shape)), shape: rowShape }) };
  const manyShape = shape.length > 0 && first > 0 ? matchingRowShape(rest, dims) : null;
  if (manyShape)
    return {
      count: first,
      row: (i) => ({ values: values(i * elementCount(rest), elementCount(rest)), shape: manyShape }),
    };
  throw new Error(
    `expected a row of shape [${shapeText(dims)}] or several along a first axis, got shape [${shapeText(shape)}]`,
  );
}

/** The shape that an array has as a row of the input, or null if it does not fit. */
function matchingRowShape(shape, dims) {
  const withoutOnes = (axes) => axes.filter((dim) => dim !== 1);
  if (shape.length === dims.length && shapeMatches(shape, dims)) return shape;
  const [shapeAxes, dimsAxes] = [withoutOnes(shape), withoutOnes(dims)];
  if (shapeAxes.length === dimsAxes.length && shapeMatches(shapeAxes, dimsAxes)) {
    const remaining = [...shapeAxes];
    return dims.map((dim) => (dim === 1 ? 1 : remaining.shift()));
  }
  const isFlat = !dims.includes(-1) && shape.length === 1;
  return isFlat && shape[0] === dims.reduce((product, dim) => product * dim, 1) ? dims : null;
}

function shapeText(shape) {
  return shape.map((dim) => (dim === -1 ? "any" : dim)).join(", ");
}
