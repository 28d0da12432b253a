// How far live traffic has moved the chosen model's gates from how they were at export.

import { get } from "../state/api.js";
import { drawBars } from "../charts/bar_chart.js";
import { eraseChart } from "../charts/chart.js";
import { el, setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { groupGates, groupMean } from "../gates/gate_groups.js";
import { drawLines } from "../charts/line_chart.js";
import { watchVisibility } from "../dom/visibility.js";
import { subscribe } from "../state/store.js";
import { titledChart } from "../charts/titled_chart.js";

const PACE = 10_000;
const WATCH = 0.1;
const ALARM = 0.25;
// how far the chart goes at least and at most: what is far beyond the alarm needs no more room
const LEAST = 0.32;
const CUT = 1;
// so few bars have their numbers on them
const FEW = 32;
const LEVELS = {
  ok: { word: "ok: as at export", tone: "--series-1" },
  watch: { word: "watch: somewhat moved", tone: "--watch" },
  alarm: { word: "alarm: far from export", tone: "--alarm" },
};

export function startDriftPanel(body) {
  const told = el("div", { class: "drift-told" });
  const index = titledChart(
    "Drift by layer",
    `Below ${WATCH} is as at export, from ${ALARM} far from it; a bar of more than ${CUT} is cut there.`,
  );
  const means = titledChart("Mean T", "On live traffic, and on the rows of the export.");
  const charts = el("div", { class: "charts" }, index.node, means.node);
  setChildren(body, el("h3", {}, "Gate drift"), told, charts);
  let model = null;
  let seen = false;
  let timer = null;
  let asking = null;

  function say(...words) {
    setChildren(told, ...words);
    charts.hidden = true;
    eraseChart(index.figure);
    eraseChart(means.figure);
  }

  function show(report) {
    setChildren(told, summary(report));
    charts.hidden = report.level === null;
    if (charts.hidden) return;
    const by = new Map(report.layers.map((layer) => [layer.gate, layer]));
    const groups = groupGates(model.gates.filter(({ name }) => by.has(name)));
    drawIndex(index.figure, groups, by);
    drawMeans(means.figure, groups, by);
  }

  async function look() {
    clearTimeout(timer);
    if (!seen || asking || !model?.profile?.profile) return;
    const mine = (asking = new AbortController());
    const answer = get(`${model.path}/gates/drift`, mine.signal);
    const [report, error] = await answer.then((told) => [told, null], (failure) => [null, failure]);
    // another model has been chosen meanwhile, and is asked about already
    if (mine !== asking) return;
    asking = null;
    timer = setTimeout(look, PACE);
    if (report) show(report);
    // what was told last still stands while the server is away
    else if (error.status !== 0) say(el("p", { class: "failed" }, error.message));
  }

  subscribe("model", (about) => {
    model = about;
    asking?.abort();
    asking = null;
    if (!about) say(el("p", { class: "empty" }, "Choose a model to see how far its gates have moved."));
    else if (!about.gates.length) say(el("p", { class: "empty" }, "This model has no gates to drift."));
    else if (!about.profile?.profile) say(el("p", { class: "empty" }, NO_PROFILE));
    else say(el("p", { class: "loading" }, "Asking how far the gates have moved…"));
    look();
  });
  let up = true;
  subscribe("server", (state) => {
    const before = up;
    up = state === "up";
    if (up && !before) look();
  });
  watchVisibility(body, (now) => {
    seen = now;
    look();
  });
}

const NO_PROFILE =
  "This model has no profile to tell drift from: it was exported without rows. " +
  "turnpike export with rows, of the model's data or by --data, writes one.";

function summary({ rows, needed, baseline_rows: baseline, bias, level, worst, reason, layers }) {
  if (level === null) {
    return [
      el("p", {}, `No index yet: ${reason}.`),
      el("progress", { max: needed, value: Math.min(rows, needed), "aria-label": "Rows of traffic so far" }),
      el("p", { class: "quiet" }, `${number(rows)} of ${number(needed)} rows so far`),
    ];
  }
  const { word } = LEVELS[level];
  const most = layers.find(({ gate }) => gate === worst);
  return [
    el("p", { class: `level sign ${level}` }, word),
    el(
      "p",
      { class: "quiet" },
      `The gate that moved most is ${worst}, with an index of ${number(most.psi)}: its mean T is ` +
        `${number(most.mean)}, and was ${number(most.baseline)} at export. Told from ${number(rows)} rows ` +
        `of traffic and ${number(baseline)} of the export; so few raise an index by up to ${number(bias)} on ` +
        `average, without any drift.`,
    ),
  ];
}

function drawIndex(figure, groups, by) {
  // of the steps of a layer the one that moved most counts
  const worst = groups.map(({ gates }) =>
    gates.map(({ name }) => by.get(name)).reduce((a, b) => (b.psi > a.psi ? b : a)),
  );
  drawBars(figure, {
    label: `The stability index of each of ${groups.length} layers, with the lines of watch and alarm.`,
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
    range: [0, Math.min(Math.max(1.15 * Math.max(...worst.map(({ psi }) => psi)), LEAST), CUT)],
    labelled: worst.length <= FEW,
    xTitle: "layer",
    yTitle: "population stability index",
  });
}

function drawMeans(figure, groups, by) {
  const meansOf = (which) => groups.map((group) => groupMean(group, ({ name }) => by.get(name)[which]));
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
