// Heat maps: rows of numbers as colours, the first row at the top.

import { number } from "../dom/number_format.js";
import { drawChart, escapeMarkup, relayout, remPixels } from "./chart.js";
import { scaleColors, scaleRange } from "./color_scales.js";

// with more columns than this, the table shows a summary of each row
const MAX_TABLE_COLUMNS = 64;
const MAX_NAME_LENGTH = 24;
const selections = new WeakMap();
// height of the colour scale above the map, and of column names below it, in rem
export const SCALE_HEIGHT = 2.4;
export const COLUMN_NAMES_HEIGHT = 3;
// length of the colour scale, and space beside it for half of a label: a number, or a number and a word, in rem
const SCALE_LENGTH = 8;
const [NUMBER_SPACE, WORD_SPACE] = [1.5, 2.9];

/**
 * @typedef {object} HeatmapOptions
 * @property {string} label  one sentence that describes the chart, for screen readers
 * @property {ArrayLike<number>[]} z  a list of numbers per row; missing values and NaN leave cells empty
 * @property {string[]} rows  names of the rows
 * @property {{title: string, names?: string[]}} columns
 * @property {"gate"|"signed"|"plain"} scale  0 to 1, colours on both sides of 0, or lowest to highest
 * @property {[number, number]} [range]  ends of the scale, so that several maps can be compared
 * @property {[string, string]} [ends]  words for the ends of the scale
 * @property {{row: string, column: string, value: string}} hover  what rows, columns and values are
 * @property {string} [rowTitle]  title of the row axis
 * @property {number} [chosen]  row with a frame around it
 * @property {(row: number, column: number) => void} [onPick]  called on a click
 * @property {(row: number|null) => void} [onHover]  called with the row under the pointer, or null
 * @property {boolean} [square]  make cells square where there is room
 * @property {number} [height]  in pixels
 */

/**
 * Draw a heat map in a figure; call it again for new numbers.
 *
 * @param {HTMLElement} figure
 * @param {HeatmapOptions} options
 */
export function drawHeatmap(figure, options) {
  const { label, z, rows, columns, scale, range, hover, height, onPick, onHover } = options;
  const width = Math.max(1, ...z.map((row) => row.length));
  selections.set(figure, { chosen: options.chosen, width });
  const chartHeight = height ?? heightFor(rows.length);
  return drawChart(figure, {
    label,
    height: chartHeight,
    table: () => tableOf(z, rows, columns, hover),
    make: () => ({
      data: [traceOf(options, width, range ?? scaleRange(z, scale))],
      layout: layoutOf(options, selections.get(figure), chartHeight, figure.clientWidth),
    }),
    onPick: onPick && ((point) => onPick(Math.round(point.y), Math.round(point.x))),
    onHover: onHover && ((point) => onHover(point && Math.round(point.y))),
  });
}

/** Move the frame to another row. */
export function frameRow(figure, chosen) {
  const selection = selections.get(figure);
  if (!selection) return;
  selection.chosen = chosen;
  relayout(figure, { shapes: frameShapes(selection) });
}

function heightFor(count) {
  return (
    Math.min(Math.max(count * 1.4, 5), 30) * remPixels() + (SCALE_HEIGHT + COLUMN_NAMES_HEIGHT) * remPixels()
  );
}

/**
 * @param {HeatmapOptions} options
 * @param {number} width
 * @param {number[]} range
 */
function traceOf({ z, rows, columns, scale, ends, hover }, width, [low, high]) {
  const { row, column, value } = hover;
  const names = columns.names?.map(escapeMarkup);
  const marks = [low, (low + high) / 2, high];
  const markTexts = marks.map(number);
  const labelSpace = ends ? WORD_SPACE : NUMBER_SPACE;
  if (ends) {
    markTexts[0] += ` ${ends[0]}`;
    markTexts[2] += ` ${ends[1]}`;
  }
  return {
    type: "heatmap",
    z: z.map((values) => padded(values, width)),
    // the row's name is repeated at each cell, since an axis would merge two rows of the same name
    customdata: rows.map((name) => new Array(width).fill(escapeMarkup(name))),
    text: names && rows.map(() => names),
    hovertemplate:
      `${escapeMarkup(row)} %{customdata}<br>${escapeMarkup(column)} %{${names ? "text" : "x"}}<br>` +
      `${escapeMarkup(value)} %{z:.4~g}<extra></extra>`,
    hoverongaps: false,
    zmin: low,
    zmax: high,
    colorscale: scaleColors(scale),
    colorbar: {
      orientation: "h",
      lenmode: "pixels",
      len: (SCALE_LENGTH + 2 * labelSpace) * remPixels(),
      thickness: 0.55 * remPixels(),
      x: 1,
      xanchor: "right",
      yref: "container",
      y: 1,
      yanchor: "top",
      ypad: 0,
      // Plotly leaves out a label that crosses the edge of the chart
      xpad: labelSpace * remPixels(),
      outlinewidth: 0,
      // and one at an end of the scale that rounding moved outside
      tickvals: marks.map((mark, n) => mark + (1 - n) * 1e-6 * (high - low)),
      ticktext: markTexts.map(escapeMarkup),
      tickangle: 0,
      ticks: "",
    },
  };
}

/**
 * @param {HeatmapOptions} options
 * @param {{chosen?: number, width: number}} selection
 * @param {number} height
 * @param {number} available  width in pixels
 */
function layoutOf({ rows, rowTitle, columns, square }, selection, height, available) {
  const { width } = selection;
  const plotHeight = height - (SCALE_HEIGHT + COLUMN_NAMES_HEIGHT) * remPixels();
  return {
    margin: { l: 8, r: 8, t: SCALE_HEIGHT * remPixels(), b: COLUMN_NAMES_HEIGHT * remPixels() },
    xaxis: {
      title: { text: escapeMarkup(columns.title) },
      showgrid: false,
      zeroline: false,
      range: [-0.5, width - 0.5],
      domain: [
        0,
        square ? Math.min(1, (plotHeight * width) / rows.length / (available - 3 * remPixels())) : 1,
      ],
      ...(columns.names ? nameTicks(columns.names, 40) : integerTicks(width)),
    },
    yaxis: {
      title: { text: escapeMarkup(rowTitle ?? ""), standoff: 6 },
      showgrid: false,
      zeroline: false,
      range: [rows.length - 0.5, -0.5],
      ...nameTicks(rows, Math.max(2, plotHeight / (1.2 * remPixels()))),
    },
    shapes: frameShapes(selection),
  };
}

/** Ticks with names, as many as fit. */
function nameTicks(names, available) {
  const step = Math.ceil(names.length / available);
  const at = names.map((_, n) => n).filter((n) => n % step === 0);
  return { tickvals: at, ticktext: at.map((n) => escapeMarkup(shortened(names[n]))) };
}

/** Ticks at whole numbers only. */
function integerTicks(width) {
  return width < 6 ? { tickvals: Array.from({ length: width }, (_, n) => n) } : { tickformat: "d" };
}

function shortened(name) {
  return name.length > MAX_NAME_LENGTH ? `${name.slice(0, MAX_NAME_LENGTH - 1)}…` : name;
}

/**
 * A frame around the chosen row, light on dark, so that it is visible on every colour.
 *
 * @param {{chosen?: number, width: number}} selection
 */
function frameShapes({ chosen, width }) {
  if (chosen === undefined) return [];
  const around = { type: "rect", x0: -0.5, x1: width - 0.5, y0: chosen - 0.5, y1: chosen + 0.5 };
  return [
    { ...around, line: { color: "#000000", width: 4 } },
    { ...around, line: { color: "#ffffff", width: 2 } },
  ];
}

function padded(values, width) {
  if (values.length === width) return values;
  const cells = new Float32Array(width).fill(NaN);
  cells.set(values);
  return cells;
}

/**
 * @param {ArrayLike<number>[]} z
 * @param {string[]} rows
 * @param {HeatmapOptions["columns"]} columns
 * @param {HeatmapOptions["hover"]} hover
 */
function tableOf(z, rows, columns, { row, column, value }) {
  const width = Math.max(0, ...z.map((values) => values.length));
  if (width <= MAX_TABLE_COLUMNS) {
    const names = columns.names ?? Array.from({ length: width }, (_, n) => `${column} ${n}`);
    return { head: [row, ...names], rows: z.map((values, n) => [rows[n], ...Array.from(values, number)]) };
  }
  return {
    head: [row, `mean ${value}`, "lowest", `at ${column}`, "highest", `at ${column}`],
    rows: z.map((values, n) => [rows[n], ...rowSummary(values, columns.names)]),
  };
}

function rowSummary(values, names) {
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
