// Traffic: figures of the last seconds as tiles, and of the last minutes as charts.

import { drawLines } from "../charts/line_chart.js";
import { titledChart } from "../charts/titled_chart.js";
import { el, setChildren } from "../dom/element.js";
import { duration, number, percent } from "../dom/number_format.js";
import { watchVisibility } from "../dom/visibility.js";
import { current, subscribe } from "../state/store.js";

// fewest minutes of the time axis; and the minutes from which it has fewer labels, and those between them
const MIN_MINUTES = 3;
const LONG_MINUTES = 6;
const TICK_MINUTES = 3;
const MS = 1000;

/** Show tiles and charts of a history in `body`. Returns a function that updates them. */
export function startTrafficCharts(body, history) {
  const allButton = el("button", { type: "button" }, "all models");
  const modelButton = el("button", { type: "button" });
  const tiles = el("dl", { class: "tiles" });
  const refused = titledChart("Refused requests since the server started");
  const charts = CHARTS.map((chart) => ({ ...chart, ...titledChart(chart.title, chart.words) }));
  setChildren(
    body,
    el(
      "div",
      { class: "segmented figures-of", role: "group", "aria-label": "Show figures of" },
      allButton,
      modelButton,
    ),
    tiles,
    el(
      "div",
      { class: "charts" },
      charts.map(({ node }) => node),
      refused.node,
    ),
    el("p", { class: "caption" }, SMALL_PRINT),
  );
  let visible = false;
  let showAll = true;

  function show() {
    const chosen = current("model");
    const name = chosen ? `${chosen.name}/${chosen.version}` : null;
    const modelKey = showAll ? null : name;
    setChildren(modelButton, name ?? "no model chosen");
    modelButton.disabled = name === null;
    allButton.setAttribute("aria-pressed", String(modelKey === null));
    modelButton.setAttribute("aria-pressed", String(modelKey !== null));
    const { latest, moments } = history;
    const figures = history.figures(modelKey);
    setChildren(tiles, tilesOf(figures.at(-1), latest).map(tile));
    setChildren(refused.figure, latest && tableOf(history.errors(modelKey)));
    if (!visible || !latest) return;
    const minutes = moments.map(({ at }) => Number(((at - latest.at) / 60).toFixed(2)));
    const length = Math.max(Math.ceil(-minutes[0]), MIN_MINUTES);
    for (const { figure, label, series, yTitle, legend } of charts) {
      drawLines(figure, {
        label: `${label} over the last ${length} minutes, of ${modelKey ?? "all models"}.`,
        x: minutes,
        series: series(figures),
        xTitle: "minutes",
        yTitle,
        ticks: ticksOf(length),
        legend,
      });
    }
  }

  const choose = (all) => {
    showAll = all;
    show();
  };
  allButton.addEventListener("click", () => choose(true));
  modelButton.addEventListener("click", () => choose(false));
  subscribe("model", show);
  watchVisibility(body, (isVisible) => {
    visible = isVisible;
    show();
  });
  return show;
}

const SMALL_PRINT =
  "Each point counts the requests since the point before it. p50 and p99 are interpolated within the buckets of a " +
  "histogram, so they are only as precise as the buckets. Means are exact.";

const CHARTS = [
  {
    title: "Throughput",
    label: "Requests and rows per second",
    yTitle: "per second",
    series: (figures) => [
      { name: "requests", y: figures.map((each) => each.requests_per_s) },
      { name: "rows", y: figures.map((each) => each.rows_per_s) },
    ],
  },
  {
    title: "Latency",
    label: "Median, mean and 99th percentile of the latency of a request",
    yTitle: "ms",
    series: (figures) => [
      { name: "p50", y: figures.map((each) => milliseconds(each.p50_s)), format: millisecondsText },
      { name: "p99", y: figures.map((each) => milliseconds(each.p99_s)), format: millisecondsText },
      { name: "mean", y: figures.map((each) => milliseconds(each.mean_s)), format: millisecondsText },
    ],
  },
  {
    title: "Batches and queue",
    label: "Mean rows per run, and requests in the queue",
    yTitle: "rows, requests",
    series: (figures) => [
      { name: "rows per run", y: figures.map((each) => each.rows_per_run) },
      { name: "in queue", y: figures.map((each) => each.waiting) },
    ],
  },
  {
    title: "Waiting and run time",
    label: "99th percentile of the waiting time, and median run time",
    yTitle: "ms",
    series: (figures) => [
      {
        name: "waiting, p99",
        y: figures.map((each) => milliseconds(each.queue_p99_s)),
        format: millisecondsText,
      },
      {
        name: "run, p50",
        y: figures.map((each) => milliseconds(each.run_p50_s)),
        format: millisecondsText,
      },
    ],
  },
  {
    title: "Refused requests",
    label: "Requests answered with an error, per second and by reason",
    yTitle: "per second",
    legend: true,
    series: (figures) => {
      const reasons = new Set(figures.flatMap((each) => Object.keys(each.failed_per_s)));
      if (!reasons.size) return [{ name: "none", y: figures.map(() => 0) }];
      return [...reasons].map((reason) => ({
        name: reasonText(reason),
        y: figures.map((each) => each.failed_per_s[reason] ?? 0),
      }));
    },
  },
];

/** Labels of a time axis of this many minutes, which ends now. */
function ticksOf(minutes) {
  const step = minutes < LONG_MINUTES ? 1 : TICK_MINUTES;
  const at = Array.from({ length: Math.floor(minutes / step) + 1 }, (_, n) => -n * step).reverse();
  return { at, names: at.map((minute) => (minute ? `−${-minute}` : "now")), range: [-minutes, 0] };
}

/**
 * Name, value and detail of each tile, and whether it is a problem.
 *
 * @param {import("./traffic_history.js").Figures|undefined} figures
 * @param {import("./traffic_history.js").Moment|null} moment
 * @returns {[string, string, string, boolean?][]}
 */
function tilesOf(figures, moment) {
  const failed = figures && sum(Object.values(figures.failed_per_s));
  const share = figures && failed / (figures.requests_per_s + failed || 1);
  return [
    ["requests per second", number(figures?.requests_per_s), `${number(figures?.rows_per_s)} rows per second`],
    ["median latency", duration(figures?.p50_s), `mean ${duration(figures?.mean_s)}`],
    ["p99 latency", duration(figures?.p99_s), `run time ${duration(figures?.run_p50_s)}`],
    ["rows per run", number(figures?.rows_per_run), workers(moment)],
    ["in queue now", number(figures?.waiting), `waiting, p99 ${duration(figures?.queue_p99_s)}`],
    ["refused per second", number(failed), `${percent(share)} of requests`, failed > 0],
  ];
}

function tableOf(totals) {
  const counts = Object.entries(totals);
  if (!counts.length) return el("p", { class: "quiet" }, "None.");
  const row = ([reason, count]) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, reasonText(reason)),
      el("td", { class: "number" }, number(count)),
    );
  return el(
    "table",
    {},
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        ["reason", "requests"].map((name) => el("th", { scope: "col" }, name)),
      ),
    ),
    el("tbody", {}, counts.sort(([, a], [, b]) => b - a).map(row)),
  );
}

function sum(numbers) {
  return numbers.reduce((total, each) => total + each, 0);
}

/** A reason with spaces for underscores. */
function reasonText(reason) {
  return reason.replaceAll("_", " ");
}

function workers(moment) {
  if (!moment) return "–";
  return moment.workers === 1 ? "1 worker" : `${moment.workers} workers`;
}

/** @param {[string, string, string, boolean?]} content */
function tile([name, value, detail, isProblem]) {
  return el(
    "div",
    { class: isProblem ? "tile problem" : "tile" },
    el("dt", { class: "name" }, name),
    el("dd", { class: "figure" }, value),
    el("dd", { class: "quiet" }, detail),
  );
}

function milliseconds(seconds) {
  return seconds === null ? null : seconds * MS;
}

function millisecondsText(value) {
  return duration(value === null || value === undefined ? value : value / MS);
}
