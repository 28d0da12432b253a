// The gates of one row: their map, the levers of the layers, the route, each layer, and two rows compared.

import { drawChanges, startBlocks } from "./layer_outputs.js";
import { startCompare } from "./row_comparison.js";
import { startEffect } from "./lesion_effect.js";
import { el, fill } from "../dom/element.js";
import { groupsOf } from "../gates/gate_groups.js";
import { choose } from "../charts/heatmap.js";
import { startLayer } from "./layer_detail.js";
import { forget, startLesion, wish } from "./lesion.js";
import { startLevers } from "./layer_list.js";
import { besideList, drawMap, MOST_ALIGNED } from "./gate_map.js";
import { outcomeSaid } from "./predicted_class.js";
import { drawRoute, routeSaid } from "./route_chart.js";
import { current, subscribe } from "../state/store.js";

export function startRow(body) {
  const said = el("div");
  const part = (name) => el("div", { class: name });
  const title = el("p", { class: "of-row" });
  const keep = el("button", { type: "button" }, "Keep as A");
  const restore = el("button", { type: "button", on: { click: forget } }, "All as they are");
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
  fill(body, said, charts);

  const levers = startLevers(list, { onChoose: look, onWish: wish });
  const drawLayer = startLayer(layerPart);
  const drawBlocks = startBlocks(blocksPart);
  const compare = startCompare(comparePart);
  let [about, groups, reading] = [null, [], null];
  keep.addEventListener("click", () => {
    compare.keep(reading);
    keep.blur();
  });

  function look(n) {
    if (n === levers.chosen() || !reading) return;
    levers.choose(n);
    choose(map, n);
    drawLayer(groups[n], reading);
  }

  function draw() {
    const why = whyNothing(about, reading);
    fill(said, why);
    charts.hidden = Boolean(why);
    if (why) return;
    const outcome = outcomeSaid(about.certificate, reading.outputs);
    fill(title, reading.row.title, outcome && [": ", el("strong", {}, outcome)]);
    levers.reading(reading);
    const chosen = levers.chosen();
    const height = besideList(groups.length);
    drawMap(map, groups, reading, { chosen, onPick: look, height });
    drawLayer(groups[chosen], reading);
    fill(words, routeSaid(reading));
    drawRoute(route, groups, [{ name: "carried", reading }]);
    drawChanges(changes, groups, reading);
    drawBlocks(groups, reading);
    compare.draw(about, groups, reading);
  }

  subscribe("model", (model) => {
    about = model;
    reading = null;
    groups = groupsOf(model?.gates ?? []);
    list.classList.toggle("aligned", groups.length <= MOST_ALIGNED);
    levers.groups(groups);
    compare.forget();
    draw();
  });
  subscribe("reading", (answer) => {
    reading = answer && fits(answer, about) ? answer : null;
    draw();
  });
  subscribe("chosen", () => !about && draw());
  subscribe("asking", () => !reading && draw());
  subscribe("wishes", ({ of }) => {
    levers.wishes(of);
    restore.disabled = !of.size;
  });
  startEffect(effect);
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
    const { name, state, message } = current("chosen") ?? {};
    if (state === "loading") return going(`Reading what ${name} is …`);
    return because(message ? `${name} cannot be asked: ${message}.` : "No model is chosen.");
  }
  if (!about.gates.length) {
    const command = el("code", {}, "turnpike export");
    return because(`No gates of ${about.name} are known. `, command, " finds those of highway networks.");
  }
  if (reading?.gates.length) return null;
  if (reading) return because(reading.missing);
  const asking = current("asking");
  if (asking?.error) return because(`The gates of this row are not known: ${asking.error.message}`);
  if (asking) return going("Reading the gates of this row …");
  const there = el("a", { href: "#try" }, "Try it");
  return because("Draw a row or pick one under ", there, ", and its gates are shown here.");
}
