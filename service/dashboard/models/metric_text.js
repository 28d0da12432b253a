// The measure of a model's quality: accuracy, or R² if it predicts a number.

import { finePercent, percent } from "../dom/number_format.js";

/** Its name. */
export function metricName({ task }) {
  return task === "number" ? "R²" : "accuracy";
}

/** A value of it, with two decimals of a percent if `fine`. */
export function metricText({ task }, value, fine = false) {
  if (task === "number") return value === null ? "–" : value.toFixed(fine ? 4 : 3).replace("-", "−");
  return fine ? finePercent(value) : percent(value);
}
