// Traffic: figures of the last seconds as tiles, and of the last minutes as charts.

import { drawLines } from "../charts/line_chart.js";
import { titledChart } from "../charts/titled_chart.js";
import { el, setChildren } from "../dom/element.js";
import { duration, number, percent } from "../dom/number_format.js";
import { watchVisibility } from "../dom/visibility.js";
import { current, subscribe } from "../state/store.js";
import { HISTORY_SECONDS, WINDOW_SECONDS } from "./metrics_history.js";

const MINUTES = HISTORY_SECONDS / 60;
const TICKS = {
  at: Array.from({ length: MINUTES + 1 }, (_, n) => n - MINUTES),
  names: Array.from({ length: MINUTES + 1 }, (_, n) => (n === MINUTES ? "now" : `−${MINUTES - n}`)),
  range: [-MINUTES, 0],
};
const MS = 1000;

/** Show tiles and charts of a history in `body`. Returns a function that updates them. */
export function startTrafficCharts(body, history) {
  const allButton = el("button", { type: "button" }, "all models");
  const modelButton = el("button", { type: "button" });
  const tiles = el("dl", { class: "tiles" });
  const rejected = titledChart("Rejections since the server started");
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
      rejected.node,
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
    const figuresAt = (moment) => figuresOf(moment, modelKey);
    const latest = history.moments.findLast(Boolean);
    setChildren(tiles, tilesOf(figuresAt(latest), latest).map(tile));
    setChildren(rejected.figure, tableOf(figuresAt(latest)?.counted));
    if (!visible || !latest) return;
    const minutes = history.moments.map(
      (moment) => moment && Number(((moment.at - latest.at) / 60).toFixed(2)),
    );
    for (const { figure, label, series, yTitle, legend } of charts) {
      drawLines(figure, {
        label: `${label} over the last ${MINUTES} minutes, of ${modelKey ?? "all models"}.`,
        x: minutes,
        series: series(history.moments.map(figuresAt)),
        xTitle: "minutes",
        yTitle,
        ticks: TICKS,
        legend,
      });
    }
  }

  for (const [button, value] of [
    [allButton, true],
    [modelButton, false],
  ]) {
    button.addEventListener("click", () => {
      showAll = value;
      show();
    });
  }
  subscribe("model", show);
  watchVisibility(body, (isVisible) => {
    visible = isVisible;
    show();
  });
  return show;
}

const SMALL_PRINT =
  `Each figure is an average over the last ${WINDOW_SECONDS} seconds. p50 and p99 are interpolated within the ` +
  "buckets of a histogram, so they are only as precise as the buckets. Means are exact.";

const CHARTS = [
  {
    title: "Throughput",
    label: "Requests and rows per second",
    yTitle: "per second",
    series: (figures) => [
      { name: "requests", y: figures.map((moment) => moment?.requests) },
      { name: "rows", y: figures.map((moment) => moment?.rows) },
    ],
  },
  {
    title: "Latency",
    label: "Median, mean and 99th percentile of the latency of a request",
    yTitle: "ms",
    series: (figures) => [
      { name: "p50", y: figures.map((moment) => milliseconds(moment?.p50)), format: millisecondsText },
      { name: "p99", y: figures.map((moment) => milliseconds(moment?.p99)), format: millisecondsText },
      { name: "mean", y: figures.map((moment) => milliseconds(moment?.mean)), format: millisecondsText },
    ],
  },
  {
    title: "Batches and queue",
    label: "Mean rows per run, and requests in the queue",
    yTitle: "rows, requests",
    series: (figures) => [
      { name: "rows per run", y: figures.map((moment) => moment?.batch) },
      { name: "in queue", y: figures.map((moment) => moment?.queue) },
    ],
  },
  {
    title: "Waiting and run time",
    label: "99th percentile of the waiting time, and median run time",
    yTitle: "ms",
    series: (figures) => [
      {
        name: "waiting, p99",
        y: figures.map((moment) => milliseconds(moment?.queueTime)),
        format: millisecondsText,
      },
      {
        name: "run, p50",
        y: figures.map((moment) => milliseconds(moment?.runTime)),
        format: millisecondsText,
      },
    ],
  },
  {
    title: "Rejections",
    label: "Requests answered with an error, per second and by reason",
    yTitle: "per second",
    legend: true,
    series: (figures) => {
      const reasons = new Set(figures.flatMap((moment) => [...(moment?.reasons.keys() ?? [])]));
      if (!reasons.size) return [{ name: "none", y: figures.map((moment) => moment && 0) }];
      return [...reasons].map((reason) => ({
        name: reasonText(reason),
        y: figures.map((moment) => moment && (moment.reasons.get(reason) ?? 0)),
      }));
    },
  },
];

/** The figures of one model, or of all including requests rejected before they reached a model. */
function figuresOf(moment, modelKey) {
  if (!moment) return null;
  if (modelKey !== null) return moment.models.get(modelKey) ?? null;
  const { total, counted } = moment;
  return { ...total, failed: total.refused, reasons: total.refusals, counted };
}

function tilesOf(figures, moment) {
  const rejected = figures && figures.failed / (figures.requests + figures.failed || 1);
  return [
    ["requests per second", number(figures?.requests), `${number(figures?.rows)} rows per second`],
    ["median latency", duration(figures?.p50), `mean ${duration(figures?.mean)}`],
    ["p99 latency", duration(figures?.p99), `run time ${duration(figures?.runTime)}`],
    ["rows per run", number(figures?.batch), workers(moment)],
    ["in queue now", number(figures?.queue), `waiting, p99 ${duration(figures?.queueTime)}`],
    ["rejected per second", number(figures?.failed), `${percent(rejected)} of requests`, figures?.failed > 0],
  ];
}

function tableOf(totals) {
  if (!totals) return el("p", { class: "quiet" }, "–");
  if (!totals.size) return el("p", { class: "quiet" }, "None.");
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
    el("tbody", {}, [...totals].sort(([, a], [, b]) => b - a).map(row)),
  );
}

/** A reason with spaces for underscores. */
function reasonText(reason) {
  return reason.replaceAll("_", " ");
}

function workers(moment) {
  if (!moment) return "–";
  return moment.workers === 1 ? "1 worker" : `${moment.workers} workers`;
}

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
  return seconds === null || seconds === undefined ? null : seconds * MS;
}

function millisecondsText(value) {
  return duration(value === null || value === undefined ? value : value / MS);
}
