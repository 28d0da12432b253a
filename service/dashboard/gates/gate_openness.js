// How open the layers are: the distribution of T in each layer, and the shares of it near 0 and 1.

import { drawBars } from "../charts/bar_chart.js";
import { drawLines } from "../charts/line_chart.js";
import { titledChart } from "../charts/titled_chart.js";
import { number, percent } from "../dom/number_format.js";
import { groupMean } from "./gate_groups.js";

const MEDIAN = 0.5;

/** Line chart of mean, median and quantiles of T by layer. */
export function opennessChart(groups, { levels, layers }, height) {
  const byLayer = layerReader(groups, layers);
  const median = levels.indexOf(MEDIAN);
  const [low, high] = [1, levels.length - 2];
  const ends = `${percent(levels[low])} to ${percent(levels[high])}`;
  const { node, figure } = titledChart(
    "How open the layers are",
    `T over all units and rows, by layer. The band spans the quantiles ${ends}.`,
  );
  drawLines(figure, {
    label: `Mean and median of T in each of ${groups.length} layers, with a band of quantiles.`,
    x: groups.map(({ name }) => name),
    series: [
      { name: "mean", y: byLayer((layer) => layer.mean) },
      { name: "median", y: byLayer((layer) => layer.quantiles[median]) },
    ],
    band: {
      name: ends,
      low: byLayer((layer) => layer.quantiles[low]),
      high: byLayer((layer) => layer.quantiles[high]),
    },
    xTitle: "layer",
    yTitle: "T",
    range: [0, 1],
    height,
  });
  return node;
}

/** Stacked bars of the shares of T that are closed, in between and open. */
export function saturationChart(groups, { epsilon, layers }, height) {
  const byLayer = layerReader(groups, layers);
  const [closed, open] = [byLayer((layer) => layer.closed), byLayer((layer) => layer.open)];
  const between = closed.map((share, n) => 1 - share - open[n]);
  const [low, high] = [number(epsilon), number(1 - epsilon)];
  const { node, figure } = titledChart(
    "Saturation",
    `Closed means T below ${low}, open means T above ${high}.`,
  );
  drawBars(figure, {
    label: `The shares of T that are closed, in between and open in each of ${groups.length} layers.`,
    names: groups.map(({ name }) => name),
    series: [
      { name: "closed", values: closed, tone: "--series-4", format: percent },
      { name: "in between", values: between, tone: "--line", format: percent },
      { name: "open", values: open, tone: "--series-2", format: percent },
    ],
    stacked: true,
    xTitle: "layer",
    yTitle: "share of T",
    yFormat: ".0%",
    range: [0, 1],
    height,
  });
  return node;
}

function layerReader(groups, layers) {
  const layerByGate = new Map(layers.map((layer) => [layer.gate, layer]));
  return (valueOf) => groups.map((group) => groupMean(group, ({ name }) => valueOf(layerByGate.get(name))));
}
