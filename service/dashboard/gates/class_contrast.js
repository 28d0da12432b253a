// Class contrast: how much more open a layer is for rows of one class than for all rows.

import { drawHeatmap } from "../charts/heatmap.js";
import { titledChart } from "../charts/titled_chart.js";
import { number } from "../dom/number_format.js";
import { groupUnitMeans } from "./gate_groups.js";

// characters of a class name in the caption
const MAX_NAME_LENGTH = 40;

/** A map of layers by classes with a caption on the largest values; `contrast` has a row for each gate. */
export function classContrastChart(groups, { layers, contrast }, labels, height) {
  const rows = new Map(layers.map((layer, n) => [layer.gate, contrast[n]]));
  const z = groups.map((group) => groupUnitMeans(group, ({ name }) => rows.get(name)));
  const names = Array.from(z[0], (_, n) => labels[n] ?? String(n));
  const { node, figure } = titledChart(
    "Class contrast",
    `Mean T over the rows of a class minus the mean over all rows. ${highlight(groups, z, names)}`,
  );
  drawHeatmap(figure, {
    label: `Class contrast: a map of ${groups.length} layers and ${names.length} classes.`,
    z,
    rows: groups.map(({ name }) => name),
    rowTitle: "layer",
    columns: { title: "class", names },
    scale: "signed",
    hover: { row: "layer", column: "class", value: "contrast" },
    height,
  });
  return node;
}

/** A sentence on the layer that distinguishes classes most. */
function highlight(groups, z, names) {
  const spreads = z.map((row) => Math.max(...row) - Math.min(...row));
  const widest = spreads.indexOf(Math.max(...spreads));
  const row = Array.from(z[widest]);
  const [high, low] = [row.indexOf(Math.max(...row)), row.indexOf(Math.min(...row))];
  const shortName = (n) =>
    names[n].length > MAX_NAME_LENGTH ? `${names[n].slice(0, MAX_NAME_LENGTH)}…` : names[n];
  return (
    `Layer ${groups[widest].name} distinguishes classes most: ${signed(row[high])} for ${shortName(high)}, ` +
    `${signed(row[low])} for ${shortName(low)}.`
  );
}

function signed(value) {
  return value > 0 ? `+${number(value)}` : number(value);
}
