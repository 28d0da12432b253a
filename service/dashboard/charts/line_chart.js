// Lines over numbers or names, with levels to compare with and bands behind them.

import { drawChart, escapeMarkup, remPixels } from "./chart.js";
import { number } from "../dom/number_format.js";
import { color } from "../shell/theme.js";

// lines differ in more than colour: those over names in the marks of their points, others in dashes
const DASHES = ["solid", "dash", "dot", "dashdot"];
// more points than this get small marks
const CROWD = 40;
// the width of a line, and of a tick's name, in rem
const THIN = 0.125;
const NAME = 2.2;

/**
 * Lines in a figure; call it again for new numbers.
 *
 * `x` are numbers, or names (of layers). Each of `series` is {name, y, tone?, says?}: null and NaN leave a
 * gap, `tone` is a colour of the sheet, `says` puts a number into words. `band` is {name, low, high}.
 * `marks` are levels, {y, text, tone}. `ticks` are {at, names, range} along x. The y axis begins at 0 and shows
 * `top` at least, unless `range` gives its ends. `legend` names even a single line.
 */
export function drawLines(figure, options) {
  const { label, height, x, series, band, xTitle } = options;
  const columns = [...series, ...(band ? edges(band) : [])];
  return drawChart(figure, {
    label,
    height,
    make: () => ({ data: tracesOf(options), layout: layoutOf(options, figure.clientWidth) }),
    table: () => ({
      head: [xTitle, ...columns.map(({ name }) => name)],
      rows: Array.from(x, (at, n) => [
        String(at ?? "–"),
        ...columns.map(({ y, says = number }) => says(y[n])),
      ]),
    }),
  });
}

function edges({ name, low, high, says }) {
  return [
    { name: `${name}, low`, y: low, says },
    { name: `${name}, high`, y: high, says },
  ];
}

function tracesOf({ x, series, band }) {
  const named = isNamed(x);
  const places = Array.from(x, (at, n) => (named ? n : at));
  const traces = series.map(({ name, y, tone, says = number }, n) => ({
    name: escapeMarkup(name),
    x: places,
    y: Array.from(y, (value) => (Number.isFinite(value) ? value : null)),
    text: Array.from(y, (value) => escapeMarkup(says(value))),
    hovertemplate: "%{text}",
    mode: named ? "lines+markers" : "lines",
    connectgaps: false,
    line: {
      color: color(tone ?? `--series-${(n % 4) + 1}`),
      width: THIN * remPixels(),
      dash: named ? "solid" : DASHES[n % DASHES.length],
    },
    marker: { size: (x.length > CROWD ? 1.5 : 3) * THIN * remPixels(), symbol: n % 4 },
  }));
  return band ? [...bandOf(band, places), ...traces] : traces;
}

function bandOf({ name, low, high }, x) {
  const shared = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
  return [
    { ...shared, y: Array.from(low), showlegend: false },
    { ...shared, y: Array.from(high), fill: "tonexty", fillcolor: color("--line"), name: escapeMarkup(name) },
  ];
}

function layoutOf(options, width) {
  const { x, series, band, marks = [], yTitle, xTitle, yFormat, legend } = options;
  const along = isNamed(x) ? names(x, width / (NAME * remPixels())) : ticked(options.ticks);
  return {
    margin: { l: 8, r: remPixels(), t: 8, b: 8 },
    hovermode: "x unified",
    showlegend: legend || series.length > 1 || band !== undefined,
    legend: {
      traceorder: "normal",
      orientation: "h", x: 0, y: 1.02, yanchor: "bottom", bgcolor: "transparent" },
    xaxis: {
      title: { text: escapeMarkup(xTitle), standoff: 6 },
      showgrid: false,
      zeroline: false,
      tickangle: 0,
      ...along,
    },
    yaxis: {
      title: { text: escapeMarkup(yTitle), standoff: 6 },
      tickformat: yFormat,
      zeroline: false,
      ...ends(options),
    },
    shapes: marks.map(({ y, tone }) => ({
      type: "line",
      xref: "paper",
      x0: 0,
      x1: 1,
      y0: y,
      y1: y,
      line: { color: color(tone), width: THIN * remPixels(), dash: "longdash" },
    })),
    annotations: marks.map(({ y, text, tone }) => ({
      text: escapeMarkup(text),
      xref: "paper",
      x: 1,
      xanchor: "right",
      y,
      yanchor: "bottom",
      showarrow: false,
      font: { color: color(tone) },
    })),
  };
}

function ends({ range, top = 0, marks = [] }) {
  if (range) return { range };
  return { rangemode: "tozero", autorangeoptions: { include: [top, ...marks.map(({ y }) => y)] } };
}

function isNamed(x) {
  return typeof x[0] === "string";
}

/** As many names as there is room for, at the places of their points. */
function names(x, room) {
  const step = Math.ceil(x.length / room);
  const at = x.map((_, n) => n).filter((n) => n % step === 0);
  return { tickvals: at, ticktext: at.map((n) => escapeMarkup(x[n])), range: [-0.5, x.length - 0.5] };
}

function ticked(ticks) {
  return ticks ? { tickvals: ticks.at, ticktext: ticks.names, range: ticks.range } : {};
}
