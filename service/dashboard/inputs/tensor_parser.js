// What a person writes for one input, as JSON or as plain numbers, turned into its tensor.

const WHOLE = {
  INT8: [-(2 ** 7), 2 ** 7 - 1],
  INT16: [-(2 ** 15), 2 ** 15 - 1],
  INT32: [-(2 ** 31), 2 ** 31 - 1],
  INT64: [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
  UINT8: [0, 2 ** 8 - 1],
  UINT16: [0, 2 ** 16 - 1],
  UINT32: [0, 2 ** 32 - 1],
  UINT64: [0, Number.MAX_SAFE_INTEGER],
};
const LARGEST = { FP32: 3.4028234663852886e38, FP64: Number.MAX_VALUE };

/** The axes of one row of an input; -1 is one of any length. */
export function rowDims(input) {
  return input.shape[0] === -1 ? input.shape.slice(1) : input.shape;
}

/** The tensor of what is written for an input; an Error names it, what was expected and what came. */
export function parseTensor(input, text) {
  const written = valuesOf(text, input);
  const shape = outline(written, input.name);
  return tensorFromValues(input, written.flat(shape.length - 1), rowShape(shape, input));
}

/** The tensor of a row's values, each of which has to be one that the input takes. */
export function tensorFromValues(input, values, dims) {
  const { name, datatype } = input;
  values.forEach((value, place) => expectValue(value, datatype, `${name}: value ${place + 1}`));
  return { name, datatype, shape: input.shape[0] === -1 ? [1, ...dims] : dims, data: values };
}

/** Whether an array of this shape has the axes that are wanted. */
export function shapeMatches(shape, dims) {
  return shape.length === dims.length && dims.every((dim, axis) => dim === -1 || dim === shape[axis]);
}

/** Axes as a person reads them. */
export function dimsText(dims) {
  return `[${dims.map((dim) => (dim === -1 ? "any" : dim)).join(", ")}]`;
}

function valuesOf(text, { name, datatype }) {
  const trimmed = text.trim();
  if (trimmed === "") throw new Error(`${name}: expected values, got none`);
  if (!trimmed.startsWith("[")) {
    return trimmed
      .split(/[\s,;]+/)
      .filter(Boolean)
      .map((word) => wordOf(word, datatype, name));
  }
  try {
    return JSON.parse(trimmed);
  } catch (error) {
    throw new Error(
      `${name}: expected JSON such as [1, 2] or numbers between commas, got a text that is neither`,
      {
        cause: error,
      },
    );
  }
}

function wordOf(word, datatype, name) {
  if (datatype === "BOOL" && /^(true|false|0|1)$/i.test(word))
    return word === "1" || word.toLowerCase() === "true";
  const value = Number(word);
  if (Number.isNaN(value)) throw new Error(`${name}: expected numbers, got "${word}"`);
  return value;
}

/** The shape of a row that is nested as the input has it, as a batch of one, or flat. */
function rowShape(shape, input) {
  const dims = rowDims(input);
  if (shapeMatches(shape, dims)) return shape;
  if (shape.length === dims.length + 1 && shape[0] === 1 && shapeMatches(shape.slice(1), dims))
    return shape.slice(1);
  if (shape.length === 1) return solved(shape[0], dims, input.name);
  throw new Error(
    `${input.name}: expected values of shape ${dimsText(dims)}, flat or nested, got shape ${dimsText(shape)}`,
  );
}

function outline(written, name) {
  const shape = [];
  for (let level = [written]; Array.isArray(level[0]); level = level.flat()) {
    const [{ length }] = level;
    if (!level.every((part) => Array.isArray(part) && part.length === length)) {
      throw new Error(
        `${name}: expected lists that are evenly nested, got some longer or deeper than others`,
      );
    }
    shape.push(length);
    if (length === 0) break;
  }
  return shape;
}

/** The shape of so many values that came flat: a single axis of any length follows from them. */
function solved(count, dims, name) {
  const free = dims.filter((dim) => dim === -1).length;
  const known = dims.reduce((product, dim) => (dim === -1 ? product : product * dim), 1);
  if (free > 1)
    throw new Error(`${name}: expected nested JSON, since more than one axis of ${dimsText(dims)} varies`);
  if (free === 0 && count !== known) {
    throw new Error(`${name}: expected ${known} values for shape ${dimsText(dims)}, got ${count}`);
  }
  if (free === 1 && (count === 0 || count % known !== 0)) {
    throw new Error(`${name}: expected a multiple of ${known} values for shape ${dimsText(dims)}, got ${count}`);
  }
  return dims.map((dim) => (dim === -1 ? count / known : dim));
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
  const whole = WHOLE[datatype];
  if (whole && !(Number.isInteger(value) && value >= whole[0] && value <= whole[1])) {
    throw new Error(
      `${where}: expected a whole number from ${whole[0]} to ${whole[1]} (${datatype}), got ${value}`,
    );
  }
  if (Math.abs(value) > (LARGEST[datatype] ?? Infinity)) {
    throw new Error(
      `${where}: expected a number of at most ${LARGEST[datatype]} in size (${datatype}), got ${value}`,
    );
  }
}
