// Charts by Plotly, each with its data as a table beneath it.

import { el, setChildren } from "../dom/element.js";
import { loadPlotly } from "./plotly_loader.js";
import { subscribe } from "../state/store.js";
import { color } from "../shell/theme.js";

// milliseconds between charts that nobody sees yet
const LATER = 60;
const drawn = new Map();
const waiting = new Set();
let working = false;

/**
 * A chart in a figure. `make()` gives {data, layout} of Plotly and is called again when the theme turns;
 * `table()` gives {head, rows} for those who cannot see it. Call `draw` again with the same figure for new
 * data: of several calls before it is painted, the last counts. `label` says what can be seen, in a
 * sentence. `onPick` hears which point was clicked. The answer is a promise of its being on the screen.
 */
export function drawChart(figure, { label, make, table, height = 15 * remPixels(), onPick }) {
  const chart = drawn.get(figure) ?? begun(figure, label);
  Object.assign(chart, { label, make, table, height, onPick });
  chart.plot.classList.toggle("to-pick", Boolean(onPick));
  chart.plot.style.setProperty("min-height", `${height}px`);
  if (chart.details.open) show(chart);
  return wanted(chart);
}

/** Change something of a chart's layout and leave its data as they are, which is much faster. */
export function relayout(figure, changes) {
  const chart = drawn.get(figure);
  return chart?.plotted ? window.Plotly.relayout(chart.plot, changes) : undefined;
}

/** Take a chart away. */
export function eraseChart(figure) {
  const chart = drawn.get(figure);
  if (chart) {
    drawn.delete(figure);
    sizes.unobserve(chart.plot);
    sights.unobserve(chart.plot);
    if (chart.plotted) window.Plotly.purge(chart.plot);
    done(chart);
  }
  setChildren(figure);
}

/** Empty a node, and take away the charts in it, which would be kept and redrawn for ever. */
export function clearCharts(node) {
  for (const figure of node.querySelectorAll("figure")) eraseChart(figure);
  setChildren(node);
}

/** A text that Plotly shall show as it stands, since it reads some markup in what it is given. */
export function escapeMarkup(text) {
  return String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** How many pixels the type's size is, in which charts are measured as all of the page is. */
export function remPixels() {
  return parseFloat(getComputedStyle(document.documentElement).fontSize);
}

function begun(figure, label) {
  const plot = el("div", { class: "plot", role: "img", "aria-label": label });
  const named = { tabindex: "0", role: "group", "aria-label": "The chart as a table" };
  const body = el("div", { class: "scroll", ...named });
  const details = el("details", { class: "as-table" }, el("summary", {}, "as a table"), body);
  const chart = { plot, body, details, plotted: false, seen: true, width: 0, ends: [] };
  details.addEventListener("toggle", () => details.open && show(chart));
  setChildren(figure, plot, details);
  drawn.set(figure, chart);
  plot.chart = chart;
  sizes.observe(plot);
  sights.observe(plot);
  return chart;
}

function show(chart) {
  const { head, rows } = chart.table();
  const line = ([first, ...rest]) =>
    el("tr", {}, el("th", { scope: "row" }, first), rest.map((value) => el("td", {}, value)));
  setChildren(
    chart.body,
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, rows.map(line)),
    ),
  );
}

/** Paint a chart when its turn comes; the promise is kept when it has been, or is no longer there to be. */
function wanted(chart) {
  const promise = new Promise((resolve) => chart.ends.push(resolve));
  waiting.add(chart);
  if (!working) work();
  return promise;
}

/** One chart a frame, those in sight first, so that the page answers in between. */
async function work() {
  working = true;
  while (waiting.size) {
    const chart = [...waiting].find((one) => one.seen) ?? waiting.values().next().value;
    await new Promise((go) => (chart.seen ? requestAnimationFrame(go) : setTimeout(go, LATER)));
    waiting.delete(chart);
    if (drawn.get(chart.plot.parentNode) === chart) await paint(chart);
    done(chart);
  }
  working = false;
}

function done(chart) {
  for (const end of chart.ends.splice(0)) end();
}

async function paint(chart) {
  const { plot, label } = chart;
  try {
    const Plotly = await loadPlotly();
    chart.width = plot.clientWidth;
    // what is hidden is drawn when it has room
    if (drawn.get(plot.parentNode) !== chart || !chart.width) return;
    const { data, layout } = chart.make();
    if (!chart.plotted) setChildren(plot);
    await Plotly.react(plot, data, themed(layout, chart), { displayModeBar: false });
    if (!chart.plotted) {
      plot.on("plotly_click", (event) => chart.onPick?.(event.points[0]));
      chart.plotted = true;
    }
  } catch (error) {
    if (chart.plotted) window.Plotly.purge(plot);
    chart.plotted = false;
    setChildren(plot, el("p", { class: "failed" }, `The chart cannot be drawn: ${error.message}`));
  } finally {
    plot.setAttribute("aria-label", label);
  }
}

function themed(layout, { width, height }) {
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

// Plotly hears of the window's size alone, and a chart's room changes by more
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.clientWidth && target.clientWidth !== target.chart.width) wanted(target.chart);
  }
});

const sights = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) target.chart.seen = isIntersecting;
});

subscribe("theme", () => {
  for (const chart of drawn.values()) if (chart.plotted) wanted(chart);
});
