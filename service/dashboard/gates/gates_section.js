// Section "Gates of the model": what the export measured on its rows, and the maps of the current row.

import { clearCharts, remPixels } from "../charts/chart.js";
import { el, setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { watchVisibility } from "../dom/visibility.js";
import { current, subscribe } from "../state/store.js";
import { classContrastChart } from "./class_contrast.js";
import { groupGates, groupMean } from "./gate_groups.js";
import { opennessChart, saturationChart } from "./gate_openness.js";
import { startLayerUnitMaps } from "./layer_unit_maps.js";
import { lesionCurveCharts } from "./lesion_curves.js";

// height of a layer in a map, and smallest and largest height of a chart, in rem
const LAYER_HEIGHT = 0.9;
const [MIN_CHART_HEIGHT, MAX_CHART_HEIGHT] = [17, 28];

export function startGates(body) {
  const summary = el("div", {}, placeholder(null));
  const mapsPanel = el("div", { class: "panel", hidden: true });
  const charts = el("div", { class: "charts" });
  setChildren(body, summary, mapsPanel, charts);
  const maps = startLayerUnitMaps(mapsPanel);
  let shownModel = null;
  let reading = null;
  let visible = false;
  let shownReading = null;

  // while the user draws there are many readings per second, so they are shown only when the section is visible
  function showReading() {
    if (!visible || !shownModel?.gates.length || shownReading === reading) return;
    shownReading = reading;
    maps.showReading(reading);
  }

  subscribe("chosen model", (chosen) => {
    if (!current("model")) setChildren(summary, placeholder(chosen));
  });
  subscribe("model", (model) => {
    [shownModel, reading, shownReading] = [model, null, null];
    clearCharts(charts);
    mapsPanel.hidden = !model?.gates.length;
    setChildren(summary, model ? summaryOf(model) : placeholder(current("chosen model")));
    if (mapsPanel.hidden) return;
    maps.showModel(model);
    appendCharts(charts, model);
  });
  subscribe("shown reading", (latest) => {
    reading = latest;
    showReading();
  });
  watchVisibility(body, (isVisible) => {
    visible = isVisible;
    showReading();
  });
}

function appendCharts(charts, model) {
  const { profile, lesion } = model.profile;
  const { labels } = model.certificate;
  const groups = profiledGroups(model);
  // the charts are as high as the map beside them
  const height =
    Math.min(Math.max(LAYER_HEIGHT * groups.length, MIN_CHART_HEIGHT), MAX_CHART_HEIGHT) * remPixels();
  charts.append(
    ...(groups.length
      ? [opennessChart(groups, profile, height), saturationChart(groups, profile, height)]
      : []),
    ...(groups.length && profile.contrast.length
      ? [classContrastChart(groups, profile, labels, height)]
      : []),
    ...(lesion?.layers.length ? lesionCurveCharts(model.certificate, lesion, MIN_CHART_HEIGHT * remPixels()) : []),
  );
}

/** Shown while no model is loaded. */
function placeholder(chosen) {
  if (!chosen?.message && chosen?.state !== "loading") return el("p", { class: "empty" }, NO_MODEL);
  const { name, state, message } = chosen;
  if (state === "loading") return el("p", { class: "loading" }, `Loading the gates of ${name} …`);
  return el("p", { class: "empty" }, `The gates of ${name} could not be loaded: ${message}.`);
}

function summaryOf(model) {
  if (!model.gates.length) return el("p", { class: "empty" }, NO_GATES);
  const groups = groupGates(model.gates);
  const profiledLayers = profiledGroups(model);
  const steps = groups.length === model.gates.length ? "" : `, at ${number(model.gates.length)} steps`;
  const countText = `${groups.length} gated ${groups.length === 1 ? "layer" : "layers"}${steps}. `;
  if (!profiledLayers.length) return [el("p", {}, countText), el("p", { class: "empty" }, NO_PROFILE)];
  const { rows, layers } = model.profile.profile;
  const meanByGate = new Map(layers.map((layer) => [layer.gate, layer.mean]));
  // each of these layers has a mean
  const means = profiledLayers.map((group) => groupMean(group, ({ name }) => meanByGate.get(name)) ?? NaN);
  const mean = means.reduce((sum, value) => sum + value) / means.length;
  const [lowest, highest] = [Math.min(...means), Math.max(...means)];
  const layerText = (value) => `layer ${profiledLayers[means.indexOf(value)].name} (${number(value)})`;
  return el(
    "p",
    {},
    `${countText}Over ${number(rows)} rows, the mean of T is ${number(mean)}` +
      (profiledLayers.length > 1
        ? `: lowest in ${layerText(lowest)}, highest in ${layerText(highest)}. `
        : ". ") +
      "T near 1 replaces a unit’s value, T near 0 carries it over unchanged." +
      (model.gates.some(({ kept }) => kept) ? ` ${REMOVED_UNITS}` : ""),
  );
}

/** The groups of gates that the profile covers. */
function profiledGroups({ gates, profile: { profile } }) {
  const profiledGates = new Set(profile?.layers.map((layer) => layer.gate));
  return groupGates(gates.filter(({ name }) => profiledGates.has(name)));
}

const REMOVED_UNITS =
  "This model is compressed: units have their numbers in the original network, and no figure includes units that " +
  "were removed.";
const NO_MODEL = "Choose a served model to see its gates.";
const NO_GATES =
  "This model has no transform gates, or none are known. turnpike export finds those of highway networks.";
const NO_PROFILE =
  "There is no profile of these gates, because the model was exported without rows. Run turnpike export with " +
  "rows (the model's own data, or --data) to see how open the gates are, which classes they distinguish and " +
  "how much each layer contributes.";
