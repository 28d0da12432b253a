// The map of layers by units: the transform gates of one row.

import { eraseChart, remPixels } from "../charts/chart.js";
import { COLUMN_NAMES_HEIGHT, drawHeatmap, SCALE_HEIGHT } from "../charts/heatmap.js";
import { el, setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { gateEnds } from "../gates/gate_ends.js";
import { groupUnitMeans } from "../gates/gate_groups.js";
import { placeByNumber } from "../gates/unit_numbers.js";
import { unitMeans } from "./gate_values.js";

// number of layers up to which each row of the map is aligned with its line in the list beside it
export const MAX_ALIGNED_LAYERS = 20;
// height of such a line in rem; the same as in row.css
const LINE_HEIGHT = 2;

/** T by unit, one list per group; for recurrent layers and pictures the mean over steps or pixels. */
export function gateRows(groups, reading) {
  return groups.map((group) =>
    groupUnitMeans(group, (gate) => placeByNumber(gate, unitMeans(reading, gate.name, gate.unit_axis))),
  );
}

/** Height in pixels of a map beside a list of this many layers. */
export function heightBesideList(count) {
  return (
    ((count > MAX_ALIGNED_LAYERS ? 26 : Math.max(count, 2) * LINE_HEIGHT) +
      SCALE_HEIGHT +
      COLUMN_NAMES_HEIGHT) *
    remPixels()
  );
}

/**
 * Draw the map, or a message if there are no gates; `onPick` receives the index of the clicked group.
 *
 * @param {HTMLElement} figure
 * @param {import("../gates/gate_groups.js").Group[]} groups
 * @param {import("../state/store.js").Reading} reading
 * @param {{chosen?: number, onPick?: (n: number) => void, onHover?: (n: number|null) => void, height?: number,
 *   title?: string}} options
 */
export function drawGateMap(figure, groups, reading, { chosen, onPick, onHover, height, title = "T of this row" }) {
  const z = gateRows(groups, reading);
  if (!z.some((units) => units.length)) {
    eraseChart(figure);
    setChildren(figure, el("p", { class: "empty" }, reading.missing ?? "The response contains no gates."));
    return Promise.resolve();
  }
  const widest = Math.max(...z.map((units) => units.length));
  const gateMeans = reading.gates.map((gate) => gate.mean);
  const [lowest, highest] = [Math.min(...gateMeans), Math.max(...gateMeans)].map(number);
  const sizeText = `${groups.length} layers by ${widest} units`;
  return drawHeatmap(figure, {
    label: `${title}: ${sizeText}; the mean of a gate ranges from ${lowest} to ${highest}.`,
    z,
    rows: groups.map(({ name }) => name),
    rowTitle: "layer",
    columns: { title: "unit" },
    scale: "gate",
    ends: gateEnds(groups),
    hover: { row: "layer", column: "unit", value: "T" },
    height,
    chosen,
    onPick,
    onHover,
  });
}
