// Section "Gates of this row": map of gates, switches to close and open layers, route, details of one layer,
// and a comparison of two rows.

import { frameRow } from "../charts/heatmap.js";
import { el, setChildren } from "../dom/element.js";
import { groupGates } from "../gates/gate_groups.js";
import { readingTitle } from "../state/levers.js";
import { current, publish, subscribe } from "../state/store.js";
import { drawGateMap, heightBesideList, MAX_ALIGNED_LAYERS } from "./gate_map.js";
import { startLayerDetail } from "./layer_detail.js";
import { startLayerList } from "./layer_list.js";
import { drawChanges, startLayerOutputs } from "./layer_outputs.js";
import { resetLayers, setLever, startLesion } from "../state/lesion.js";
import { startLesionEffect } from "./lesion_effect.js";
import { answerText } from "./predicted_class.js";
import { drawRoute, routeFacts } from "./route_chart.js";
import { startComparison } from "./row_comparison.js";

export function startRow(body) {
  const placeholder = el("div");
  const div = (name) => el("div", { class: name });
  const title = el("p", { class: "row-title" });
  const resetButton = el("button", { type: "button", on: { click: resetLayers } }, "Reset layers");
  const effect = el("p", { class: "effect" });
  const [mapFigure, routeFigure, changesFigure] = [el("figure"), el("figure"), el("figure")];
  const [list, routeList] = [div("list"), el("dl", { class: "facts" })];
  const [layerPart, outputsPart, comparisonPart] = [div("part"), div("part"), div("part")];
  const charts = el(
    "div",
    { class: "row-parts" },
    title,
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

  const layerList = startLayerList(list, { onChoose: chooseLayer, onStateChange: setLever });
  const drawLayer = startLayerDetail(layerPart);
  const outputs = startLayerOutputs(outputsPart);
  const drawComparison = startComparison(comparisonPart);
  /** @type {import("../state/store.js").Model|null} */
  let model = null;
  /** @type {import("../gates/gate_groups.js").Group[]} */
  let groups = [];
  /** @type {import("../state/store.js").Reading|null} */
  let reading = null;

  function chooseLayer(n) {
    if (n === layerList.chosen()) return;
    layerList.choose(n);
    publish("chosen layer", groups[n].layer);
    if (!reading) return;
    frameRow(mapFigure, n);
    drawLayer(groups[n], reading);
  }

  /** Look at the layer that the lever moves, unless one of its groups is looked at already. */
  function followLever(layer) {
    if (groups[layerList.chosen()]?.layer === layer) return;
    const place = groups.findIndex((group) => group.layer === layer);
    if (place >= 0) chooseLayer(place);
  }

  function onHover(n) {
    publish("hovered layer", n === null ? null : (groups[n]?.layer ?? null));
  }

  /** Frame the layer under the pointer, or else the chosen one. */
  function frameHovered(layer) {
    const hovered = groups.findIndex((group) => group.layer === layer);
    frameRow(mapFigure, hovered < 0 ? layerList.chosen() : hovered);
    outputs.frame(hovered < 0 ? undefined : hovered);
  }

  function drawAll() {
    const placeholderText = placeholderFor(model, reading);
    setChildren(placeholder, placeholderText);
    charts.hidden = Boolean(placeholderText);
    if (placeholderText || !model || !reading) return;
    const classText = answerText(model.certificate, reading.outputs);
    setChildren(title, readingTitle(reading), classText && [": ", el("strong", {}, classText)]);
    layerList.showReading(reading);
    const chosen = layerList.chosen();
    const mapHeight = heightBesideList(groups.length);
    drawGateMap(mapFigure, groups, reading, { chosen, onPick: chooseLayer, onHover, height: mapHeight });
    drawLayer(groups[chosen], reading);
    setChildren(routeList, routeFacts(reading));
    drawRoute(routeFigure, groups, [{ name: "carried over", reading }]);
    drawChanges(changesFigure, groups, reading);
    outputs.draw(groups, reading);
    drawComparison(model, groups, reading);
  }

  subscribe("model", (newModel) => {
    model = newModel;
    reading = null;
    groups = groupGates(model?.gates ?? []);
    list.classList.toggle("aligned", groups.length <= MAX_ALIGNED_LAYERS);
    layerList.showGroups(groups);
    followLever(current("chosen layer") ?? null);
    drawAll();
  });
  subscribe("shown reading", (answer) => {
    reading = answer && readingFits(answer, model) ? answer : null;
    drawAll();
  });
  subscribe("kept reading", () => reading && drawAll());
  subscribe("hovered layer", frameHovered);
  subscribe("chosen layer", followLever);
  subscribe("chosen model", () => !model && drawAll());
  subscribe("request", () => !reading && drawAll());
  subscribe("levers", ({ levers }) => {
    layerList.showLevers(levers);
    resetButton.disabled = !levers.size;
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
  if (reading) {
    const resetButton = el("button", { type: "button", on: { click: resetLayers } }, "Reset layers");
    return empty(reading.missing, reading.levers && [" ", resetButton]);
  }
  const request = current("request");
  if (request?.error) return empty(`The gates of this row could not be loaded: ${request.error.message}`);
  if (request) return loading("Loading the gates of this row …");
  const link = el("a", { href: "#try" }, "Try it");
  return empty("Make or choose a row under ", link, " to see its gates here.");
}
