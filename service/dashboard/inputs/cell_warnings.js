// What of a row the training did not have: values outside of its range, and words that it has not seen.

import { cellOf } from "./table_cells.js";

// warnings that are shown; the others are counted
const MAX_SHOWN = 3;
// share of a number by which float32 may round it, and more
const SPREAD = 1e-6;

/**
 * Sentences about the cells of a row, as numbers of the network; no sentence about a blank.
 *
 * @param {import("./table_cells.js").Feature[]} features
 * @param {number[]} values
 */
export function cellWarnings(features, values) {
  const warnings = features.map((feature, place) => warning(feature, values[place])).filter(Boolean);
  const rest = warnings.length - MAX_SHOWN;
  return [...warnings.slice(0, MAX_SHOWN), ...(rest > 0 ? [`${rest} more`] : [])];
}

function warning(feature, value) {
  const { name, kind, low, high, categories } = feature;
  if (!Number.isFinite(value)) return null;
  if (kind === "boolean") return null;
  if (kind === "category") {
    // without words, nothing says which are known
    const isStrange = categories.length > 0 && value >= categories.length;
    return isStrange ? `${name}: a word that training has not seen` : null;
  }
  const spread = SPREAD * Math.max(Math.abs(low), Math.abs(high));
  const text = (cell) => (kind === "date" ? String(cellOf(feature, cell)) : allDigits(cell));
  if (value > high + spread) return `${name}: ${text(value)} is above ${text(high)}, the highest of training`;
  if (value < low - spread) return `${name}: ${text(value)} is below ${text(low)}, the lowest of training`;
  return null;
}

/** A number with the digits of float32. */
function allDigits(value) {
  return value.toLocaleString("en", { maximumSignificantDigits: 7 }).replace("-", "−");
}
