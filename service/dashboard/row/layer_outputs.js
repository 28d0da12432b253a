// What each layer hands on, and how much it has changed it.

import { drawBars } from "../charts/bar_chart.js";
import { eraseChart } from "../charts/chart.js";
import { el, setChildren } from "../dom/element.js";
import { percent } from "../dom/number_format.js";
import { groupUnitMeans } from "../gates/gate_groups.js";
import { drawHeatmap } from "../charts/heatmap.js";
import { unitMeans } from "./gate_values.js";

/** The chart in `body`; the answer draws it for a reading. */
export function startLayerOutputs(body) {
  const figure = el("figure");
  setChildren(body, el("h3", {}, "Outputs of the layers"), figure);
  return (groups, reading) => {
    const outputs = ({ output, unit_axis }) => unitMeans(reading, output, unit_axis);
    const z = groups.map((group) => groupUnitMeans(group, outputs));
    if (z.some((units) => units.length)) {
      drawValues(figure, groups, z);
    } else {
      eraseChart(figure);
      setChildren(figure, el("p", { class: "empty" }, noBlocks(reading)));
    }
  };
}

function drawValues(figure, groups, z) {
  const widest = Math.max(...z.map((units) => units.length));
  drawHeatmap(figure, {
    label: `Outputs of ${groups.length} layers by ${widest} units; of pictures and steps the mean.`,
    z,
    rows: groups.map(({ name }) => name),
    rowTitle: "layer",
    columns: { title: "unit" },
    scale: "signed",
    hover: { row: "layer", column: "unit", value: "y" },
  });
}

/** Bars of how much each layer changes the row. */
export function drawChanges(figure, groups, reading) {
  const changes = groups.map((group, n) => (n ? relativeChange(groups[n - 1], group, reading.tensors) : null));
  if (changes.every((change) => change === null)) {
    eraseChart(figure);
    const why = groups.length > 1 ? noBlocks(reading) : "There is one layer, and none before it.";
    setChildren(figure, el("p", { class: "empty" }, why));
    return;
  }
  drawBars(figure, {
    label: `How far the output of each of ${groups.length} layers is from that of the layer before.`,
    names: groups.map(({ name }) => name),
    series: [{ name: "change", values: changes, format: percent }],
    xTitle: "layer",
    yTitle: "|y − y before| / |y before|",
    yFormat: ".0%",
  });
}

/** How far a group's outputs are from those of the one before, step by step; null where nobody can tell. */
export function relativeChange(before, after, tensors) {
  let [apart, whole] = [0, 0];
  for (const { output, time } of after.gates) {
    const old = tensors.get(before.gates.find((gate) => gate.time === time)?.output);
    const young = tensors.get(output);
    if (!old || !young || old === young || String(old.shape) !== String(young.shape)) return null;
    for (let n = 0; n < young.data.length; n += 1) {
      apart += (young.data[n] - old.data[n]) ** 2;
      whole += old.data[n] ** 2;
    }
  }
  return whole > 0 ? Math.sqrt(apart / whole) : null;
}

function noBlocks(reading) {
  return reading.missing ?? "The file has no outputs of its layers that could be compared.";
}
