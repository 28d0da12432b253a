// Line charts over numbers or names, with reference levels and a band.

import { number } from "../dom/number_format.js";
import { color } from "../shell/theme.js";
import { drawChart, escapeMarkup, remPixels } from "./chart.js";

// lines differ by more than colour: over names by the markers of their points, otherwise by dashes
const DASHES = ["solid", "dash", "dot", "dashdot"];
// number of points from which markers are small
const MANY_POINTS = 40;
// width of a line and of a tick label, in rem
const LINE_WIDTH = 0.125;
const TICK_LABEL_WIDTH = 2.2;

/**
 * @typedef {object} LineSeries
 * @property {string} name
 * @property {ArrayLike<number|null>} y  null and NaN leave a gap
 * @property {string} [tone]  a colour variable of the style sheet
 * @property {(value: any) => string} [format]  turns a number into text
 *
 * @typedef {object} Band
 * @property {string} name
 * @property {(number|null)[]} low
 * @property {(number|null)[]} high
 * @property {(value: any) => string} [format]
 *
 * @typedef {object} LineOptions
 * @property {string} label  one sentence that describes the chart, for screen readers
 * @property {(number|string)[]} x  numbers, or names (of layers)
 * @property {LineSeries[]} series
 * @property {Band} [band]
 * @property {{y: number, text: string, tone: string}[]} [levels]  horizontal reference lines
 * @property {{at: number[], names: string[], range: number[]}} [ticks]  ticks along x
 * @property {[number, number]} [range]  ends of the y axis; by default from 0 to at least `top`
 * @property {number} [top]
 * @property {string} [xTitle]
 * @property {string} [yTitle]
 * @property {string} [yFormat]  Plotly's format of the ticks along y
 * @property {boolean} [legend]  show a legend even for a single line
 * @property {number} [height]  in pixels
 */

/**
 * Draw lines in a figure; call it again for new numbers.
 *
 * @param {HTMLElement} figure
 * @param {LineOptions} options
 */
export function drawLines(figure, options) {
  const { label, height, x, series, band, xTitle } = options;
  const columns = [...series, ...(band ? bandColumns(band) : [])];
  return drawChart(figure, {
    label,
    height,
    make: () => ({ data: tracesOf(options), layout: layoutOf(options, figure.clientWidth) }),
    table: () => ({
      head: [xTitle ?? "", ...columns.map(({ name }) => name)],
      rows: Array.from(x, (at, n) => [
        String(at ?? "–"),
        ...columns.map(({ y, format = number }) => format(y[n])),
      ]),
    }),
  });
}

/** @param {Band} band */
function bandColumns({ name, low, high, format }) {
  return [
    { name: `${name}, low`, y: low, format },
    { name: `${name}, high`, y: high, format },
  ];
}

/** @param {LineOptions} options */
function tracesOf({ x, series, band }) {
  const named = isNamed(x);
  const places = Array.from(x, (at, n) => (named ? n : at));
  const traces = series.map(({ name, y, tone, format = number }, n) => ({
    name: escapeMarkup(name),
    x: places,
    y: Array.from(y, (value) => (Number.isFinite(value) ? value : null)),
    text: Array.from(y, (value) => escapeMarkup(format(value))),
    hovertemplate: "%{text}",
    mode: named || hasLonePoint(y) ? "lines+markers" : "lines",
    connectgaps: false,
    line: {
      color: color(tone ?? `--series-${(n % 4) + 1}`),
      width: LINE_WIDTH * remPixels(),
      dash: named ? "solid" : DASHES[n % DASHES.length],
    },
    marker: { size: (x.length > MANY_POINTS ? 1.5 : 3) * LINE_WIDTH * remPixels(), symbol: n % 4 },
  }));
  return band ? [...bandTraces(band, places), ...traces] : traces;
}

/** Whether a point has no neighbors, to which a line could be drawn. */
function hasLonePoint(y) {
  const has = (n) => Number.isFinite(y[n]);
  return Array.from(y).some((_, n) => has(n) && !has(n - 1) && !has(n + 1));
}

function bandTraces({ name, low, high }, x) {
  const shared = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
  return [
    { ...shared, y: Array.from(low), showlegend: false },
    { ...shared, y: Array.from(high), fill: "tonexty", fillcolor: `${color("--series-1")}33`, name: escapeMarkup(name) },
  ];
}

/**
 * @param {LineOptions} options
 * @param {number} width
 */
function layoutOf(options, width) {
  const { x, series, band, levels = [], yTitle, xTitle, yFormat, legend } = options;
  const xTicks = isNamed(x)
    ? nameTicks(x, width / (TICK_LABEL_WIDTH * remPixels()))
    : numberTicks(options.ticks);
  return {
    margin: { l: 8, r: remPixels(), t: 8, b: 8 },
    hovermode: "x unified",
    showlegend: legend || series.length > 1 || band !== undefined,
    legend: {
      traceorder: "normal",
      orientation: "h",
      x: 0,
      y: 1.02,
      yanchor: "bottom",
      bgcolor: "transparent",
    },
    xaxis: {
      title: { text: escapeMarkup(xTitle ?? ""), standoff: 6 },
      showgrid: false,
      zeroline: false,
      tickangle: 0,
      ...xTicks,
    },
    yaxis: {
      title: { text: escapeMarkup(yTitle ?? ""), standoff: 6 },
      tickformat: yFormat,
      zeroline: false,
      ...yRange(options),
    },
    shapes: levels.map(({ y, tone }) => ({
      type: "line",
      xref: "paper",
      x0: 0,
      x1: 1,
      y0: y,
      y1: y,
      line: { color: color(tone), width: LINE_WIDTH * remPixels(), dash: "longdash" },
    })),
    annotations: levels.map(({ y, text, tone }) => ({
      text: escapeMarkup(text),
      xref: "paper",
      x: 1,
      xanchor: "right",
      y,
      // on the side where the lines are not
      yanchor: endsAbove(series, y) ? "top" : "bottom",
      showarrow: false,
      font: { color: color(tone) },
    })),
  };
}

/** Whether the last third of the lines, over which the name of a level is, is above the level on average. */
function endsAbove(series, level) {
  const ends = series.flatMap(({ y }) => Array.from(y).slice(Math.floor((2 * y.length) / 3)));
  const known = ends.filter((value) => typeof value === "number" && Number.isFinite(value));
  return known.reduce((sum, value) => sum + value - level, 0) > 0;
}

/** @param {LineOptions} options */
function yRange({ range, top = 0, levels = [] }) {
  if (range) return { range };
  return { rangemode: "tozero", autorangeoptions: { include: [top, ...levels.map(({ y }) => y)] } };
}

function isNamed(x) {
  return typeof x[0] === "string";
}

/** As many names as fit, at the positions of their points. */
function nameTicks(x, maxTicks) {
  const step = Math.ceil(x.length / maxTicks);
  const at = x.map((_, n) => n).filter((n) => n % step === 0);
  return { tickvals: at, ticktext: at.map((n) => escapeMarkup(x[n])), range: [-0.5, x.length - 0.5] };
}

function numberTicks(ticks) {
  return ticks ? { tickvals: ticks.at, ticktext: ticks.names, range: ticks.range } : {};
}
