// Columns of tables. Numbers are aligned at the decimal point.

import { el } from "./element.js";

// what a number begins with, and words in place of one
const NUMERIC = /^(?:[<>] )?[−-]?[\d∞]|^(?:–|exact|)$/;
// digits before the point, the fraction with an exponent, and a unit
const DECIMAL = /^((?:[<>] )?[−-]?[\d,]+)(\.\d+(?:e[−-]?\d+)?)?( .*|×)?$/;

/**
 * The header and the cells of a column. If all its texts are numbers, they are aligned at the end, and shorter
 * fractions are followed by space.
 *
 * @param {string} title
 * @param {string[]} texts
 * @returns {{head: HTMLElement, cells: HTMLElement[]}}
 */
export function tableColumn(title, texts) {
  const numeric = texts.every((text) => NUMERIC.test(text));
  const matches = texts.map((text) => (numeric ? DECIMAL.exec(text) : null));
  const longest = Math.max(0, ...matches.map((match) => match?.[2]?.length ?? 0));
  const attributes = { class: numeric && "number" };
  return {
    head: el("th", { scope: "col", ...attributes }, title),
    cells: texts.map((text, n) => {
      const match = matches[n];
      return el("td", attributes, match ? padded(match, longest) : text);
    }),
  };
}

/**
 * The number and its unit, with space between them for the digits that the longest fraction has more.
 *
 * @param {RegExpExecArray} match  of DECIMAL
 * @param {number} longest
 */
function padded(match, longest) {
  const [, whole, fraction = "", unit = ""] = match;
  const rest = `.${"0".repeat(longest)}`.slice(fraction.length, longest);
  return [el("span", { "data-rest": rest || null }, whole, fraction), unit];
}
