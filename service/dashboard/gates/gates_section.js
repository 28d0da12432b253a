// The section gates: what the export found out about a model's gates over all of its rows.

import { clearCharts, remPixels } from "../charts/chart.js";
import { classContrastChart } from "./class_contrast.js";
import { lesionCurveCharts } from "./lesion_curves.js";
import { el, setChildren } from "../dom/element.js";
import { startLayerUnitMaps } from "./layer_unit_maps.js";
import { number } from "../dom/number_format.js";
import { groupGates, groupMean } from "./gate_groups.js";
import { saturationChart, opennessChart } from "./gate_openness.js";
import { watchVisibility } from "../dom/visibility.js";
import { current, subscribe } from "../state/store.js";

// the height of a layer in a map, and of a chart at least and at most, in rem
const LINE = 0.9;
const [LOWEST, HIGHEST] = [17, 28];

export function startGates(body) {
  const words = el("div", {}, waiting(null));
  const panel = el("div", { class: "panel", hidden: true });
  const parts = el("div", { class: "charts" });
  setChildren(body, words, panel, parts);
  const figure2 = startLayerUnitMaps(panel);
  let about = null;
  let reading = null;
  let seen = false;
  let shown = null;

  // a person who draws a digit has a new reading many times a second, and looks elsewhere
  function follow() {
    if (!seen || !about?.gates.length || shown === reading) return;
    shown = reading;
    figure2.reading(reading);
  }

  subscribe("chosen model", (chosen) => {
    if (!current("model")) setChildren(words, waiting(chosen));
  });
  subscribe("model", (model) => {
    [about, reading, shown] = [model, null, null];
    clearCharts(parts);
    panel.hidden = !about?.gates.length;
    setChildren(words, about ? wordsOf(about) : waiting(current("chosen model")));
    if (panel.hidden) return;
    figure2.model(about);
    show(parts, about);
  });
  subscribe("reading", (latest) => {
    reading = latest;
    follow();
  });
  watchVisibility(body, (now) => {
    seen = now;
    follow();
  });
}

function show(parts, about) {
  const { profile, lesion } = about.profile;
  const { labels } = about.certificate;
  const groups = profiled(about);
  // of charts that stand beside a map of so many layers
  const height = Math.min(Math.max(LINE * groups.length, LOWEST), HIGHEST) * remPixels();
  parts.append(
    ...(groups.length ? [opennessChart(groups, profile, height), saturationChart(groups, profile, height)] : []),
    ...(groups.length && profile.contrast.length ? [classContrastChart(groups, profile, labels, height)] : []),
    ...(lesion?.layers.length ? lesionCurveCharts(lesion, LOWEST * remPixels()) : []),
  );
}

/** What stands where no model is there whole. */
function waiting(chosen) {
  if (!chosen?.message && chosen?.state !== "loading") return el("p", { class: "empty" }, NOBODY);
  const { name, state, message } = chosen;
  if (state === "loading") return el("p", { class: "loading" }, `Reading the gates of ${name} …`);
  return el("p", { class: "empty" }, `The gates of ${name} are not known: ${message}.`);
}

function wordsOf(about) {
  if (!about.gates.length) return el("p", { class: "empty" }, NO_GATES);
  const groups = groupGates(about.gates);
  const told = profiled(about);
  const steps = groups.length === about.gates.length ? "" : `, at ${number(about.gates.length)} steps`;
  const found = `${groups.length} gated ${groups.length === 1 ? "layer" : "layers"}${steps}. `;
  if (!told.length) return [el("p", {}, found), el("p", { class: "empty" }, NO_PROFILE)];
  const { rows, layers } = about.profile.profile;
  const by = new Map(layers.map((layer) => [layer.gate, layer.mean]));
  const means = told.map((group) => groupMean(group, ({ name }) => by.get(name)));
  const mean = means.reduce((sum, one) => sum + one) / means.length;
  const [least, most] = [Math.min(...means), Math.max(...means)];
  const layer = (one) => `layer ${told[means.indexOf(one)].name} (${number(one)})`;
  return el(
    "p",
    {},
    `${found}Over ${number(rows)} rows, T is ${number(mean)} on average` +
      (told.length > 1 ? `: least in ${layer(least)}, most in ${layer(most)}. ` : ". ") +
      "T near 1 makes a unit anew, T near 0 carries it on.",
  );
}

/** The groups of those gates that the profile tells of. */
function profiled({ gates, profile: { profile } }) {
  const known = new Set(profile?.layers.map((layer) => layer.gate));
  return groupGates(gates.filter(({ name }) => known.has(name)));
}

const NOBODY = "Choose a model that is served to see its gates.";
const NO_GATES =
  "This model has no transform gates, or none are known: turnpike export finds those of a highway network.";
const NO_PROFILE =
  "There is no profile of these gates: the model was exported without rows. turnpike export with rows, of " +
  "the model's own data or by --data, tells how open the gates are, which classes they tell apart and what " +
  "each layer is worth.";
