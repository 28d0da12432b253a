// Bar charts: one series, or several side by side or stacked, with reference levels.

import { number } from "../dom/number_format.js";
import { color } from "../shell/theme.js";
import { drawChart, escapeMarkup, remPixels } from "./chart.js";

// stacked bars differ by more than colour
const PATTERNS = ["", "", "/", "."];
// width and height of a tick label, in rem
const TICK_LABEL_SIZE = [2.2, 1.3];

/**
 * @typedef {object} BarSeries
 * @property {string} name
 * @property {ArrayLike<number|null>} values
 * @property {string} [tone]  a colour variable of the style sheet
 * @property {string[]} [tones]  one for each bar
 * @property {(value: any) => string} [format]  turns a value into text
 *
 * @typedef {object} BarOptions
 * @property {string} label  one sentence that describes the chart, for screen readers
 * @property {string[]} names  the name of each bar
 * @property {BarSeries[]} series
 * @property {boolean} [stacked]
 * @property {boolean} [horizontal]
 * @property {{y: number, text: string, tone: string}[]} [levels]  reference lines
 * @property {string} [xTitle]  what the names are
 * @property {string} [yTitle]  what the values are, also for horizontal bars
 * @property {[number, number]} [range]  ends of the value axis
 * @property {string} [yFormat]  Plotly's format of its ticks
 * @property {boolean} [labelled]  write each value on its bar
 * @property {number} [height]  in pixels
 */

/**
 * Draw bars in a figure; call it again for new numbers.
 *
 * @param {HTMLElement} figure
 * @param {BarOptions} options
 */
export function drawBars(figure, options) {
  const { label, names, series, horizontal, xTitle } = options;
  const height = options.height ?? (horizontal ? (names.length * 1.5 + 4) * remPixels() : undefined);
  return drawChart(figure, {
    label,
    height,
    make: () => ({ data: tracesOf(options), layout: layoutOf(options, figure.clientWidth, height) }),
    table: () => ({
      head: [xTitle ?? "name", ...series.map(({ name }) => name)],
      rows: names.map((name, n) => [name, ...series.map(({ values, format = number }) => format(values[n]))]),
    }),
  });
}

/** @param {BarOptions} options */
function tracesOf({ names, series, stacked, horizontal, labelled }) {
  const positions = names.map((_, n) => n);
  return series.map(({ name, values, tone, tones, format = number }, n) => ({
    type: "bar",
    name: escapeMarkup(name),
    orientation: horizontal ? "h" : "v",
    [horizontal ? "y" : "x"]: positions,
    [horizontal ? "x" : "y"]: Array.from(values),
    // the name is attached to the bar, since an axis would merge two bars of the same name
    customdata: names.map(escapeMarkup),
    // a bar that ends outside the chart has its number at its foot
    text: labelled ? Array.from(values, (value) => escapeMarkup(format(value))) : undefined,
    textposition: "auto",
    textangle: 0,
    insidetextanchor: "start",
    constraintext: "none",
    hovertext: Array.from(values, (value) => escapeMarkup(format(value))),
    hovertemplate: `%{customdata}<br>${escapeMarkup(name)}: %{hovertext}<extra></extra>`,
    marker: {
      color: tones ? tones.map(color) : color(tone ?? `--series-${(n % 4) + 1}`),
      line: { width: 0 },
      pattern: { shape: stacked ? PATTERNS[n % PATTERNS.length] : "", size: 6, solidity: 0.25 },
    },
  }));
}

/**
 * @param {BarOptions} options
 * @param {number} width
 * @param {number|undefined} height  of horizontal bars
 */
function layoutOf(options, width, height) {
  const { names, series, stacked, horizontal, levels = [], range, yTitle, yFormat, xTitle } = options;
  const valueAxis = horizontal ? "x" : "y";
  const maxTicks =
    horizontal && height !== undefined
      ? (height - 3 * remPixels()) / (TICK_LABEL_SIZE[1] * remPixels())
      : width / (TICK_LABEL_SIZE[0] * remPixels());
  const step = Math.ceil(names.length / Math.max(2, maxTicks));
  const at = names.map((_, n) => n).filter((n) => n % step === 0);
  const nameRange = [-0.5, names.length - 0.5];
  return {
    barmode: stacked ? "stack" : "group",
    bargap: names.length > 40 ? 0 : 0.15,
    margin: { l: 8, r: levels.length ? 4 * remPixels() : 8, t: levels.length ? 18 : 8, b: 8 },
    showlegend: series.length > 1,
    legend: {
      traceorder: "normal",
      orientation: "h",
      x: 0,
      y: 1.02,
      yanchor: "bottom",
      bgcolor: "transparent",
    },
    [`${horizontal ? "y" : "x"}axis`]: {
      title: { text: escapeMarkup(xTitle ?? ""), standoff: 6 },
      tickvals: at,
      ticktext: at.map((n) => escapeMarkup(names[n])),
      tickangle: 0,
      range: horizontal ? nameRange.reverse() : nameRange,
      showgrid: false,
      zeroline: false,
    },
    [`${valueAxis}axis`]: {
      title: { text: escapeMarkup(yTitle ?? ""), standoff: 6 },
      tickformat: yFormat,
      ...(range ? { range } : { rangemode: "tozero" }),
    },
    shapes: levels.map(({ y }) => ({
      type: "line",
      ...levelLine(valueAxis, y),
      line: { color: color("--text"), width: 0.1 * remPixels(), dash: "dash" },
    })),
    annotations: levels.map(({ y, text, tone }) => ({
      text: escapeMarkup(text),
      showarrow: false,
      font: { color: color(tone) },
      ...(horizontal
        ? { x: y, yref: "paper", y: 1, yanchor: "bottom" }
        : { y, yanchor: "middle", xref: "paper", x: 1.01, xanchor: "left" }),
    })),
  };
}

/** A line across the whole chart at a value. */
function levelLine(valueAxis, value) {
  return valueAxis === "x"
    ? { x0: value, x1: value, yref: "paper", y0: 0, y1: 1 }
    : { y0: value, y1: value, xref: "paper", x0: 0, x1: 1 };
}
