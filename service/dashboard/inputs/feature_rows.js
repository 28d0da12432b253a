// Finds the features of a model in a table, and draws random rows from what real rows are like.

import { parseCsv } from "./csv_text.js";

// more rows are not scored on the page
const MAX_ROWS = 100_000;

/**
 * @typedef {{name: string, unit: string, low: number, high: number, mean: number, sd: number}} Feature
 *
 * @typedef {object} FeatureTable
 * @property {string[]} header  the names of all columns of the file
 * @property {{line: number, cells: string[], values: number[]}[]} rows  `values` are those of the features
 */

/**
 * The rows of a CSV text: columns with the names of the features, in any order and among others, or without
 * names in the order of the model. Throws an Error that names the line and the column.
 *
 * @param {Feature[]} features
 * @returns {FeatureTable}
 */
export function readFeatureTable(text, features) {
  const records = parseCsv(text);
  if (records.length === 0) throw new Error("expected rows, got an empty file");
  const names = features.map(({ name }) => name);
  const first = records[0].cells.map((cell) => cell.trim());
  const hasHeader = !first.some(isNumber) || names.every((name) => first.includes(name));
  const header = hasHeader ? first : names;
  const missing = names.filter((name) => !header.includes(name));
  if (missing.length > 0) {
    const others = header.filter((name) => !names.includes(name));
    const got = others.length > 0 ? `; other columns are "${others.slice(0, 5).join('", "')}"` : "";
    throw new Error(`expected a column "${missing[0]}", which is missing${got}`);
  }
  const bodyRecords = hasHeader ? records.slice(1) : records;
  if (bodyRecords.length === 0) throw new Error("expected rows after the names, got none");
  if (bodyRecords.length > MAX_ROWS) {
    throw new Error(`expected at most ${MAX_ROWS} rows, got ${bodyRecords.length}`);
  }
  const order = names.map((name) => header.indexOf(name));
  const rows = bodyRecords.map(({ line, cells }) => {
    if (cells.length !== header.length) {
      throw new Error(`line ${line}: expected ${header.length} columns, got ${cells.length}`);
    }
    const values = order.map((column) => {
      if (!isNumber(cells[column])) {
        throw new Error(`line ${line}, column "${header[column]}": expected a number, got "${cells[column]}"`);
      }
      return Number(cells[column]);
    });
    return { line, cells, values };
  });
  return { header, rows };
}

/** A value for each feature from its mean and standard deviation, within its range. */
export function randomFeatures(features, random = Math.random) {
  return features.map((feature) => {
    // Box-Muller; 1 - random() is never 0
    const normal = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    return roundedWithin(feature, feature.mean + feature.sd * normal);
  });
}

/** The value with as many decimals as the range of its feature needs, and within that range. */
export function roundedWithin({ low, high }, value) {
  const decimals = Math.min(12, Math.max(0, 2 - Math.floor(Math.log10(high - low || 1))));
  return Math.min(high, Math.max(low, Number(value.toFixed(decimals))));
}

function isNumber(cell) {
  return cell.trim() !== "" && Number.isFinite(Number(cell));
}
