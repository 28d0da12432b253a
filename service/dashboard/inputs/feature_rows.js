// Finds the features of a model in a table, and draws random rows from what real rows are like.

import { delimiterOf, parseCsv } from "./csv_text.js";
import { hasCells, numberOf } from "./table_cells.js";

// a column between whole numbers that are at least this far apart is taken for one of whole numbers
const MIN_WHOLE_RANGE = 5;

// more rows are not scored on the page
const MAX_ROWS = 100_000;

/**
 * @typedef {object} FeatureTable
 * @property {string[]} header  the names of all columns of the file
 * @property {{line: number, cells: string[], values: number[], instance: (number|string|null)[]}[]} rows
 *   `values` are the numbers of the features, NaN for a blank, and `instance` is the row for the service
 */

/**
 * The rows of a CSV text: columns with the names of the features, in any order and among others, or without
 * names in the order of the model. A column that may be blank may be missing. Throws an Error that names the
 * line and the column.
 *
 * @param {import("./table_cells.js").Feature[]} features
 * @returns {FeatureTable}
 */
export function readFeatureTable(text, features) {
  const records = parseCsv(text, delimiterOf(text));
  if (records.length === 0) throw new Error("expected rows, got an empty file");
  const names = features.map(({ name }) => name);
  const first = records[0].cells.map((cell) => cell.trim());
  const hasHeader = isHeader(first, features);
  const header = hasHeader ? first : names;
  const missing = features.filter(({ name, blanks }) => !blanks && !header.includes(name));
  if (missing.length > 0 || !names.some((name) => header.includes(name))) {
    const others = header.filter((name) => !names.includes(name));
    const got = others.length > 0 ? `; other columns are "${others.slice(0, 5).join('", "')}"` : "";
    throw new Error(`expected a column "${(missing[0] ?? features[0]).name}", which is missing${got}`);
  }
  expectNoMisspelled(features, header);
  const bodyRecords = hasHeader ? records.slice(1) : records;
  if (bodyRecords.length === 0) throw new Error("expected rows after the names, got none");
  if (bodyRecords.length > MAX_ROWS) {
    throw new Error(`expected at most ${MAX_ROWS} rows, got ${bodyRecords.length}`);
  }
  const order = names.map((name) => header.indexOf(name));
  const sendCells = hasCells(features);
  const read = sendCells ? numberOf : plainNumber;
  const rows = bodyRecords.map(({ line, cells }) => {
    if (cells.length !== header.length) {
      throw new Error(`line ${line}: expected ${header.length} columns, got ${cells.length}`);
    }
    const values = order.map((column, place) => {
      if (column < 0) return NaN;
      try {
        return read(features[place], cells[column]);
      } catch (error) {
        throw new Error(`line ${line}, column "${header[column]}": ${error.message}`, { cause: error });
      }
    });
    // the service reads the cells itself, unless all are plain numbers
    const instance = sendCells ? order.map((column) => cells[column] ?? null) : values;
    return { line, cells, values, instance };
  });
  return { header, rows };
}

/** A value for each feature as in real rows, within its range: by its mean and standard deviation, or any word. */
export function randomFeatures(features, random = Math.random) {
  return features.map((feature) => {
    const { kind, low, high, mean, sd, categories } = feature;
    if (kind === "category") return Math.floor(random() * (categories.length || high + 1));
    if (kind === "boolean") return Number(random() < mean);
    // Box-Muller; 1 - random() is never 0
    const normal = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    const drawn = mean + sd * normal;
    return kind === "date" ? Math.round(Math.min(high, Math.max(low, drawn))) : roundedWithin(feature, drawn);
  });
}

/** The mean of each feature, or the word, day or boolean in the middle. */
export function meanFeatures(features) {
  return features.map((feature) =>
    feature.kind === "number" ? roundedWithin(feature, feature.mean) : Math.round(feature.mean),
  );
}

/** The value with as many decimals as the range of its feature needs, and within that range. */
export function roundedWithin(feature, value) {
  const { low, high } = feature;
  if (hasWholeNumbers(feature)) return Math.round(Math.min(high, Math.max(low, value)));
  const decimals = Math.min(12, Math.max(0, 2 - Math.floor(Math.log10(high - low || 1))));
  return Math.min(high, Math.max(low, Number(value.toFixed(decimals))));
}

/** Whether the column seems to have whole numbers alone, such as a year, a count, or 0 and 1. */
function hasWholeNumbers({ low, high, mean, sd }) {
  if (!Number.isInteger(low) || !Number.isInteger(high)) return false;
  // the standard deviation that zeros and ones have; numbers that were scaled to this range have a smaller one
  if (low === 0 && high === 1) return Math.abs(sd * sd - mean * (1 - mean)) < 1e-3;
  return high - low >= MIN_WHOLE_RANGE;
}

/** Refuse a file in which a column that may be blank is missing, and another has almost its name. */
function expectNoMisspelled(features, header) {
  const others = header.filter((name) => features.every((feature) => feature.name !== name));
  for (const { name } of features.filter((feature) => !header.includes(feature.name))) {
    const meant = others.find((other) => isAlmost(other, name));
    if (meant !== undefined) throw new Error(`expected a column "${name}", got "${meant}": rename it, or leave it out`);
  }
}

/** Whether two names differ only by case, spaces and dashes, or by one or two letters of many. */
function isAlmost(first, second) {
  const [a, b] = [first, second].map((name) => name.toLowerCase().replace(/[\s_-]/g, ""));
  return a === b || (Math.min(a.length, b.length) >= 4 && editDistance(a, b) <= (a.length >= 8 ? 2 : 1));
}

/** Levenshtein's distance: the number of letters to insert, remove or replace. */
function editDistance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, n) => n);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + Number(a[i - 1] !== b[j - 1]));
    }
    row = next;
  }
  return row[b.length];
}

/** Whether these are names: some of the features, or else no values of them. */
function isHeader(cells, features) {
  const names = features.map(({ name }) => name);
  if (names.every((name) => cells.includes(name))) return true;
  if (!hasCells(features)) return !cells.some(isNumber);
  return names.some((name) => cells.includes(name)) || !cells.some((cell, place) => isValue(cell, features[place]));
}

/** Whether a cell is a value of its column that no name is. */
function isValue(cell, feature) {
  if (!feature) return isNumber(cell);
  if (feature.kind === "category") return feature.categories.includes(cell);
  try {
    numberOf(feature, cell);
    return true;
  } catch {
    return false;
  }
}

function plainNumber(_, cell) {
  if (!isNumber(cell)) throw new Error(`expected a number, got "${cell}"`);
  return Number(cell);
}

function isNumber(cell) {
  return cell.trim() !== "" && Number.isFinite(Number(cell));
}
