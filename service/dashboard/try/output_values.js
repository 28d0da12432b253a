// An output that tells no classes, as numbers: a table, or a map where it has rows and columns.

import { el } from "../dom/element.js";
import { number, shapeText } from "../dom/number_format.js";
import { drawHeatmap } from "../charts/heatmap.js";

// so many values stand in the table
const MOST = 200;
const MOST_IN_MAP = 60_000;

/** An output, and the same with a lesion where there is one. */
export function outputValues(output, lesioned) {
  return el(
    "section",
    { class: "plain-output", "aria-label": `Output ${output.name}` },
    el("h3", {}, el("code", {}, output.name), ` ${output.datatype}, ${shapeText(output.shape)}`),
    shown(output, lesioned),
  );
}

function shown(output, lesioned) {
  // the axis of rows has one place, and others of one say nothing either
  const dims = output.shape.filter((dim) => dim !== 1);
  const numeric = output.datatype !== "BYTES";
  if (numeric && dims.length === 2 && output.data.length <= MOST_IN_MAP) {
    return [map(output, dims, "as it is"), lesioned && map(lesioned, dims, "as changed")];
  }
  return table(output, lesioned);
}

function map({ name, data }, [height, width], what) {
  const figure = el("figure");
  const values = Float64Array.from(data, Number);
  const z = Array.from({ length: height }, (_, row) => values.subarray(row * width, (row + 1) * width));
  drawHeatmap(figure, {
    label: `${name}, ${what}: ${height} rows of ${width} values`,
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
  const many = data.length > MOST;
  const rows = Array.from(data.slice(0, MOST), (value, place) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, placeOf(place, shape)),
      el("td", { class: "number" }, said(value)),
      lesioned && el("td", { class: "number" }, said(lesioned.data[place])),
    ),
  );
  const head = ["place", "value", lesioned && "as changed"].filter(Boolean);
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
            head.map((name) => el("th", { scope: "col" }, name)),
          ),
        ),
        el("tbody", {}, rows),
      ),
    ),
    many && el("p", { class: "quiet" }, `The first ${MOST} of ${number(data.length)} values.`),
  ];
}

function placeOf(place, shape) {
  const places = [];
  for (let axis = shape.length - 1; axis > 0; axis--) {
    places.unshift(place % shape[axis]);
    place = Math.floor(place / shape[axis]);
  }
  return places.join(", ") || "0";
}

function said(value) {
  return typeof value === "string" ? value : number(Number(value));
}
