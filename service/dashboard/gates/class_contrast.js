// Class contrast: how much more open a layer is for the rows of a class than for all rows.

import { number } from "../dom/number_format.js";
import { groupUnitMeans } from "./gate_groups.js";
import { drawHeatmap } from "../charts/heatmap.js";
import { titledChart } from "../charts/titled_chart.js";

const LONGEST = 40;

/** The map of layers and classes, with what stands out in words; `contrast` has a row for each gate. */
export function classContrastChart(groups, { layers, contrast }, labels, height) {
  const rows = new Map(layers.map((layer, n) => [layer.gate, contrast[n]]));
  const z = groups.map((group) => groupUnitMeans(group, ({ name }) => rows.get(name)));
  const names = Array.from(z[0], (_, n) => labels[n] ?? String(n));
  const { node, figure } = titledChart(
    "Class contrast",
    `Mean T over the rows of a class, less its mean over all. ${mostOf(groups, z, names)}`,
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

/** The layer that tells classes apart most, and which. */
function mostOf(groups, z, names) {
  const spreads = z.map((row) => Math.max(...row) - Math.min(...row));
  const most = spreads.indexOf(Math.max(...spreads));
  const row = Array.from(z[most]);
  const [high, low] = [row.indexOf(Math.max(...row)), row.indexOf(Math.min(...row))];
  const called = (n) => (names[n].length > LONGEST ? `${names[n].slice(0, LONGEST)}…` : names[n]);
  return (
    `Layer ${groups[most].name} tells classes apart most: ${signed(row[high])} for ${called(high)}, ` +
    `${signed(row[low])} for ${called(low)}.`
  );
}

function signed(value) {
  return value > 0 ? `+${number(value)}` : number(value);
}
