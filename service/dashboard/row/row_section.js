// The gates of one row: their map, the levers of the layers, the route, each layer, and two rows compared.

import { drawChanges, startLayerOutputs } from "./layer_outputs.js";
import { startComparison } from "./row_comparison.js";
import { startLesionEffect } from "./lesion_effect.js";
import { el, setChildren } from "../dom/element.js";
import { groupGates } from "../gates/gate_groups.js";
import { frameRow } from "../charts/heatmap.js";
import { startLayerDetail } from "./layer_detail.js";
import { resetLayers, startLesion, setLayerState } from "./lesion.js";
import { startLayerList } from "./layer_list.js";
import { heightBesideList, drawGateMap, MAX_ALIGNED_LAYERS } from "./gate_map.js";
import { predictedClassText } from "./predicted_class.js";
import { drawRoute, routeFacts } from "./route_chart.js";
import { current, subscribe } from "../state/store.js";

export function startRow(body) {
  const said = el("div");
  const part = (name) => el("div", { class: name });
  const title = el("p", { class: "of-row" });
  const keep = el("button", { type: "button" }, "Keep as A");
  const restore = el("button", { type: "button", on: { click: resetLayers } }, "All as they are");
  const effect = el("p", { class: "effect" });
  const [map, route, changes] = [el("figure"), el("figure"), el("figure")];
  const [list, words] = [part("list"), el("dl", { class: "facts" })];
  const [layerPart, blocksPart, comparePart] = [part("part"), part("part"), part("part")];
  const charts = el(
    "div",
    { class: "row-parts" },
    el("div", { class: "headline" }, title, keep),
    el(
      "div",
      { class: "map-and-levers" },
      el("div", {}, el("h3", {}, "Transform gates"), map),
      el("div", {}, el("div", { class: "headline" }, el("h3", {}, "Layers"), restore), list),
    ),
    effect,
    layerPart,
    el(
      "div",
      { class: "part" },
      el("h3", {}, "Route"),
      words,
      el(
        "div",
        { class: "pair" },
        el("div", {}, el("h4", {}, "Share carried by each layer"), route),
        el("div", {}, el("h4", {}, "How much each layer changes the row"), changes),
      ),
    ),
    blocksPart,
    comparePart,
  );
  setChildren(body, said, charts);

  const levers = startLayerList(list, { onChoose: look, onWish: setLayerState });
  const drawLayer = startLayerDetail(layerPart);
  const drawBlocks = startLayerOutputs(blocksPart);
  const compare = startComparison(comparePart);
  let [about, groups, reading] = [null, [], null];
  keep.addEventListener("click", () => {
    compare.keep(reading);
    keep.blur();
  });

  function look(n) {
    if (n === levers.chosen() || !reading) return;
    levers.choose(n);
    frameRow(map, n);
    drawLayer(groups[n], reading);
  }

  function draw() {
    const why = whyNothing(about, reading);
    setChildren(said, why);
    charts.hidden = Boolean(why);
    if (why) return;
    const outcome = predictedClassText(about.certificate, reading.outputs);
    setChildren(title, reading.row.title, outcome && [": ", el("strong", {}, outcome)]);
    levers.reading(reading);
    const chosen = levers.chosen();
    const height = heightBesideList(groups.length);
    drawGateMap(map, groups, reading, { chosen, onPick: look, height });
    drawLayer(groups[chosen], reading);
    setChildren(words, routeFacts(reading));
    drawRoute(route, groups, [{ name: "carried", reading }]);
    drawChanges(changes, groups, reading);
    drawBlocks(groups, reading);
    compare.draw(about, groups, reading);
  }

  subscribe("model", (model) => {
    about = model;
    reading = null;
    groups = groupGates(model?.gates ?? []);
    list.classList.toggle("aligned", groups.length <= MAX_ALIGNED_LAYERS);
    levers.groups(groups);
    compare.forget();
    draw();
  });
  subscribe("reading", (answer) => {
    reading = answer && fits(answer, about) ? answer : null;
    draw();
  });
  subscribe("chosen model", () => !about && draw());
  subscribe("request", () => !reading && draw());
  subscribe("layer states", ({ of }) => {
    levers.wishes(of);
    restore.disabled = !of.size;
  });
  startLesionEffect(effect);
  startLesion();
  draw();
}

/** Whether an answer is of this model: one that was asked before may come late. */
function fits({ gates }, about) {
  return Boolean(about) && gates.every(({ name }, n) => name === about.gates[n]?.name);
}

/** Why there is nothing to draw, null where there is. */
function whyNothing(about, reading) {
  const because = (...words) => el("p", { class: "empty" }, words);
  const going = (...words) => el("p", { class: "loading" }, words);
  if (!about) {
    const { name, state, message } = current("chosen model") ?? {};
    if (state === "loading") return going(`Reading what ${name} is …`);
    return because(message ? `${name} cannot be asked: ${message}.` : "No model is chosen.");
  }
  if (!about.gates.length) {
    const command = el("code", {}, "turnpike export");
    return because(`No gates of ${about.name} are known. `, command, " finds those of highway networks.");
  }
  if (reading?.gates.length) return null;
  if (reading) return because(reading.missing);
  const asking = current("request");
  if (asking?.error) return because(`The gates of this row are not known: ${asking.error.message}`);
  if (asking) return going("Reading the gates of this row …");
  const there = el("a", { href: "#try" }, "Try it");
  return because("Draw a row or pick one under ", there, ", and its gates are shown here.");
}
