// A table with a title, a name for each row, and columns that are made with `tableColumn`.

import { el } from "./element.js";

/**
 * The table in a region that scrolls if it is too large.
 *
 * @param {string} title
 * @param {string} rowTitle  what the rows are
 * @param {{name: (string|Node)[]|string, marked?: boolean}[]} rows
 * @param {{head: HTMLElement, cells: HTMLElement[]}[]} columns
 */
export function dataTable(title, rowTitle, rows, columns) {
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
    el(
      "table",
      {},
      el("caption", {}, title),
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, rowTitle), columns.map(({ head }) => head))),
      el(
        "tbody",
        {},
        rows.map(({ marked, name }, n) =>
          el(
            "tr",
            { class: marked && "marked" },
            el("th", { scope: "row" }, name),
            columns.map(({ cells }) => cells[n]),
          ),
        ),
      ),
    ),
  );
}
