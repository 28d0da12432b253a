// Layers by units: the transform gates of one row.

import { eraseChart, remPixels } from "../charts/chart.js";
import { el, setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { groupUnitMeans } from "../gates/gate_groups.js";
import { SCALE_HEIGHT, COLUMN_NAMES_HEIGHT, drawHeatmap } from "../charts/heatmap.js";
import { unitMeans } from "./gate_values.js";

// so many layers and fewer have a line of the map as high as their line in the list beside it
export const MAX_ALIGNED_LAYERS = 20;
// how high such a line is, in rem; row.css has the same
const LINE = 2;

/** T by unit, a list for each group; of recurrent layers and of pictures the mean over steps and pixels. */
export function gateRows(groups, reading) {
  return groups.map((group) => groupUnitMeans(group, ({ name, unit_axis }) => unitMeans(reading, name, unit_axis)));
}

/** How high a map beside a list of so many layers is. */
export function heightBesideList(count) {
  return ((count > MAX_ALIGNED_LAYERS ? 26 : Math.max(count, 2) * LINE) + SCALE_HEIGHT + COLUMN_NAMES_HEIGHT) * remPixels();
}

/** Draw the map, or say why there is none; `onPick` hears the number of the group that was clicked. */
export function drawGateMap(figure, groups, reading, { chosen, onPick, height, title = "T of this row" }) {
  const z = gateRows(groups, reading);
  if (!z.some((units) => units.length)) {
    eraseChart(figure);
    setChildren(figure, el("p", { class: "empty" }, reading.missing ?? "The answer has no gates."));
    return Promise.resolve();
  }
  const widest = Math.max(...z.map((units) => units.length));
  const means = reading.gates.map((gate) => gate.mean);
  const [least, most] = [Math.min(...means), Math.max(...means)].map(number);
  const size = `${groups.length} layers by ${widest} units`;
  return drawHeatmap(figure, {
    label: `${title}: ${size}; the means of gates go from ${least} to ${most}.`,
    z,
    rows: groups.map(({ name }) => name),
    rowTitle: "layer",
    columns: { title: "unit" },
    scale: "gate",
    hover: { row: "layer", column: "unit", value: "T" },
    height,
    chosen,
    onPick,
  });
}
