// The route of a row: how much each layer carries, and what comes through all of them.

import { drawBars } from "../charts/bar_chart.js";
import { el } from "../dom/element.js";
import { number, percent } from "../dom/number_format.js";
import { groupMean } from "../gates/gate_groups.js";
import { drawLines } from "../charts/line_chart.js";

// a percentage of less would be a row of zeros
const LITTLE = 1e-4;
// bars of two rows side by side are too thin beyond so many layers
const MOST_BARS = 30;

/** The share that each group carries, the mean of C over units and steps. */
export function carriedShares(groups, reading) {
  const gates = new Map(reading.gates.map((gate) => [gate.name, gate]));
  return groups.map((group) => groupMean(group, ({ name }) => gates.get(name)?.carried));
}

/** The route in words. */
export function routeFacts({ route }) {
  const [carried, depth, longest] = [route.carried[0], route.effective_depth[0], route.longest_closed[0]];
  const share = carried < LITTLE ? number(carried) : percent(carried);
  const layers = longest > 1 ? "layers" : "layer";
  return [
    ["Carried past all layers", `${share} of what entered the first leaves the last as it came`],
    ["Effective depth", `${number(depth)} of ${number(route.layers)} layers’ worth of work`],
    ["Closed on end", longest ? `${longest} ${layers} at most` : "no layer is closed"],
  ].map(([name, what]) => el("div", {}, el("dt", {}, name), el("dd", {}, what)));
}

/** The share carried by each group, of one row or of several: `readings` are {name, reading}. */
export function drawRoute(figure, groups, readings) {
  const names = groups.map(({ name }) => name);
  const rows = readings.map(({ name }) => name);
  const shares = readings.map(({ reading }) => carriedShares(groups, reading));
  const both = rows.length > 1 ? `, by ${rows.join(" and ")}` : "";
  const titles = {
    label: `The share that each of ${names.length} layers carries${both}.`,
    xTitle: "layer",
    yTitle: "carried",
    yFormat: ".0%",
    range: [0, 1],
  };
  if (rows.length > 1 && names.length > MOST_BARS) {
    const series = rows.map((name, n) => ({ name, y: shares[n], format: percent }));
    return drawLines(figure, { ...titles, x: names, series });
  }
  const series = rows.map((name, n) => ({ name, values: shares[n], format: percent }));
  return drawBars(figure, { ...titles, names, series });
}
