// Draws charts with Plotly, each with its data as a table beneath it.

import { el, setChildren, showControls } from "../dom/element.js";
import { tableColumn } from "../dom/table_column.js";
import { color } from "../shell/theme.js";
import { subscribe } from "../state/store.js";
import { loadPlotly } from "./plotly_loader.js";

// milliseconds between charts that are outside the window
const HIDDEN_CHART_DELAY = 60;
// milliseconds without another width before a chart is drawn for it: some widths last only for a frame
const RESIZE_DELAY = 100;
const charts = new Map();
const chartOfPlot = new Map();
const queue = new Set();
let drawing = false;

/**
 * Draw a chart in a figure. Call it again with the same figure for new data: of several calls before the chart
 * is drawn, only the last counts. The promise resolves when the chart is on the screen.
 *
 * @param {HTMLElement} figure
 * @param {object} options
 * @param {string} options.label  one sentence that describes the chart, for screen readers
 * @param {() => {data: object[], layout: object}} options.make  Plotly data and layout; called again when the theme
 *   changes
 * @param {() => {head: string[], rows: string[][]}} options.table  the same data as a table
 * @param {number} [options.height]  in pixels
 * @param {(point: object) => void} [options.onPick]  called with the point that was clicked
 * @param {(point: object|null) => void} [options.onHover]  called with the point under the pointer, or null
 */
export function drawChart(figure, { label, make, table, height = 15 * remPixels(), onPick, onHover }) {
  const chart = charts.get(figure) ?? createChart(figure, label);
  Object.assign(chart, { label, make, table, height, onPick, onHover });
  chart.plot.classList.toggle("clickable", Boolean(onPick));
  chart.plot.style.setProperty("min-height", `${height}px`);
  if (chart.details.open) fillTable(chart);
  return enqueue(chart);
}

/** Change parts of a chart's layout, which is much faster than drawing it again. */
export function relayout(figure, changes) {
  const chart = charts.get(figure);
  return chart?.plotted ? globalThis.Plotly.relayout(chart.plot, changes) : undefined;
}

/** Remove a chart. */
export function eraseChart(figure) {
  const chart = charts.get(figure);
  if (chart) {
    charts.delete(figure);
    resizeObserver.unobserve(chart.plot);
    visibilityObserver.unobserve(chart.plot);
    chartOfPlot.delete(chart.plot);
    if (chart.plotted) globalThis.Plotly.purge(chart.plot);
    resolveWaiters(chart);
  }
  setChildren(figure);
}

/** Empty a node and remove the charts in it; otherwise they would be kept and redrawn for ever. */
export function clearCharts(node) {
  for (const figure of node.querySelectorAll("figure")) eraseChart(figure);
  setChildren(node);
}

/** Escape a text that Plotly would otherwise read as markup. */
export function escapeMarkup(text) {
  return showControls(String(text)).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** One rem in pixels: charts are sized in rem, like the rest of the page. */
export function remPixels() {
  return parseFloat(getComputedStyle(document.documentElement).fontSize);
}

function createChart(figure, label) {
  const plot = el("div", { class: "plot", role: "img", "aria-label": label });
  const named = { tabindex: "0", role: "group", "aria-label": "Chart data as a table" };
  const body = el("div", { class: "scroll", ...named });
  const details = el("details", { class: "as-table" }, el("summary", {}, "Data table"), body);
  const chart = { plot, body, details, plotted: false, visible: true, width: 0, waiters: [] };
  details.addEventListener("toggle", () => details.open && fillTable(chart));
  setChildren(figure, plot, details);
  charts.set(figure, chart);
  chartOfPlot.set(plot, chart);
  resizeObserver.observe(plot);
  visibilityObserver.observe(plot);
  return chart;
}

function fillTable(chart) {
  const { head, rows } = chart.table();
  const [firstTitle, ...titles] = head;
  const columns = titles.map((title, n) =>
    tableColumn(
      title,
      rows.map((row) => row[n + 1] ?? ""),
    ),
  );
  const line = ([first], n) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, first),
      columns.map(({ cells }) => cells[n]),
    );
  setChildren(
    chart.body,
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col" }, firstTitle),
          columns.map((column) => column.head),
        ),
      ),
      el("tbody", {}, rows.map(line)),
    ),
  );
}

/** Queue a chart for drawing; the promise resolves when it has been drawn or removed. */
function enqueue(chart) {
  const promise = new Promise((resolve) => chart.waiters.push(resolve));
  queue.add(chart);
  if (!drawing) drawQueue();
  return promise;
}

/** Draw one chart per frame, visible ones first, so that the page stays responsive. */
async function drawQueue() {
  drawing = true;
  while (queue.size) {
    const chart = [...queue].find(({ visible }) => visible) ?? queue.values().next().value;
    await new Promise((go) =>
      chart.visible ? requestAnimationFrame(go) : setTimeout(go, HIDDEN_CHART_DELAY),
    );
    queue.delete(chart);
    if (charts.get(chart.plot.parentNode) === chart) await drawNow(chart);
    resolveWaiters(chart);
  }
  drawing = false;
}

function resolveWaiters(chart) {
  for (const resolve of chart.waiters.splice(0)) resolve();
}

async function drawNow(chart) {
  const { plot, label } = chart;
  try {
    const Plotly = await loadPlotly();
    chart.width = plot.clientWidth;
    // a hidden chart is drawn when it gets a width
    if (charts.get(plot.parentNode) !== chart || !chart.width) return;
    const { data, layout } = chart.make();
    if (!chart.plotted) setChildren(plot);
    await Plotly.react(plot, data, withTheme(layout, chart), { displayModeBar: false });
    plot.style.removeProperty("--fit");
    if (!chart.plotted) {
      plot.on("plotly_click", (event) => chart.onPick?.(event.points[0]));
      plot.on("plotly_hover", (event) => chart.onHover?.(event.points[0]));
      plot.on("plotly_unhover", () => chart.onHover?.(null));
      chart.plotted = true;
    }
  } catch (error) {
    if (chart.plotted) globalThis.Plotly.purge(plot);
    chart.plotted = false;
    setChildren(plot, el("p", { class: "failed" }, `The chart could not be drawn: ${error.message}`));
  } finally {
    plot.setAttribute("aria-label", label);
  }
}

function withTheme(layout, { width, height }) {
  const [text, line] = [color("--text"), color("--line")];
  const axis = {
    gridcolor: line,
    zerolinecolor: line,
    linecolor: line,
    automargin: true,
    tickfont: { color: color("--quiet") },
    title: { font: { color: color("--quiet"), size: 0.75 * remPixels() } },
    fixedrange: true,
  };
  const axes = Object.fromEntries(
    Object.entries({ xaxis: {}, yaxis: {}, ...layout })
      .filter(([name]) => /^[xy]axis\d*$/.test(name))
      .map(([name, own]) => [name, { ...axis, ...own, title: { ...axis.title, ...own.title } }]),
  );
  return {
    width,
    height,
    margin: { l: 48, r: 12, t: 8, b: 36 },
    paper_bgcolor: "transparent",
    plot_bgcolor: "transparent",
    font: { family: color("--font"), size: 0.75 * remPixels(), color: text },
    hoverlabel: { bgcolor: color("--raised"), bordercolor: line, font: { color: text }, align: "left" },
    dragmode: false,
    showlegend: false,
    ...layout,
    ...axes,
  };
}

// Plotly itself only notices changes of the window's size
const resizeObserver = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const chart = chartOfPlot.get(target);
    const { clientWidth } = target;
    if (!chart || !clientWidth) continue;
    clearTimeout(chart.resizeTimer);
    if (!chart.plotted) {
      enqueue(chart);
      continue;
    }
    // many charts take a second to draw; until then this one is made smaller so that nothing of it is cut off
    chart.plot.style.setProperty("--fit", String(Math.min(1, clientWidth / chart.width)));
    if (clientWidth !== chart.width) chart.resizeTimer = setTimeout(() => enqueue(chart), RESIZE_DELAY);
  }
});

const visibilityObserver = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const chart = chartOfPlot.get(target);
    if (chart) chart.visible = isIntersecting;
  }
});

subscribe("theme", () => {
  for (const chart of charts.values()) if (chart.plotted) enqueue(chart);
});
