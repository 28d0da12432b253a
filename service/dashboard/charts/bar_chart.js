// Bars beside names, one kind or several stacked, with levels to compare with.

import { drawChart, escapeMarkup, remPixels } from "./chart.js";
import { number } from "../dom/number_format.js";
import { color } from "../shell/theme.js";

// bars on one another differ in more than colour
const PATTERNS = ["", "", "/", "."];
// the width of a tick's name, and the height of one, in rem
const NAME = [2.2, 1.3];

/**
 * Bars in a figure; call it again for new numbers.
 *
 * `names` are what the bars stand for, each of `series` is {name, values, tone?, tones?, says?}: `tone` is a
 * colour of the sheet, `tones` one for each bar, `says` puts a value into words. `marks` are levels,
 * {y, text, tone}. `xTitle` says what the names are, `yTitle` what the values are, also where the bars lie;
 * `range` are the ends of their axis, `yFormat` is how its numbers are written; `written` puts each bar's
 * value on it.
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
      rows: names.map((name, n) => [name, ...series.map(({ values, says = number }) => says(values[n]))]),
    }),
  });
}

function tracesOf({ names, series, stacked, horizontal, written }) {
  const places = names.map((_, n) => n);
  return series.map(({ name, values, tone, tones, says = number }, n) => ({
    type: "bar",
    name: escapeMarkup(name),
    orientation: horizontal ? "h" : "v",
    [horizontal ? "y" : "x"]: places,
    [horizontal ? "x" : "y"]: Array.from(values),
    // a bar's name stands with it, since an axis would make one of two bars of one name
    customdata: names.map(escapeMarkup),
    // a bar that ends outside the chart has its number at its foot
    text: written ? Array.from(values, (value) => escapeMarkup(says(value))) : undefined,
    textposition: "auto",
    textangle: 0,
    insidetextanchor: "start",
    constraintext: "none",
    hovertext: Array.from(values, (value) => escapeMarkup(says(value))),
    hovertemplate: `%{customdata}<br>${escapeMarkup(name)}: %{hovertext}<extra></extra>`,
    marker: {
      color: tones ? tones.map(color) : color(tone ?? `--series-${(n % 4) + 1}`),
      line: { width: 0 },
      pattern: { shape: stacked ? PATTERNS[n % PATTERNS.length] : "", size: 6, solidity: 0.25 },
    },
  }));
}

function layoutOf(options, width, height) {
  const { names, series, stacked, horizontal, marks = [], range, yTitle, yFormat, xTitle } = options;
  const along = horizontal ? "x" : "y";
  const room = horizontal ? (height - 3 * remPixels()) / (NAME[1] * remPixels()) : width / (NAME[0] * remPixels());
  const step = Math.ceil(names.length / Math.max(2, room));
  const at = names.map((_, n) => n).filter((n) => n % step === 0);
  const ends = [-0.5, names.length - 0.5];
  return {
    barmode: stacked ? "stack" : "group",
    bargap: names.length > 40 ? 0 : 0.15,
    margin: { l: 8, r: marks.length ? 4 * remPixels() : 8, t: marks.length ? 18 : 8, b: 8 },
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
      range: horizontal ? ends.reverse() : ends,
      showgrid: false,
      zeroline: false,
    },
    [`${along}axis`]: {
      title: { text: escapeMarkup(yTitle ?? ""), standoff: 6 },
      tickformat: yFormat,
      ...(range ? { range } : { rangemode: "tozero" }),
    },
    shapes: marks.map(({ y }) => ({
      type: "line",
      ...across(along, y),
      line: { color: color("--text"), width: 0.1 * remPixels(), dash: "dash" },
    })),
    annotations: marks.map(({ y, text, tone }) => ({
      text: escapeMarkup(text),
      showarrow: false,
      font: { color: color(tone) },
      ...(horizontal
        ? { x: y, yref: "paper", y: 1, yanchor: "bottom" }
        : { y, yanchor: "middle", xref: "paper", x: 1.01, xanchor: "left" }),
    })),
  };
}

/** From end to end of the chart at a value. */
function across(along, value) {
  return along === "x"
    ? { x0: value, x1: value, yref: "paper", y0: 0, y1: 1 }
    : { y0: value, y1: value, xref: "paper", x0: 0, x1: 1 };
}
