// Which rows of an input a .npy file holds: one, or many along its first axis.

import { parseNpy } from "./npy_parser.js";
import { shapeMatches } from "./tensor_parser.js";

/**
 * The rows of a file for an input: how many, and each as a list of values with its shape.
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
  const own = (form) => form.reduce((product, dim) => product * dim, 1);
  const one = rowShape(shape, dims);
  if (one) return { count: 1, row: () => ({ values: values(0, own(shape)), shape: one }) };
  const many = shape.length > 0 && first > 0 ? rowShape(rest, dims) : null;
  if (many) return { count: first, row: (i) => ({ values: values(i * own(rest), own(rest)), shape: many }) };
  throw new Error(
    `expected a row of shape [${said(dims)}] or many along a first axis, got shape [${said(shape)}]`,
  );
}

/** The shape of a row that this array can be, null where it is none. */
function rowShape(shape, dims) {
  const lean = (form) => form.filter((dim) => dim !== 1);
  if (shape.length === dims.length && shapeMatches(shape, dims)) return shape;
  const [has, wants] = [lean(shape), lean(dims)];
  if (has.length === wants.length && shapeMatches(has, wants)) {
    const left = [...has];
    return dims.map((dim) => (dim === 1 ? 1 : left.shift()));
  }
  const flat = !dims.includes(-1) && shape.length === 1;
  return flat && shape[0] === dims.reduce((product, dim) => product * dim, 1) ? dims : null;
}

function said(shape) {
  return shape.map((dim) => (dim === -1 ? "any" : dim)).join(", ");
}
