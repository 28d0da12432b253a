// The route of a row: how much each layer carries over, and how much passes all of them unchanged.

import { drawBars } from "../charts/bar_chart.js";
import { drawLines } from "../charts/line_chart.js";
import { el } from "../dom/element.js";
import { number, percent } from "../dom/number_format.js";
import { groupMean } from "../gates/gate_groups.js";

// share below which a percentage would be a row of zeros
const MIN_PERCENTAGE = 1e-4;
// number of layers beyond which bars of two rows side by side are too thin
const MAX_BARS = 30;

/** The share that each group carries over: the mean of C over units and steps. */
export function carriedShares(groups, reading) {
  const gates = new Map(reading.gates.map((gate) => [gate.name, gate]));
  return groups.map((group) => groupMean(group, ({ name }) => gates.get(name)?.carried));
}

/** The route as a list of facts. */
export function routeFacts({ route }) {
  const [carried, depth, longestClosed] = [
    route.carried[0],
    route.effective_depth[0],
    route.longest_closed[0],
  ];
  const share = carried < MIN_PERCENTAGE ? number(carried) : percent(carried);
  const layers = longestClosed > 1 ? "layers" : "layer";
  return [
    ["Carried through all layers", `${share} of the input of the first layer leaves the last one unchanged`],
    ["Effective depth", `work of ${number(depth)} of ${number(route.layers)} layers`],
    ["Longest run of closed layers", longestClosed ? `${longestClosed} ${layers}` : "no layer is closed"],
  ].map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)));
}

/** Draw the share carried over by each group, for one or several rows: `readings` are {name, reading}. */
export function drawRoute(figure, groups, readings) {
  const names = groups.map(({ name }) => name);
  const rows = readings.map(({ name }) => name);
  const shares = readings.map(({ reading }) => carriedShares(groups, reading));
  const ofRows = rows.length > 1 ? `, for ${rows.join(" and ")}` : "";
  /** @type {[number, number]} */
  const range = [0, 1];
  const options = {
    label: `Share that each of ${names.length} layers carries over${ofRows}.`,
    xTitle: "layer",
    yTitle: "carried over",
    yFormat: ".0%",
    range,
  };
  if (rows.length > 1 && names.length > MAX_BARS) {
    const series = rows.map((name, n) => ({ name, y: shares[n], format: percent }));
    return drawLines(figure, { ...options, x: names, series });
  }
  const series = rows.map((name, n) => ({ name, values: shares[n], format: percent }));
  return drawBars(figure, { ...options, names, series });
}
