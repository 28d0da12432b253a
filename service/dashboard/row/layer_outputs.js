// The outputs of each layer, and how much each layer changes its input.

import { drawBars } from "../charts/bar_chart.js";
import { eraseChart } from "../charts/chart.js";
import { drawHeatmap, frameRow } from "../charts/heatmap.js";
import { el, setChildren } from "../dom/element.js";
import { percent } from "../dom/number_format.js";
import { groupUnitMeans } from "../gates/gate_groups.js";
import { publish } from "../state/store.js";
import { unitMeans } from "./gate_values.js";

/** Create the chart in `body`. Returns `draw(groups, reading)`, and `frame(n)` for the row of a group. */
export function startLayerOutputs(body) {
  const figure = el("figure");
  setChildren(body, el("h3", {}, "Layer outputs"), figure);
  const draw = (groups, reading) => {
    const outputs = ({ output, unit_axis }) => unitMeans(reading, output, unit_axis);
    const z = groups.map((group) => groupUnitMeans(group, outputs));
    if (z.some((units) => units.length)) {
      drawValues(figure, groups, z);
    } else {
      eraseChart(figure);
      setChildren(figure, el("p", { class: "empty" }, missingText(reading)));
    }
  };
  return { draw, frame: (n) => frameRow(figure, n) };
}

/** Draw the outputs; the layer under the pointer is marked in all charts. */
function drawValues(figure, groups, z) {
  const widest = Math.max(...z.map((units) => units.length));
  drawHeatmap(figure, {
    label: `Outputs of ${groups.length} layers by ${widest} units; for pictures and steps the mean.`,
    z,
    rows: groups.map(({ name }) => name),
    rowTitle: "layer",
    columns: { title: "unit" },
    scale: "signed",
    hover: { row: "layer", column: "unit", value: "y" },
    onHover: (n) => publish("hovered layer", n === null ? null : (groups[n]?.layer ?? null)),
  });
}

/** Draw bars of how much each layer changes the row. */
export function drawChanges(figure, groups, reading) {
  const changes = groups.map((group, n) =>
    n ? relativeChange(groups[n - 1], group, reading.tensors) : null,
  );
  if (changes.every((change) => change === null)) {
    eraseChart(figure);
    const message =
      groups.length > 1 ? missingText(reading) : "There is only one layer, so there is nothing to compare.";
    setChildren(figure, el("p", { class: "empty" }, message));
    return;
  }
  drawBars(figure, {
    label: `Distance of the output of each of ${groups.length} layers from that of the previous layer.`,
    names: groups.map(({ name }) => name),
    series: [{ name: "change", values: changes, format: percent }],
    xTitle: "layer",
    yTitle: "|y − y previous| / |y previous|",
    yFormat: ".0%",
  });
}

/** Relative distance of a group's outputs from those of the previous group, step by step; null if unknown. */
export function relativeChange(before, after, tensors) {
  let [squaredDifference, squaredNorm] = [0, 0];
  for (const { output, time } of after.gates) {
    const previous = tensors.get(before.gates.find((gate) => gate.time === time)?.output);
    const next = tensors.get(output);
    if (!previous || !next || previous === next || String(previous.shape) !== String(next.shape)) return null;
    for (let n = 0; n < next.data.length; n += 1) {
      squaredDifference += (next.data[n] - previous.data[n]) ** 2;
      squaredNorm += previous.data[n] ** 2;
    }
  }
  return squaredNorm > 0 ? Math.sqrt(squaredDifference / squaredNorm) : null;
}

function missingText(reading) {
  return reading.missing ?? "The model file has no layer outputs that could be compared.";
}
