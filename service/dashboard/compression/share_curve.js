// The curve of a compression: accuracy and equal answers, and times faster, by the share of units that is left.

import { drawLines } from "../charts/line_chart.js";
import { titledChart } from "../charts/titled_chart.js";
import { dataTable } from "../dom/data_table.js";
import { el } from "../dom/element.js";
import { finePercent, number, percent } from "../dom/number_format.js";
import { tableColumn } from "../dom/table_column.js";

// shares closer than this count as one
const SHARE_TOLERANCE = 5e-4;
const LABEL = "Accuracy and same answers by the share of units that is left.";

/** The chart of accuracy and same answers. */
export function shareChart(compression) {
  const { curve, finetune_epochs: epochs, rows } = compression;
  const { node, figure } = titledChart(
    "Other shares of the units",
    `On ${rows.toLocaleString("en")} rows${epochs ? ", without the training that this file had afterwards" : ""}.`,
  );
  drawCurve(figure, epochs ? curve : withFile(compression));
  return node;
}

/** The table of all figures; the row of the file is marked. */
export function shareTable(compression) {
  const points = withFile(compression);
  const column = (title, textOf) => tableColumn(title, points.map(textOf));
  const names = points.map(({ share, isFile }) => ({
    marked: isFile,
    name: isFile ? [percent(share), " ", el("span", { class: "tag" }, "this file")] : percent(share),
  }));
  const title = "Other shares of the units, and times that a run is faster, by its rows";
  return dataTable(title, "units", names, [
    column("multiplications", ({ macs }) => percent(macs)),
    ...(points.every(({ metric }) => metric === null)
      ? []
      : [column("accuracy", ({ metric }) => finePercent(metric))]),
    column("same answers", ({ agreement }) => finePercent(agreement)),
    ...Object.keys(points[0].faster).map((rows) =>
      column(`${rows} ${rows === "1" ? "row" : "rows"}`, ({ faster }) => timesText(faster[rows])),
    ),
  ]);
}

function timesText(times) {
  return times === undefined ? "–" : `${times.toFixed(2)}×`;
}

/** The points with that of the file, from the largest share to the smallest. */
function withFile({ curve, units, units_whole, macs, macs_whole, agreement, metric, faster, finetune_epochs }) {
  const file = { share: units / units_whole, macs: macs / macs_whole, agreement, metric, faster, isFile: true };
  const isOther = ({ share }) => finetune_epochs > 0 || Math.abs(share - file.share) >= SHARE_TOLERANCE;
  return [...curve.filter(isOther), file].sort((a, b) => b.share - a.share);
}

function drawCurve(figure, points) {
  const series = [
    { name: "accuracy", y: points.map(({ metric }) => metric), format: finePercent },
    { name: "same answers", y: points.map(({ agreement }) => agreement), format: finePercent },
  ].filter(({ y }) => y.some((value) => value !== null));
  const lowest = Math.min(...series.flatMap(({ y }) => y));
  drawLines(figure, {
    label: LABEL,
    x: points.map(({ share }) => number(100 * share)),
    series,
    xTitle: "units that are left, in %",
    yTitle: "share of the rows",
    yFormat: ".0%",
    range: [Math.max(0, lowest - 0.05), 1.02],
  });
}
