// Gate drift: how far live traffic has moved the chosen model's gates from their profile at export.

import { drawBars } from "../charts/bar_chart.js";
import { eraseChart } from "../charts/chart.js";
import { drawLines } from "../charts/line_chart.js";
import { titledChart } from "../charts/titled_chart.js";
import { el, setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { watchVisibility } from "../dom/visibility.js";
import { groupGates, groupMean } from "../gates/gate_groups.js";
import { get } from "../state/api.js";
import { subscribe } from "../state/store.js";

// milliseconds between two requests
const POLL_INTERVAL = 10_000;
// population stability index from which a gate is watched, and from which it raises an alarm
const WATCH = 0.1;
const ALARM = 0.25;
// smallest and largest end of the index axis: values far beyond the alarm need no more room
const MIN_AXIS_END = 0.32;
const MAX_AXIS_END = 1;
// number of bars up to which each shows its value
const MAX_LABELLED_BARS = 32;
const LEVELS = {
  ok: { word: "ok: as at export", tone: "--series-1" },
  watch: { word: "watch: moved slightly", tone: "--watch" },
  alarm: { word: "alarm: far from export", tone: "--alarm" },
};

export function startDriftPanel(body) {
  const summary = el("div", { class: "drift-summary" });
  const index = titledChart(
    "Drift by layer",
    `Below ${WATCH}: as at export. From ${ALARM}: far from export. Bars above ${MAX_AXIS_END} are cut off.`,
  );
  const means = titledChart("Mean T", "On live traffic and on the rows of the export.");
  const charts = el("div", { class: "charts" }, index.node, means.node);
  setChildren(body, el("h3", {}, "Gate drift"), summary, charts);
  let model = null;
  let visible = false;
  let timer = null;
  let inFlight = null;

  function showMessage(...words) {
    setChildren(summary, ...words);
    charts.hidden = true;
    eraseChart(index.figure);
    eraseChart(means.figure);
  }

  function show(report) {
    setChildren(summary, summaryOf(report));
    charts.hidden = report.level === null;
    if (charts.hidden) return;
    const layerByGate = new Map(report.layers.map((layer) => [layer.gate, layer]));
    const groups = groupGates(model.gates.filter(({ name }) => layerByGate.has(name)));
    drawIndex(index.figure, groups, layerByGate);
    drawMeans(means.figure, groups, layerByGate);
  }

  async function poll() {
    clearTimeout(timer);
    if (!visible || inFlight || !model?.profile?.profile) return;
    const request = (inFlight = new AbortController());
    const answer = get(`${model.path}/gates/drift`, request.signal);
    const [report, error] = await answer.then(
      (content) => [content, null],
      (reason) => [null, reason],
    );
    // another model was chosen meanwhile and already has its own request
    if (request !== inFlight) return;
    inFlight = null;
    timer = setTimeout(poll, POLL_INTERVAL);
    if (report) show(report);
    // while the server is down, the last report stays
    else if (error.status !== 0) showMessage(el("p", { class: "failed" }, error.message));
  }

  subscribe("model", (newModel) => {
    model = newModel;
    inFlight?.abort();
    inFlight = null;
    if (!newModel)
      showMessage(el("p", { class: "empty" }, "Choose a model to see how far its gates have drifted."));
    else if (!newModel.gates.length)
      showMessage(el("p", { class: "empty" }, "This model has no gates to drift."));
    else if (!newModel.profile?.profile) showMessage(el("p", { class: "empty" }, NO_PROFILE));
    else showMessage(el("p", { class: "loading" }, "Loading the drift of the gates …"));
    poll();
  });
  let up = true;
  subscribe("server", (state) => {
    const wasUp = up;
    up = state === "up";
    if (up && !wasUp) poll();
  });
  watchVisibility(body, (isVisible) => {
    visible = isVisible;
    poll();
  });
}

const NO_PROFILE =
  "This model has no gate profile to compare with, because it was exported without rows. " +
  "Run turnpike export with rows (the model's own data, or --data) to create one.";

const FEW_RUNS = "At most ten runs a second are counted, so a burst of hundreds of requests gives few rows.";

function summaryOf({ rows, needed, baseline_rows: baseline, bias, level, worst, reason, layers }) {
  if (level === null) {
    return [
      el("p", {}, `No stability index yet: ${reason}.`),
      el("progress", { max: needed, value: Math.min(rows, needed), "aria-label": "Rows of traffic so far" }),
      el("p", { class: "quiet" }, `${number(rows)} of ${number(needed)} rows so far. ${FEW_RUNS}`),
    ];
  }
  const { word } = LEVELS[level];
  const worstLayer = layers.find(({ gate }) => gate === worst);
  return [
    el("p", { class: `level sign ${level}` }, word),
    el(
      "p",
      { class: "quiet" },
      `The gate that moved most is ${worst}, with an index of ${number(worstLayer.psi)}: its mean T is ` +
        `${number(worstLayer.mean)}, and was ${number(worstLayer.baseline)} at export. Based on ${number(rows)} ` +
        `rows of traffic and ${number(baseline)} of the export; without any drift, so few rows give an index of ` +
        `up to ${number(bias)} on average.`,
    ),
  ];
}

function drawIndex(figure, groups, layerByGate) {
  // of the steps of a layer, the one that moved most counts
  const worst = groups.map(({ gates }) =>
    gates.map(({ name }) => layerByGate.get(name)).reduce((a, b) => (b.psi > a.psi ? b : a)),
  );
  drawBars(figure, {
    label: `The stability index of each of ${groups.length} layers, with the levels for watch and alarm.`,
    names: groups.map(({ name }) => name),
    series: [
      {
        name: "index",
        values: worst.map(({ psi }) => psi),
        tones: worst.map(({ level }) => LEVELS[level].tone),
        format: number,
      },
    ],
    levels: [
      { y: WATCH, text: "watch", tone: "--watch" },
      { y: ALARM, text: "alarm", tone: "--alarm" },
    ],
    range: [
      0,
      Math.min(Math.max(1.15 * Math.max(...worst.map(({ psi }) => psi)), MIN_AXIS_END), MAX_AXIS_END),
    ],
    labelled: worst.length <= MAX_LABELLED_BARS,
    xTitle: "layer",
    yTitle: "population stability index",
  });
}

function drawMeans(figure, groups, layerByGate) {
  const meansOf = (which) =>
    groups.map((group) => groupMean(group, ({ name }) => layerByGate.get(name)[which]));
  drawLines(figure, {
    label: "The mean of each layer's transform gate, on live traffic and on the rows of the export.",
    x: groups.map(({ name }) => name),
    series: [
      { name: "live", y: meansOf("mean") },
      { name: "at export", y: meansOf("baseline") },
    ],
    xTitle: "layer",
    yTitle: "mean T",
    range: [0, 1],
  });
}
