// Section "Gates of this row": map of gates, switches to close and open layers, route, details of one layer,
// and a comparison of two rows.

import { frameRow } from "../charts/heatmap.js";
import { el, setChildren } from "../dom/element.js";
import { groupGates } from "../gates/gate_groups.js";
import { current, subscribe } from "../state/store.js";
import { drawGateMap, heightBesideList, MAX_ALIGNED_LAYERS } from "./gate_map.js";
import { startLayerDetail } from "./layer_detail.js";
import { startLayerList } from "./layer_list.js";
import { drawChanges, startLayerOutputs } from "./layer_outputs.js";
import { resetLayers, setLayerState, startLesion } from "./lesion.js";
import { startLesionEffect } from "./lesion_effect.js";
import { predictedClassText } from "./predicted_class.js";
import { drawRoute, routeFacts } from "./route_chart.js";
import { startComparison } from "./row_comparison.js";

export function startRow(body) {
  const placeholder = el("div");
  const div = (name) => el("div", { class: name });
  const title = el("p", { class: "row-title" });
  const keepButton = el("button", { type: "button" }, "Keep as A");
  const resetButton = el("button", { type: "button", on: { click: resetLayers } }, "Reset layers");
  const effect = el("p", { class: "effect" });
  const [mapFigure, routeFigure, changesFigure] = [el("figure"), el("figure"), el("figure")];
  const [list, routeList] = [div("list"), el("dl", { class: "facts" })];
  const [layerPart, outputsPart, comparisonPart] = [div("part"), div("part"), div("part")];
  const charts = el(
    "div",
    { class: "row-parts" },
    el("div", { class: "headline" }, title, keepButton),
    el(
      "div",
      { class: "map-and-layers" },
      el("div", {}, el("h3", {}, "Transform gates"), mapFigure),
      el("div", {}, el("div", { class: "headline" }, el("h3", {}, "Layers"), resetButton), list),
    ),
    effect,
    layerPart,
    el(
      "div",
      { class: "part" },
      el("h3", {}, "Route"),
      routeList,
      el(
        "div",
        { class: "pair" },
        el("div", {}, el("h4", {}, "Share carried over by each layer"), routeFigure),
        el("div", {}, el("h4", {}, "Change made by each layer"), changesFigure),
      ),
    ),
    outputsPart,
    comparisonPart,
  );
  setChildren(body, placeholder, charts);

  const layerList = startLayerList(list, { onChoose: chooseLayer, onStateChange: setLayerState });
  const drawLayer = startLayerDetail(layerPart);
  const drawOutputs = startLayerOutputs(outputsPart);
  const comparison = startComparison(comparisonPart);
  let [model, groups, reading] = [null, [], null];
  keepButton.addEventListener("click", () => {
    comparison.keep(reading);
    keepButton.blur();
  });

  function chooseLayer(n) {
    if (n === layerList.chosen() || !reading) return;
    layerList.choose(n);
    frameRow(mapFigure, n);
    drawLayer(groups[n], reading);
  }

  function drawAll() {
    const placeholderText = placeholderFor(model, reading);
    setChildren(placeholder, placeholderText);
    charts.hidden = Boolean(placeholderText);
    if (placeholderText) return;
    const classText = predictedClassText(model.certificate, reading.outputs);
    setChildren(title, reading.row.title, classText && [": ", el("strong", {}, classText)]);
    layerList.showReading(reading);
    const chosen = layerList.chosen();
    const mapHeight = heightBesideList(groups.length);
    drawGateMap(mapFigure, groups, reading, { chosen, onPick: chooseLayer, height: mapHeight });
    drawLayer(groups[chosen], reading);
    setChildren(routeList, routeFacts(reading));
    drawRoute(routeFigure, groups, [{ name: "carried over", reading }]);
    drawChanges(changesFigure, groups, reading);
    drawOutputs(groups, reading);
    comparison.draw(model, groups, reading);
  }

  subscribe("model", (newModel) => {
    model = newModel;
    reading = null;
    groups = groupGates(model?.gates ?? []);
    list.classList.toggle("aligned", groups.length <= MAX_ALIGNED_LAYERS);
    layerList.showGroups(groups);
    comparison.discard();
    drawAll();
  });
  subscribe("reading", (answer) => {
    reading = answer && readingFits(answer, model) ? answer : null;
    drawAll();
  });
  subscribe("chosen model", () => !model && drawAll());
  subscribe("request", () => !reading && drawAll());
  subscribe("layer states", ({ states }) => {
    layerList.showStates(states);
    resetButton.disabled = !states.size;
  });
  startLesionEffect(effect);
  startLesion();
  drawAll();
}

/** Whether a reading belongs to this model: a late response may belong to the previous one. */
function readingFits({ gates }, model) {
  return Boolean(model) && gates.every(({ name }, n) => name === model.gates[n]?.name);
}

/** What to show in place of the charts, or null. */
function placeholderFor(model, reading) {
  const empty = (...content) => el("p", { class: "empty" }, content);
  const loading = (...content) => el("p", { class: "loading" }, content);
  if (!model) {
    const { name, state, message } = current("chosen model") ?? {};
    if (state === "loading") return loading(`Loading ${name} …`);
    return empty(message ? `${name} cannot be used: ${message}.` : "No model is chosen.");
  }
  if (!model.gates.length) {
    const command = el("code", {}, "turnpike export");
    return empty(`No gates are known for ${model.name}. `, command, " finds the gates of highway networks.");
  }
  if (reading?.gates.length) return null;
  if (reading) return empty(reading.missing);
  const request = current("request");
  if (request?.error) return empty(`The gates of this row could not be loaded: ${request.error.message}`);
  if (request) return loading("Loading the gates of this row …");
  const link = el("a", { href: "#try" }, "Try it");
  return empty("Draw or choose a row under ", link, " to see its gates here.");
}
