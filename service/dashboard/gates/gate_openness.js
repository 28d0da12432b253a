// How open the layers are: the spread of T in each, and the shares of it at its ends.

import { drawBars } from "../charts/bar_chart.js";
import { number, percent } from "../dom/number_format.js";
import { groupMean } from "./gate_groups.js";
import { drawLines } from "../charts/line_chart.js";
import { titledChart } from "../charts/titled_chart.js";

const MIDDLE = 0.5;

/** Mean, median and quantiles of T by layer. */
export function opennessChart(groups, { levels, layers }, height) {
  const of = reader(groups, layers);
  const median = levels.indexOf(MIDDLE);
  const [low, high] = [1, levels.length - 2];
  const ends = `${percent(levels[low])} to ${percent(levels[high])}`;
  const { node, figure } = titledChart(
    "How open the layers are",
    `T of all units and rows, by layer; the band goes from its quantile of ${ends}.`,
  );
  drawLines(figure, {
    label: `Mean and median of T in each of ${groups.length} layers, and the band that most of T lies in.`,
    x: groups.map(({ name }) => name),
    series: [
      { name: "mean", y: of((layer) => layer.mean) },
      { name: "median", y: of((layer) => layer.quantiles[median]) },
    ],
    band: {
      name: ends,
      low: of((layer) => layer.quantiles[low]),
      high: of((layer) => layer.quantiles[high]),
    },
    xTitle: "layer",
    yTitle: "T",
    range: [0, 1],
    height,
  });
  return node;
}

/** The shares of T that are closed, open and between. */
export function saturationChart(groups, { epsilon, layers }, height) {
  const of = reader(groups, layers);
  const [closed, open] = [of((layer) => layer.closed), of((layer) => layer.open)];
  const between = closed.map((share, n) => 1 - share - open[n]);
  const [low, high] = [number(epsilon), number(1 - epsilon)];
  const { node, figure } = titledChart("Saturation", `Closed is T below ${low}, open is T above ${high}.`);
  drawBars(figure, {
    label: `The shares of T that are closed, between and open in each of ${groups.length} layers.`,
    names: groups.map(({ name }) => name),
    series: [
      { name: "closed", values: closed, tone: "--series-4", format: percent },
      { name: "between", values: between, tone: "--line", format: percent },
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

function reader(groups, layers) {
  const by = new Map(layers.map((layer) => [layer.gate, layer]));
  return (of) => groups.map((group) => groupMean(group, ({ name }) => of(by.get(name))));
}
