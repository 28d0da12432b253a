// What the server does at present, in large type, and over the last minutes, as lines.

import { el, setChildren } from "../dom/element.js";
import { duration, number, percent } from "../dom/number_format.js";
import { HISTORY_SECONDS, WINDOW_SECONDS } from "./metrics_history.js";
import { drawLines } from "../charts/line_chart.js";
import { watchVisibility } from "../dom/visibility.js";
import { current, subscribe } from "../state/store.js";
import { titledChart } from "../charts/titled_chart.js";

const MINUTES = HISTORY_SECONDS / 60;
const TICKS = {
  at: Array.from({ length: MINUTES + 1 }, (_, n) => n - MINUTES),
  names: Array.from({ length: MINUTES + 1 }, (_, n) => (n === MINUTES ? "now" : `−${MINUTES - n}`)),
  range: [-MINUTES, 0],
};
const MS = 1000;

/** Tiles and charts of a history in `body`; the answer shows them anew. */
export function startTrafficCharts(body, history) {
  const everyone = el("button", { type: "button" }, "all models");
  const one = el("button", { type: "button" });
  const tiles = el("dl", { class: "tiles" });
  const rejected = titledChart("Rejected since the server began");
  const charts = CHARTS.map((chart) => ({ ...chart, ...titledChart(chart.title, chart.words) }));
  setChildren(
    body,
    el("div", { class: "segmented whose", role: "group", "aria-label": "Whose figures" }, everyone, one),
    tiles,
    el(
      "div",
      { class: "charts" },
      charts.map(({ node }) => node),
      rejected.node,
    ),
    el("p", { class: "says" }, SMALL_PRINT),
  );
  let seen = false;
  let all = true;

  function show() {
    const chosen = current("model");
    const name = chosen ? `${chosen.name}/${chosen.version}` : null;
    const key = all ? null : name;
    setChildren(one, name ?? "no model chosen");
    one.disabled = name === null;
    everyone.setAttribute("aria-pressed", String(key === null));
    one.setAttribute("aria-pressed", String(key !== null));
    const of = (moment) => figuresOf(moment, key);
    const latest = history.moments.findLast(Boolean);
    setChildren(tiles, tilesOf(of(latest), latest).map(tile));
    setChildren(rejected.figure, tableOf(of(latest)?.counted));
    if (!seen || !latest) return;
    const x = history.moments.map((moment) => moment && Number(((moment.at - latest.at) / 60).toFixed(2)));
    for (const { figure, label, series, yTitle, legend } of charts) {
      drawLines(figure, {
        label: `${label} over the last ${MINUTES} minutes, of ${key ?? "all models"}.`,
        x,
        series: series(history.moments.map(of)),
        xTitle: "minutes",
        yTitle,
        ticks: TICKS,
        legend,
      });
    }
  }

  for (const [button, value] of [[everyone, true], [one, false]]) {
    button.addEventListener("click", () => {
      all = value;
      show();
    });
  }
  subscribe("model", show);
  watchVisibility(body, (now) => {
    seen = now;
    show();
  });
  return show;
}

const SMALL_PRINT =
  `Each figure is told from the ${WINDOW_SECONDS} seconds before it. Times are counted in buckets: within one, ` +
  "p50 and p99 are read as if its times lay evenly, so they are right to the bucket and not to the digit. " +
  "Means are exact.";

const CHARTS = [
  {
    title: "Throughput",
    label: "Requests and rows a second",
    yTitle: "a second",
    series: (all) => [
      { name: "requests", y: all.map((one) => one?.requests) },
      { name: "rows", y: all.map((one) => one?.rows) },
    ],
  },
  {
    title: "Latency",
    label: "Median, mean and 99th percentile of the time of a request",
    yTitle: "ms",
    series: (all) => [
      { name: "p50", y: all.map((one) => milliseconds(one?.p50)), format: spoken },
      { name: "p99", y: all.map((one) => milliseconds(one?.p99)), format: spoken },
      { name: "mean", y: all.map((one) => milliseconds(one?.mean)), format: spoken },
    ],
  },
  {
    title: "Batches and queue",
    label: "Mean rows of a run, and requests that wait",
    yTitle: "rows, requests",
    series: (all) => [
      { name: "rows of a run", y: all.map((one) => one?.batch) },
      { name: "waiting", y: all.map((one) => one?.queue) },
    ],
  },
  {
    title: "Wait and run",
    label: "The wait of 99 of 100 requests, and the median time of a run",
    yTitle: "ms",
    series: (all) => [
      { name: "wait, p99", y: all.map((one) => milliseconds(one?.queueTime)), format: spoken },
      { name: "run, p50", y: all.map((one) => milliseconds(one?.runTime)), format: spoken },
    ],
  },
  {
    title: "Rejections",
    label: "Requests answered with an error, a second, by reason",
    yTitle: "a second",
    legend: true,
    series: (all) => {
      const reasons = new Set(all.flatMap((one) => [...(one?.reasons.keys() ?? [])]));
      if (!reasons.size) return [{ name: "none", y: all.map((one) => one && 0) }];
      return [...reasons].map((reason) => ({
        name: words(reason),
        y: all.map((one) => one && (one.reasons.get(reason) ?? 0)),
      }));
    },
  },
];

/** The figures of one model or of all; of all, what was refused before it came to a model counts as well. */
function figuresOf(moment, key) {
  if (!moment) return null;
  if (key !== null) return moment.models.get(key) ?? null;
  const { total, counted } = moment;
  return { ...total, failed: total.refused, reasons: total.refusals, counted };
}

function tilesOf(figures, moment) {
  const rejected = figures && figures.failed / (figures.requests + figures.failed || 1);
  return [
    ["requests a second", number(figures?.requests), `${number(figures?.rows)} rows a second`],
    ["median time", duration(figures?.p50), `mean ${duration(figures?.mean)}`],
    ["99 of 100 within", duration(figures?.p99), `run ${duration(figures?.runTime)}`],
    ["rows of a run", number(figures?.batch), workers(moment)],
    ["waiting now", number(figures?.queue), `wait, p99 ${duration(figures?.queueTime)}`],
    ["rejected a second", number(figures?.failed), `${percent(rejected)} of requests`, figures?.failed > 0],
  ];
}

function tableOf(counted) {
  if (!counted) return el("p", { class: "quiet" }, "–");
  if (!counted.size) return el("p", { class: "quiet" }, "Nothing was.");
  const row = ([reason, count]) =>
    el("tr", {}, el("th", { scope: "row" }, words(reason)), el("td", { class: "number" }, number(count)));
  return el(
    "table",
    {},
    el("thead", {}, el("tr", {}, ["reason", "requests"].map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, [...counted].sort(([, a], [, b]) => b - a).map(row)),
  );
}

/** A reason as people read it. */
function words(reason) {
  return reason.replaceAll("_", " ");
}

function workers(moment) {
  if (!moment) return "–";
  return moment.workers === 1 ? "1 worker" : `${moment.workers} workers`;
}

function tile([name, value, beside, amiss]) {
  return el(
    "div",
    { class: amiss ? "tile amiss" : "tile" },
    el("dt", { class: "name" }, name),
    el("dd", { class: "figure" }, value),
    el("dd", { class: "quiet" }, beside),
  );
}

function milliseconds(seconds) {
  return seconds === null || seconds === undefined ? null : seconds * MS;
}

function spoken(value) {
  return duration(value === null || value === undefined ? value : value / MS);
}
