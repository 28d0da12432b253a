// Cells of a table as people write them, and the numbers that a network gets for them. The service has the same
// rules (`common/columns.py`); here they fill the form from a cell, and show a row of numbers as cells.

import { dateText, parseDate } from "./date_cells.js";

/** Stands for any word that was not in the training. */
export const ANOTHER_WORD = "another word";

// cells without a value, in any case, and those of columns whose other cells are no words
const BLANKS = new Set(["", "na", "n/a", "#n/a", "<na>", "nan", "null"]);
const WEAK_BLANKS = new Set([...BLANKS, "none", "-", "--", "?", ".", "n.a."]);
/** @type {Map<string, number>} */
const BOOLEANS = new Map();
for (const word of ["true", "yes", "t", "y"]) BOOLEANS.set(word, 1);
for (const word of ["false", "no", "f", "n"]) BOOLEANS.set(word, 0);
const GROUPS = String.raw`\d{1,3}(?:[ \u00a0\u202f']\d{3})+`;
const EXPONENT = String.raw`(?:e[+-]?\d+)?`;
const WITH_POINT = new RegExp(
  String.raw`^[+-]?(?:\d+\.?\d*|\.\d+|(?:\d{1,3}(?:,\d{3})+|${GROUPS})(?:\.\d*)?)${EXPONENT}$`,
  "i",
);
const WITH_COMMA = new RegExp(
  String.raw`^[+-]?(?:\d+,?\d*|,\d+|(?:\d{1,3}(?:\.\d{3})+|${GROUPS})(?:,\d*)?)${EXPONENT}$`,
  "i",
);
const EXPECTED = { number: "a number", boolean: "true or false", category: "a word" };

/**
 * @typedef {object} Feature  a column of a table, from the certificate
 * @property {string} name
 * @property {string} unit
 * @property {number} low  of the numbers that the network gets, like the next three
 * @property {number} high
 * @property {number} mean
 * @property {number} sd
 * @property {"number"|"boolean"|"category"|"date"} kind
 * @property {string[]} categories  the words of a category; none if they are not published
 * @property {string} date_format  "iso", or a format of Python's strptime
 * @property {boolean} decimal_comma
 * @property {string} affix  before or behind each number
 * @property {boolean} blanks  whether cells may be blank
 */

/**
 * Whether a table has more than plain numbers, so that its rows are sent as cells.
 *
 * @param {Feature[]} features
 */
export function hasCells(features) {
  return features.some(
    ({ kind, blanks, decimal_comma: comma, affix }) => kind !== "number" || blanks || comma || affix,
  );
}

/** Whether people can write the cells of all columns: a category may keep its words to itself. */
export function canBeWritten(features) {
  return features.every((feature) => !isIndex(feature));
}

/** Whether a column holds categories whose words are not published, so that only their indices are known. */
export function isIndex({ kind, categories }) {
  return kind === "category" && categories.length === 0;
}

/**
 * The cell with this number, as JSON has it.
 *
 * @param {Feature} feature
 * @param {number} number
 */
export function cellOf(feature, number) {
  if (Number.isNaN(number)) return null;
  if (feature.kind === "boolean") return number !== 0;
  if (feature.kind === "date") return dateText(number, feature.date_format);
  return feature.kind === "category" && !isIndex(feature) ? wordOf(feature, number) : number;
}

/**
 * The number for the text of a cell, NaN for a blank. Throws an Error that says what was expected.
 *
 * @param {Feature} feature
 * @param {string} text
 */
export function numberOf(feature, text) {
  const cell = text.trim();
  const isBlank = (feature.kind === "category" ? BLANKS : WEAK_BLANKS).has(cell.toLowerCase());
  if (isBlank && feature.blanks) return NaN;
  const number = isBlank ? null : readNumber(feature, cell);
  if (number !== null) return number;
  const reason = isBlank ? ", since this column has no blanks" : "";
  throw new Error(`expected ${expectedCell(feature)}${reason}, got "${text}"`);
}

function readNumber(feature, cell) {
  const { kind, categories, date_format: form, decimal_comma: comma, affix } = feature;
  if (kind === "boolean") return BOOLEANS.get(cell.toLowerCase()) ?? zeroOrOne(parseNumber(cell, false, ""));
  if (kind === "date") return parseDate(cell, form);
  if (kind === "number") return parseNumber(cell, comma, affix);
  if (isIndex(feature)) return null;
  const place = categories.indexOf(cell);
  return place < 0 ? categories.length : place;
}

function expectedCell(feature) {
  const { kind, date_format: form, decimal_comma: comma } = feature;
  if (kind === "date") return `a date as ${form === "iso" ? "ISO 8601, such as 2024-12-31" : form}`;
  if (isIndex(feature)) return "no cell, since the model does not publish the words of this column";
  return kind === "number" && comma ? "a number with a decimal comma" : EXPECTED[kind];
}

function zeroOrOne(number) {
  return number === 0 || number === 1 ? number : null;
}

function parseNumber(cell, comma, affix) {
  let text = cell;
  if (affix && text.startsWith(affix)) text = text.slice(affix.length);
  if (affix && text.endsWith(affix)) text = text.slice(0, -affix.length);
  text = text.trim();
  if (!(comma ? WITH_COMMA : WITH_POINT).test(text)) return null;
  const plain = text.replace(/[ \u00a0\u202f']/g, "");
  return Number(comma ? plain.replaceAll(".", "").replace(",", ".") : plain.replaceAll(",", ""));
}

/** The word of an index; the index after the last one is that of words that were not in the training. */
function wordOf({ categories }, index) {
  let word = categories[index] ?? ANOTHER_WORD;
  while (index >= categories.length && categories.includes(word)) word = `yet ${word}`;
  return word;
}
