// The curve of a compression: accuracy and equal answers, and times faster, by the share of units that is left.

import { drawLines } from "../charts/line_chart.js";
import { titledChart } from "../charts/titled_chart.js";
import { dataTable } from "../dom/data_table.js";
import { el } from "../dom/element.js";
import { finePercent, number, percent } from "../dom/number_format.js";
import { tableColumn } from "../dom/table_column.js";
import { metricName, metricText } from "../models/metric_text.js";

const LABEL = "Accuracy and same answers by the share of units that is left.";

/** The chart of accuracy and same answers; null if the output has no classes, so that neither is known. */
export function shareChart({ compression, precision }) {
  if (compression.agreement === null) return null;
  const { curve, rows } = compression;
  const differs = differsFromCurve(compression, precision);
  const { node, figure } = titledChart(
    "Other shares of the units",
    `On ${rows.toLocaleString("en")} rows${differs ? ", in fp32 and without training after the cut" : ""}.`,
  );
  drawCurve(figure, differs ? curve : withFile(compression, precision));
  return node;
}

/** The table of all figures; the row of the file is marked. */
export function shareTable(certificate) {
  const { compression, precision } = certificate;
  const points = withFile(compression, precision);
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
      : [column(metricName(certificate), ({ metric }) => metricText(certificate, metric, true))]),
    ...(points.every(({ agreement }) => agreement === null)
      ? []
      : [column("same answers", ({ agreement }) => finePercent(agreement))]),
    ...Object.keys(points[0].faster).map((rows) =>
      column(`${rows} ${rows === "1" ? "row" : "rows"}`, ({ faster }) => timesText(faster[rows])),
    ),
  ]);
}

function timesText(times) {
  return times === undefined ? "–" : `${times.toFixed(2)}×`;
}

/**
 * Whether the file is not a point of the curve, which is in fp32 and without training. The report has the same rule:
 * `differs_from_curve` in export/compression_curve.py.
 */
function differsFromCurve({ finetune_epochs: epochs }, precision) {
  return epochs > 0 || precision !== "fp32";
}

/** The points with that of the file, from the largest share to the smallest. */
function withFile(compression, precision) {
  const { curve, units, units_whole, macs, macs_whole, agreement, metric, faster } = compression;
  const work = macs_whole ? macs / macs_whole : 1;
  const file = { share: units / units_whole, macs: work, agreement, metric, faster, isFile: true };
  const isOther = ({ share }) =>
    differsFromCurve(compression, precision) || Math.round(share * units_whole) !== units;
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
