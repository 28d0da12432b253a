// Heat maps: rows of numbers as colours, the first row at the top.

import { drawChart, escapeMarkup, relayout, remPixels } from "./chart.js";
import { number } from "../dom/number_format.js";
import { scaleColors, scaleRange } from "./color_scales.js";

// a table of more columns than this tells of each row how its numbers lie
const COLUMNS_IN_TABLE = 64;
const LONGEST_NAME = 24;
const choices = new WeakMap();
// room for the scale and for the names of columns, in rem
export const SCALE_HEIGHT = 2.4;
export const COLUMN_NAMES_HEIGHT = 3;

/**
 * A heat map in a figure; call it again for new numbers.
 *
 * `z` has a list of numbers for each of `rows`; a shorter one leaves the rest empty, and so does NaN.
 * `scale` is "gate" (0 to 1), "signed" (colours on both sides of 0) or "plain" (least to greatest); `range`
 * [low, high] where several maps are to be compared. `hover` names what a row, a column and a value are.
 * `onPick(row, column)` hears clicks, `chosen` is a row with a frame around it. `rowTitle` stands along the
 * rows' names; `square` makes a number as wide as it is high, where there is room.
 */
export function drawHeatmap(figure, options) {
  const { label, z, rows, columns, scale, range, hover, height, onPick } = options;
  const width = Math.max(1, ...z.map((row) => row.length));
  choices.set(figure, { chosen: options.chosen, width });
  const ends = range ?? scaleRange(z, scale);
  const tall = height ?? heightFor(rows.length);
  return drawChart(figure, {
    label,
    height: tall,
    table: () => tableOf(z, rows, columns, hover),
    make: () => ({
      data: [trace(z, rows, columns, width, scale, ends, hover)],
      layout: layoutOf(options, choices.get(figure), tall, figure.clientWidth),
    }),
    onPick: onPick && ((point) => onPick(Math.round(point.y), Math.round(point.x))),
  });
}

/** Move the frame of a heat map to another row. */
export function frameRow(figure, chosen) {
  const choice = choices.get(figure);
  if (!choice) return;
  choice.chosen = chosen;
  relayout(figure, { shapes: framesOf(choice) });
}

function heightFor(count) {
  return Math.min(Math.max(count * 1.4, 5), 30) * remPixels() + (SCALE_HEIGHT + COLUMN_NAMES_HEIGHT) * remPixels();
}

function trace(z, rows, columns, width, scale, [low, high], { row, column, value }) {
  const names = columns.names?.map(escapeMarkup);
  const marks = [low, (low + high) / 2, high];
  return {
    type: "heatmap",
    z: z.map((values) => filled(values, width)),
    // the row's name stands at each of its numbers, since an axis would make one of two rows of one name
    customdata: rows.map((name) => new Array(width).fill(escapeMarkup(name))),
    text: names && rows.map(() => names),
    hovertemplate: `${escapeMarkup(row)} %{customdata}<br>${escapeMarkup(column)} %{${names ? "text" : "x"}}<br>` +
      `${escapeMarkup(value)} %{z:.4~g}<extra></extra>`,
    hoverongaps: false,
    zmin: low,
    zmax: high,
    colorscale: scaleColors(scale),
    colorbar: {
      orientation: "h",
      lenmode: "pixels",
      len: 11 * remPixels(),
      thickness: 0.55 * remPixels(),
      x: 1,
      xanchor: "right",
      yref: "container",
      y: 1,
      yanchor: "top",
      ypad: 0,
      // a name beyond the chart's edge would not be drawn
      xpad: 1.5 * remPixels(),
      outlinewidth: 0,
      // nor would one at an end that rounding has moved
      tickvals: marks.map((mark, n) => mark + (1 - n) * 1e-6 * (high - low)),
      ticktext: marks.map(number),
      ticks: "",
    },
  };
}

function layoutOf({ rows, rowTitle, columns, square }, choice, height, room) {
  const { width } = choice;
  const ground = height - (SCALE_HEIGHT + COLUMN_NAMES_HEIGHT) * remPixels();
  return {
    margin: { l: 8, r: 8, t: SCALE_HEIGHT * remPixels(), b: COLUMN_NAMES_HEIGHT * remPixels() },
    xaxis: {
      title: { text: escapeMarkup(columns.title) },
      showgrid: false,
      zeroline: false,
      range: [-0.5, width - 0.5],
      domain: [0, square ? Math.min(1, (ground * width) / rows.length / (room - 3 * remPixels())) : 1],
      ...(columns.names ? named(columns.names, 40) : whole(width)),
    },
    yaxis: {
      title: { text: escapeMarkup(rowTitle ?? ""), standoff: 6 },
      showgrid: false,
      zeroline: false,
      range: [rows.length - 0.5, -0.5],
      ...named(rows, Math.max(2, ground / (1.2 * remPixels()))),
    },
    shapes: framesOf(choice),
  };
}

/** Ticks at names, as many as there is room for. */
function named(names, room) {
  const step = Math.ceil(names.length / room);
  const at = names.map((_, n) => n).filter((n) => n % step === 0);
  return { tickvals: at, ticktext: at.map((n) => escapeMarkup(short(names[n]))) };
}

/** Ticks at whole numbers alone. */
function whole(width) {
  return width < 6 ? { tickvals: Array.from({ length: width }, (_, n) => n) } : { tickformat: "d" };
}

function short(name) {
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name;
}

/** A frame around the chosen row, light within dark, so that it is seen on any colour. */
function framesOf({ chosen, width }) {
  if (chosen === undefined) return [];
  const around = { type: "rect", x0: -0.5, x1: width - 0.5, y0: chosen - 0.5, y1: chosen + 0.5 };
  return [
    { ...around, line: { color: "#000000", width: 4 } },
    { ...around, line: { color: "#ffffff", width: 2 } },
  ];
}

function filled(values, width) {
  if (values.length === width) return values;
  const whole = new Float32Array(width).fill(NaN);
  whole.set(values);
  return whole;
}

function tableOf(z, rows, columns, { row, column, value }) {
  const width = Math.max(0, ...z.map((values) => values.length));
  if (width <= COLUMNS_IN_TABLE) {
    const names = columns.names ?? Array.from({ length: width }, (_, n) => `${column} ${n}`);
    return { head: [row, ...names], rows: z.map((values, n) => [rows[n], ...Array.from(values, number)]) };
  }
  return {
    head: [row, `mean ${value}`, "least", `at ${column}`, "greatest", `at ${column}`],
    rows: z.map((values, n) => [rows[n], ...spread(values, columns.names)]),
  };
}

function spread(values, names) {
  let [sum, count, least, greatest] = [0, 0, -1, -1];
  values.forEach((value, n) => {
    if (!Number.isFinite(value)) return;
    sum += value;
    count += 1;
    if (least < 0 || value < values[least]) least = n;
    if (greatest < 0 || value > values[greatest]) greatest = n;
  });
  if (!count) return ["–", "–", "–", "–", "–"];
  const at = (n) => names?.[n] ?? String(n);
  return [number(sum / count), number(values[least]), at(least), number(values[greatest]), at(greatest)];
}
