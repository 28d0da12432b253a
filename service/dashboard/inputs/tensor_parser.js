// Parses the text typed for an input, JSON or plain numbers, into a tensor.

const INTEGER_RANGES = {
  INT8: [-(2 ** 7), 2 ** 7 - 1],
  INT16: [-(2 ** 15), 2 ** 15 - 1],
  INT32: [-(2 ** 31), 2 ** 31 - 1],
  INT64: [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
  UINT8: [0, 2 ** 8 - 1],
  UINT16: [0, 2 ** 16 - 1],
  UINT32: [0, 2 ** 32 - 1],
  UINT64: [0, Number.MAX_SAFE_INTEGER],
};
const FLOAT_LIMITS = { FP32: 3.4028234663852886e38, FP64: Number.MAX_VALUE };

/**
 * @typedef {import("../state/api_types.js").TensorMetadata} TensorMetadata
 *
 * @typedef {import("../state/store.js").Tensor} Tensor
 */

/**
 * The axes of one row of an input; -1 is an axis of any length.
 *
 * @param {TensorMetadata} input
 */
export function rowDims(input) {
  return input.shape[0] === -1 ? input.shape.slice(1) : input.shape;
}

/**
 * Parse a text into the tensor of an input. Throws an Error that names the input and what was expected.
 *
 * @param {TensorMetadata} input
 * @param {string} text
 */
export function parseTensor(input, text) {
  const nested = parseValues(text, input);
  const shape = nestedShape(nested, input.name);
  return tensorFromValues(input, nested.flat(shape.length - 1), matchingRowShape(shape, input));
}

/**
 * The tensor of a row's values; throws an Error if the input does not accept one of them.
 *
 * @param {TensorMetadata} input
 * @param {(number|boolean)[]} values
 * @param {number[]} dims
 * @returns {Tensor}
 */
export function tensorFromValues(input, values, dims) {
  const { name, datatype } = input;
  values.forEach((value, place) => expectValue(value, datatype, `${name}: value ${place + 1}`));
  return { name, datatype, shape: input.shape[0] === -1 ? [1, ...dims] : dims, data: values };
}

/**
 * Whether a shape has these axes, of which -1 matches any length.
 *
 * @param {number[]} shape
 * @param {number[]} dims
 */
export function shapeMatches(shape, dims) {
  return shape.length === dims.length && dims.every((dim, axis) => dim === -1 || dim === shape[axis]);
}

/** Axes as text, for example [3, any]. */
export function dimsText(dims) {
  return `[${dims.map((dim) => (dim === -1 ? "any" : dim)).join(", ")}]`;
}

function parseValues(text, { name, datatype }) {
  const trimmed = text.trim();
  if (trimmed === "") throw new Error(`${name}: expected values, got none`);
  if (!trimmed.startsWith("[")) {
    return trimmed
      .split(/[\s,;]+/)
      .filter(Boolean)
      .map((word) => parseWord(word, datatype, name));
  }
  try {
    return JSON.parse(trimmed);
  } catch (error) {
    throw new Error(`${name}: expected JSON such as [1, 2] or numbers separated by commas, got neither`, {
      cause: error,
    });
  }
}

function parseWord(word, datatype, name) {
  if (datatype === "BOOL" && /^(true|false|0|1)$/i.test(word))
    return word === "1" || word.toLowerCase() === "true";
  const value = Number(word);
  if (Number.isNaN(value)) throw new Error(`${name}: expected numbers, got "${word}"`);
  return value;
}

/** The shape of a row that is nested like the input, as a batch of one, or flat. */
function matchingRowShape(shape, input) {
  const dims = rowDims(input);
  if (shapeMatches(shape, dims)) return shape;
  if (shape.length === dims.length + 1 && shape[0] === 1 && shapeMatches(shape.slice(1), dims))
    return shape.slice(1);
  if (shape.length === 1) return flatRowShape(shape[0], dims, input.name);
  throw new Error(
    `${input.name}: expected values of shape ${dimsText(dims)}, flat or nested, got shape ${dimsText(shape)}`,
  );
}

function nestedShape(nested, name) {
  const shape = [];
  for (let level = [nested]; Array.isArray(level[0]); level = level.flat()) {
    const [{ length }] = level;
    if (!level.every((part) => Array.isArray(part) && part.length === length)) {
      throw new Error(`${name}: expected evenly nested lists, got lists of different length or depth`);
    }
    shape.push(length);
    if (length === 0) break;
  }
  return shape;
}

/** The shape of a flat list of values; the length of one variable axis follows from their number. */
function flatRowShape(count, dims, name) {
  const variableAxes = dims.filter((dim) => dim === -1).length;
  const knownCount = dims.reduce((product, dim) => (dim === -1 ? product : product * dim), 1);
  if (variableAxes > 1)
    throw new Error(`${name}: expected nested JSON, because more than one axis of ${dimsText(dims)} varies`);
  if (variableAxes === 0 && count !== knownCount) {
    throw new Error(`${name}: expected ${knownCount} values for shape ${dimsText(dims)}, got ${count}`);
  }
  if (variableAxes === 1 && (count === 0 || count % knownCount !== 0)) {
    throw new Error(
      `${name}: expected a multiple of ${knownCount} values for shape ${dimsText(dims)}, got ${count}`,
    );
  }
  return dims.map((dim) => (dim === -1 ? count / knownCount : dim));
}

function expectValue(value, datatype, where) {
  if (datatype === "BOOL") {
    if (typeof value !== "boolean")
      throw new Error(`${where}: expected true or false, got ${JSON.stringify(value)}`);
    return;
  }
  if (typeof value !== "number" || !Number.isFinite(value)) {
    throw new Error(
      `${where}: expected a number, got ${typeof value === "number" ? value : JSON.stringify(value)}`,
    );
  }
  const integerRange = INTEGER_RANGES[datatype];
  if (integerRange && !(Number.isInteger(value) && value >= integerRange[0] && value <= integerRange[1])) {
    throw new Error(
      `${where}: expected a whole number from ${integerRange[0]} to ${integerRange[1]} (${datatype}), got ${value}`,
    );
  }
  if (Math.abs(value) > (FLOAT_LIMITS[datatype] ?? Infinity)) {
    throw new Error(
      `${where}: expected a number of magnitude at most ${FLOAT_LIMITS[datatype]} (${datatype}), got ${value}`,
    );
  }
}
