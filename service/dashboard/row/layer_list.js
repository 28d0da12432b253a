// The list of layers beside the map: one is looked at, and each can be closed or opened.

import { el, setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { groupMean } from "../gates/gate_groups.js";

const STATES = ["as is", "closed", "open"];

/**
 * The list in `body`. `onChoose(n)` hears which group is looked at, `onWish(layer, state)` what a layer is
 * wished to be. The answer has `groups(groups)` for another model, `reading(reading)` for its figures,
 * `choose(n)` and `chosen()`, and `wishes(of)` for what each layer is wished to be.
 */
export function startLayerList(body, { onChoose, onWish }) {
  let lines = [];
  let chosen = 0;

  function groups(all) {
    chosen = 0;
    const wide = new Map();
    for (const { layer } of all) wide.set(layer, (wide.get(layer) ?? 0) + 1);
    const told = new Set();
    lines = all.map((group, n) => {
      const first = !told.has(group.layer);
      told.add(group.layer);
      const lever = first ? leverOf(group, all, onWish) : { node: beside(group.layer), radios: [] };
      return lineOf(group, n, lever, () => onChoose(n));
    });
    setChildren(
      body,
      el("p", { class: "heads", "aria-hidden": "true" }, el("span", {}, "layer"), el("span", {}, "mean T")),
      el(
        "fieldset",
        { class: "lines" },
        el("legend", { class: "visually-hidden" }, "Layers"),
        lines.map(({ node }) => node),
      ),
    );
    choose(0);
  }

  function reading(of) {
    const gates = new Map(of?.gates.map((gate) => [gate.name, gate]));
    for (const { group, mean } of lines) {
      const value = groupMean(group, ({ name }) => gates.get(name)?.mean);
      setChildren(mean, el("span", {}, value === null ? "–" : number(value)), el("span", { class: "share" }));
      mean.style.setProperty("--of", String(value ?? 0));
    }
  }

  function choose(n) {
    chosen = n;
    lines.forEach(({ node, look, radios }, place) => {
      node.classList.toggle("chosen", place === n);
      look.checked = place === n;
      // one stop for the list and one for the lever of the chosen layer, not one for each of a hundred
      for (const radio of radios) radio.tabIndex = place === n ? 0 : -1;
    });
    show(lines[n]?.node);
  }

  function wishes(of) {
    for (const { group, radios, node } of lines) {
      const state = of.get(group.layer) ?? "as is";
      node.dataset.state = state;
      for (const radio of radios) radio.checked = radio.value === state;
    }
  }

  return { groups, reading, choose, wishes, chosen: () => chosen };
}

/** Bring a line into sight within the list, and leave the page where it is. */
function show(line) {
  const list = line?.parentNode;
  if (!list) return;
  const [top, end] = [line.offsetTop, line.offsetTop + line.offsetHeight];
  if (top < list.scrollTop) list.scrollTop = top;
  else if (end > list.scrollTop + list.clientHeight) list.scrollTop = end - list.clientHeight;
}

function lineOf(group, n, lever, choose) {
  const mean = el("span", { class: "mean" });
  const look = el("input", { type: "radio", name: "look", value: n, on: { change: choose } });
  const before = el("span", { class: "visually-hidden" }, "look at layer ");
  const node = el(
    "div",
    { class: "line", on: { focusin: choose } },
    el("label", { class: "look" }, look, el("span", {}, before, group.name)),
    mean,
    lever.node,
  );
  return { group, node, look, mean, radios: lever.radios };
}

/** As is, closed or open; or why the layer cannot be moved. */
function leverOf({ layer }, all, onWish) {
  const gates = all.filter((group) => group.layer === layer).flatMap((group) => group.gates);
  const fixed = gates.filter(({ levers }) => !levers.length);
  if (fixed.length) {
    const whose = fixed.length === gates.length ? "it has" : "some of its gates have";
    return { node: el("span", { class: "fixed" }, `fixed: ${whose} no bias to move`), radios: [] };
  }
  const radios = STATES.map((state) =>
    el("input", {
      type: "radio",
      name: `lever-${layer}`,
      value: state,
      on: { change: () => onWish(layer, state) },
    }),
  );
  const parts = radios.map((radio, n) => el("label", {}, radio, el("span", {}, STATES[n])));
  const named = { role: "radiogroup", "aria-label": `layer ${layer}` };
  return { node: el("div", { class: "three", ...named }, parts), radios };
}

function beside(layer) {
  return el("span", { class: "fixed" }, `moves with layer ${layer}`);
}
