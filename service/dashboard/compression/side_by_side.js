// The table that compares a compressed model with its original: units, work, size, answers and times.

import { dataTable } from "../dom/data_table.js";
import { el } from "../dom/element.js";
import { bytes, duration, finePercent, number, percent } from "../dom/number_format.js";
import { metricName, metricText } from "../models/metric_text.js";

/**
 * @param {import("../state/store.js").Model} model  the compressed model
 * @param {string|Node} originalName
 * @param {{rows: number, compressed: number, original: number}[]} runTimes  of live runs
 */
export function sideBySide({ name, version, certificate }, originalName, runTimes) {
  const lines = linesOf(certificate, runTimes);
  const column = (title, n) => ({
    head: el("th", { scope: "col", class: "number" }, title),
    cells: lines.map((line) => el("td", { class: "number" }, line[n])),
  });
  return dataTable(
    "The compressed model beside its original",
    "figure",
    lines.map(([title]) => ({ name: title })),
    [column(`${name}/${version}`, 1), column(originalName, 2), column("difference", 3)],
  );
}

function linesOf(certificate, runTimes) {
  const { bytes: size, compression } = certificate;
  const { units, units_whole, macs, macs_whole, bytes_whole } = compression;
  const { agreement, metric, metric_whole, faster } = compression;
  const metricOf = (value) => metricText(certificate, value, true);
  const smaller = (title, before, after, text) => [title, text(after), text(before), relative(after, before)];
  return [
    smaller("units", units_whole, units, (count) => count.toLocaleString("en")),
    smaller("multiplications per row", macs_whole, macs, number),
    smaller("size of the file", bytes_whole, size, bytes),
    ...(metric === null
      ? []
      : [[metricName(certificate), metricOf(metric), metricOf(metric_whole), points(metric - metric_whole)]]),
    ...(agreement === null ? [] : [["same answers", finePercent(agreement), "–", points(agreement - 1)]]),
    ...Object.entries(faster).map(([rows, times]) => [
      `${runText(rows)}, at compression`,
      "–",
      "–",
      speedText(times),
    ]),
    ...runTimes.map(({ rows, compressed, original }) => [
      `${runText(rows)}, live`,
      duration(compressed),
      duration(original),
      speedText(original / compressed),
    ]),
  ];
}

function runText(rows) {
  return `run of ${rows} ${Number(rows) === 1 ? "row" : "rows"}`;
}

function relative(after, before) {
  const change = after / before - 1;
  return `${change > 0 ? "+" : ""}${percent(change)}`;
}

/** A difference of shares in percentage points. */
function points(difference) {
  const text = (100 * difference).toFixed(2).replace("-", "−");
  return `${difference > 0 ? "+" : ""}${Number(text) === 0 ? "0" : text} points`;
}

function speedText(times) {
  return times >= 1 ? `${times.toFixed(2)}× faster` : `${(1 / times).toFixed(2)}× slower`;
}
