// The list of layers beside the map: choose a layer to look at, and close or open layers.

import { el, setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { groupMean } from "../gates/gate_groups.js";
import { publish, subscribe } from "../state/store.js";

const STATES = ["as trained", "closed", "open"];

/**
 * Create the list in `body`. `onChoose(index)` is called when a group is chosen, `onStateChange(layer, state)`
 * when the user sets a layer to "as trained", "closed" or "open". Returns `showGroups(groups)` for another model,
 * `showReading(reading)` for its figures, `choose(index)` and `chosen()`, and `showLevers(levers)`, a map from
 * layer to "closed" or "open".
 */
export function startLayerList(body, { onChoose, onStateChange }) {
  let lines = [];
  let chosen = 0;

  function showGroups(groups) {
    chosen = 0;
    const shownLayers = new Set();
    lines = groups.map((group, n) => {
      const isFirst = !shownLayers.has(group.layer);
      shownLayers.add(group.layer);
      const stateSwitch = isFirst
        ? createSwitch(group, groups, onStateChange)
        : { node: movesWithNote(group.layer), radios: [] };
      return createLine(group, n, stateSwitch, () => onChoose(n));
    });
    setChildren(
      body,
      el(
        "p",
        { class: "column-titles", "aria-hidden": "true" },
        el("span", {}, "layer"),
        el("span", {}, "mean T"),
      ),
      el(
        "fieldset",
        { class: "lines" },
        el("legend", { class: "visually-hidden" }, "Layers"),
        lines.map(({ node }) => node),
      ),
    );
    choose(0);
  }

  function showReading(reading) {
    const gates = new Map(reading?.gates.map((gate) => [gate.name, gate]));
    for (const { group, mean } of lines) {
      const value = groupMean(group, ({ name }) => gates.get(name)?.mean);
      setChildren(mean, el("span", {}, value === null ? "–" : number(value)), el("span", { class: "share" }));
      mean.style.setProperty("--of", String(value ?? 0));
    }
  }

  function choose(n) {
    chosen = n;
    lines.forEach(({ node, lookRadio, radios }, place) => {
      node.classList.toggle("chosen", place === n);
      lookRadio.checked = place === n;
      // Tab stops once at the list and once at the switch of the chosen layer, not at each of a hundred layers
      for (const radio of radios) radio.tabIndex = place === n ? 0 : -1;
    });
    scrollIntoList(lines[n]?.node);
  }

  function showLevers(levers) {
    for (const { group, radios, node } of lines) {
      const state = levers.get(group.layer) ?? "as trained";
      node.dataset.state = state;
      for (const radio of radios) radio.checked = radio.value === state;
    }
  }

  subscribe("hovered layer", (layer) => {
    for (const { group, node } of lines) node.classList.toggle("hovered", group.layer === layer);
  });
  return { showGroups, showReading, choose, showLevers, chosen: () => chosen };
}

/** Scroll the list, but not the page, to a line. */
function scrollIntoList(line) {
  const list = line?.parentNode;
  if (!list) return;
  const [top, end] = [line.offsetTop, line.offsetTop + line.offsetHeight];
  if (top < list.scrollTop) list.scrollTop = top;
  else if (end > list.scrollTop + list.clientHeight) list.scrollTop = end - list.clientHeight;
}

function createLine(group, n, stateSwitch, choose) {
  const mean = el("span", { class: "mean" });
  const lookRadio = el("input", { type: "radio", name: "shown-layer", value: n, on: { change: choose } });
  const prefix = el("span", { class: "visually-hidden" }, "show layer ");
  const node = el(
    "div",
    {
      class: "line",
      on: {
        focusin: choose,
        pointerenter: () => publish("hovered layer", group.layer),
        pointerleave: () => publish("hovered layer", null),
      },
    },
    el("label", { class: "look" }, lookRadio, el("span", {}, prefix, group.name)),
    mean,
    stateSwitch.node,
  );
  return { group, node, lookRadio, mean, radios: stateSwitch.radios };
}

/** Radio buttons for "as trained", "closed" and "open", or a note why the layer cannot be moved. */
function createSwitch({ layer }, groups, onStateChange) {
  const gates = groups.filter((group) => group.layer === layer).flatMap((group) => group.gates);
  const fixed = gates.filter(({ levers }) => !levers.length);
  if (fixed.length) {
    const subject = fixed.length === gates.length ? "it has" : "some of its gates have";
    return { node: el("span", { class: "fixed" }, `fixed: ${subject} no bias to change`), radios: [] };
  }
  const radios = STATES.map((state) =>
    el("input", {
      type: "radio",
      name: `state-of-layer-${layer}`,
      value: state,
      on: { change: () => onStateChange(layer, state) },
    }),
  );
  const parts = radios.map((radio, n) => el("label", {}, radio, el("span", {}, STATES[n])));
  const attributes = { role: "radiogroup", "aria-label": `layer ${layer}` };
  return { node: el("div", { class: "state-switch", ...attributes }, parts), radios };
}

function movesWithNote(layer) {
  return el("span", { class: "fixed" }, `set together with layer ${layer}`);
}
