// Shows an output without classes as numbers: a table, or a heat map for two-dimensional values.

import { drawHeatmap } from "../charts/heatmap.js";
import { el } from "../dom/element.js";
import { number, shapeText } from "../dom/number_format.js";
import { tableColumn } from "../dom/table_column.js";

// values in the table, and in a heat map
const MAX_TABLE_VALUES = 200;
const MAX_MAP_VALUES = 60_000;

/** An output and, if there is one, the same output with a lesion. */
export function outputValues(output, lesioned) {
  return el(
    "section",
    { class: "plain-output", "aria-label": `Output ${output.name}` },
    el("h3", {}, el("code", {}, output.name), ` ${output.datatype}, ${shapeText(output.shape)}`),
    valueNodes(output, lesioned),
  );
}

function valueNodes(output, lesioned) {
  // axes of length 1, such as that of rows, carry no information
  const dims = output.shape.filter((dim) => dim !== 1);
  const numeric = output.datatype !== "BYTES";
  if (numeric && dims.length === 2 && output.data.length <= MAX_MAP_VALUES) {
    return [heatmapOf(output, dims, "as trained"), lesioned && heatmapOf(lesioned, dims, "with changes")];
  }
  return table(output, lesioned);
}

function heatmapOf({ name, data }, [height, width], title) {
  const figure = el("figure");
  const values = Float64Array.from(data, Number);
  const z = Array.from({ length: height }, (_, row) => values.subarray(row * width, (row + 1) * width));
  drawHeatmap(figure, {
    label: `${name}, ${title}: ${height} rows of ${width} values`,
    z,
    rows: z.map((_, row) => String(row)),
    columns: { title: "column" },
    scale: values.some((value) => value < 0) ? "signed" : "plain",
    hover: { row: "row", column: "column", value: "value" },
    height: 220,
  }).catch(reportError);
  return figure;
}

function table({ data, shape }, lesioned) {
  const isCut = data.length > MAX_TABLE_VALUES;
  const column = (title, values) => tableColumn(title, Array.from(values.slice(0, MAX_TABLE_VALUES), valueText));
  const columns = [
    column(lesioned ? "as trained" : "value", data),
    lesioned && column("with changes", lesioned.data),
  ].filter(Boolean);
  const rows = columns[0].cells.map((_, index) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, indexText(index, shape)),
      columns.map(({ cells }) => cells[index]),
    ),
  );
  return [
    el(
      "div",
      { class: "scroll", tabindex: "0" },
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col" }, "index"),
            columns.map(({ head }) => head),
          ),
        ),
        el("tbody", {}, rows),
      ),
    ),
    isCut && el("p", { class: "quiet" }, `The first ${MAX_TABLE_VALUES} of ${number(data.length)} values.`),
  ];
}

function indexText(index, shape) {
  const indices = [];
  for (let axis = shape.length - 1; axis > 0; axis--) {
    indices.unshift(index % shape[axis]);
    index = Math.floor(index / shape[axis]);
  }
  return indices.join(", ") || "0";
}

function valueText(value) {
  return typeof value === "string" ? value : number(Number(value));
}
