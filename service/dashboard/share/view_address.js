// Text form of what the page shows, as the fragment of its address:
//
//   #model=digits-10/1&row=64:0*2,5,13&title=drawn&levers=3:closed,5:-2.5&layer=7&a-row=…&a-title=…&a-levers=…
//
// A row is a list of numbers per input, each behind its shape without the rows' axis; `0*2` is two zeros. A text
// is a JSON string. The levers are those of levers.js; `layer` is the one that is looked at; `a-` marks the row that
// was kept for a comparison.

import { textFormatOf, textTensor } from "../inputs/text_tensor.js";
import { elementCount, toTypedArray } from "../state/tensors.js";

// longer addresses are cut off by programs that people send links with
const MAX_ROW_LENGTH = 8000;
// more values than a browser can hold are refused before they are counted
const MAX_VALUES = 10_000_000;
const WIDE_INTEGERS = new Set(["INT64", "UINT64"]);
const NUMBER_PATTERN = /^(NaN|-?(Infinity|\d+(\.\d+)?(e[+-]?\d+)?))$/;

/**
 * @typedef {object} SharedRow  a row with the levers of its layers
 * @property {import("../state/store.js").Row} row
 * @property {import("../state/levers.js").Levers} levers
 * @property {number|null} [layer]  the one that is looked at, if it is not the one that the levers lead to
 *
 * @typedef {{shown: SharedRow|null, kept: SharedRow|null}} SharedView
 */

/** The part of an address that follows the model, with its leading `&`; empty for an empty view. */
export function viewToText({ shown, kept }) {
  return [...rowFields(shown, ""), ...rowFields(kept, "a-")].map(([key, text]) => `&${key}=${text}`).join("");
}

/**
 * Parse the fragment of an address for a model.
 * @returns {SharedView} with an empty `shown` if the address names no row
 * @throws {Error} with a message for the user
 */
export function parseView(hash, model) {
  const fields = new Map(
    hash
      .slice(1)
      .split("&")
      .map((field) => [field.slice(0, field.indexOf("=")), field.slice(field.indexOf("=") + 1)]),
  );
  return { shown: parseSide(fields, "", model), kept: parseSide(fields, "a-", model) };
}

/** Whether a row is short enough for an address. */
export function fitsAddress(row) {
  return rowText(row).length <= MAX_ROW_LENGTH;
}

function rowFields(side, prefix) {
  if (!side || !fitsAddress(side.row)) return [];
  const { row, levers, layer = null } = side;
  const leverText = [...levers].map(([moved, lever]) => `${moved}:${lever}`).join(",");
  return [
    [`${prefix}row`, rowText(row)],
    [`${prefix}title`, encodeURIComponent(row.title)],
    ...(leverText ? [[`${prefix}levers`, leverText]] : []),
    ...(layer === null ? [] : [[`${prefix}layer`, String(layer)]]),
  ];
}

function rowText({ inputs }) {
  if (inputs[0].datatype === "BYTES") return encodeURIComponent(JSON.stringify(inputs[0].data[0]));
  return inputs.map((tensor) => `${tensor.shape.slice(1).join("x")}:${valuesText(tensor)}`).join(";");
}

/** Values with commas; equal neighbors are counted. */
function valuesText({ datatype, data }) {
  const runs = [];
  for (const value of data) {
    const last = runs.at(-1);
    if (last && Object.is(last.value, value)) last.count += 1;
    else runs.push({ value, count: 1 });
  }
  return runs
    .map(({ value, count }) => valueText(datatype, value) + (count > 1 ? `*${count}` : ""))
    .join(",");
}

function valueText(datatype, value) {
  if (datatype === "FP32") return shortest(Math.fround(value));
  return String(typeof value === "boolean" ? Number(value) : value);
}

/** The shortest decimal number that is read as the same float32. */
function shortest(value) {
  for (let digits = 1; digits <= 9; digits += 1) {
    const rounded = Number(value.toPrecision(digits));
    if (Math.fround(rounded) === value) return String(Object.is(value, -0) ? "-0" : rounded);
  }
  return String(value);
}

function parseSide(fields, prefix, model) {
  const text = fields.get(`${prefix}row`);
  if (text === undefined) return null;
  const row = decoded(text);
  const inputs = row.startsWith('"') ? [parseText(row, model)] : parseInputs(row, model);
  const title = decoded(fields.get(`${prefix}title`) ?? "") || "shared row";
  const layer = fields.get(`${prefix}layer`) ?? "";
  return {
    row: { title, inputs },
    levers: parseLevers(decoded(fields.get(`${prefix}levers`) ?? "")),
    layer: /^\d+$/.test(layer) ? Number(layer) : null,
  };
}

function parseInputs(row, model) {
  const parts = row.split(";");
  if (parts.length !== model.inputs.length)
    throw new Error(`expected ${model.inputs.length} inputs, got ${parts.length}`);
  return model.inputs.map((input, n) => parseInput(input, parts[n]));
}

function parseText(row, model) {
  const format = textFormatOf(model);
  if (format === null) throw new Error("expected numbers, since the model takes no text, got a text");
  try {
    return textTensor(format, String(JSON.parse(row)));
  } catch {
    throw new Error("expected a text in quotes");
  }
}

function parseInput({ name, datatype, shape }, text) {
  const [shapeText, valuesList = ""] = text.split(":");
  const dims = shapeText === "" ? [] : shapeText.split("x").map(Number);
  const expected = shape.slice(1);
  if (dims.length !== expected.length || dims.some((dim, n) => expected[n] !== -1 && dim !== expected[n]))
    throw new Error(`expected shape ${expected.join("x")} for ${name}, got ${shapeText}`);
  if (dims.some((dim) => !Number.isInteger(dim) || dim < 0) || elementCount(dims) > MAX_VALUES)
    throw new Error(`expected a shape such as 2x3 for ${name}, got ${shapeText}`);
  const values = parseValues(name, valuesList, elementCount(dims));
  const data = toTypedArray(datatype, WIDE_INTEGERS.has(datatype) ? values.map(parseInteger) : values.map(Number));
  if (!datatype.startsWith("FP") && values.some((value, n) => String(data[n]) !== value))
    throw new Error(`expected ${datatype} numbers for ${name}`);
  return { name, datatype, shape: [1, ...dims], data };
}

function parseInteger(text) {
  if (!/^-?\d+$/.test(text)) throw new Error(`expected whole numbers, got ${text}`);
  return BigInt(text);
}

/** The texts of the values behind a shape with `count` elements. */
function parseValues(name, text, count) {
  const values = [];
  for (const run of text === "" ? [] : text.split(",")) {
    const [value, times = "1"] = run.split("*");
    if (!NUMBER_PATTERN.test(value) || !/^[1-9]\d*$/.test(times))
      throw new Error(`expected numbers for ${name}, got ${run.slice(0, 20)}`);
    if (values.length + Number(times) > count) throw new Error(`expected ${count} values for ${name}, got more`);
    for (let n = 0; n < Number(times); n += 1) values.push(value);
  }
  if (values.length !== count) throw new Error(`expected ${count} values for ${name}, got ${values.length}`);
  return values;
}

function parseLevers(text) {
  const levers = new Map();
  for (const part of text === "" ? [] : text.split(",")) {
    const [layer, lever] = part.split(":");
    const value = lever === "closed" || lever === "open" ? lever : Number(lever);
    if (!/^\d+$/.test(layer) || lever === "" || Number.isNaN(value))
      throw new Error(`expected levers such as 3:closed, got ${part.slice(0, 20)}`);
    levers.set(Number(layer), value);
  }
  return levers;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error("expected an address without broken % escapes");
  }
}
