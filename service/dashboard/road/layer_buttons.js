// The buttons on the road, one per layer: a press closes the layer, another press resets it.

import { el, setChildren } from "../dom/element.js";
import { percent } from "../dom/number_format.js";
import { leverText } from "../state/levers.js";
import { current, publish, subscribe } from "../state/store.js";

// smallest distance between two numbers in rem
const MIN_NUMBER_SPACE = 1.7;

/**
 * @typedef {import("./road_layers.js").RoadLayer} RoadLayer
 *
 * @typedef {object} Entry  a button
 * @property {RoadLayer} roadLayer
 * @property {HTMLElement[]} numbers
 * @property {"as trained"|import("../state/levers.js").Lever} state
 * @property {(import("./road_layers.js").Shares|null)[]} shares
 * @property {HTMLButtonElement} button
 */

/**
 * Create the buttons in `node`. `onPress(layer, lever)` receives the lever that a pressed layer shall get, and
 * `onReach(roadLayer)` the layer that Tab leads to: the last that was used, null for none. Returns
 * `setLayers(layers)`, `showLevers(levers)`, `showShares(shares)` with a list per stretch, `markFlips(layers)`,
 * `point(layer)`, which points at a layer that is worth closing, null for none, `reveal(layer, scroll)`, which scrolls the box around the road to a layer, and `thinNumbers(stretch)` for the
 * length of a stretch in pixels.
 *
 * @param {HTMLElement} node
 * @param {object} options
 * @param {(layer: number, lever: "closed"|"as trained") => void} options.onPress
 * @param {(roadLayer: RoadLayer|null) => void} options.onReach
 */
export function layerButtons(node, { onPress, onReach }) {
  /** @type {Entry[]} */
  let entries = [];
  /** @type {Entry|undefined} */
  let reached;
  node.setAttribute("role", "toolbar");
  node.setAttribute("aria-label", "Layers of the road");
  node.addEventListener("keydown", moveFocus);
  node.addEventListener("pointerleave", () => publish("hovered layer", null));
  subscribe("chosen layer", (layer) => {
    const entry = entries.find(({ roadLayer }) => roadLayer.layer === layer);
    if (entry && entry !== reached) reach(entry);
  });
  subscribe("hovered layer", (layer) => {
    for (const { button, roadLayer } of entries) button.classList.toggle("hovered", roadLayer.layer === layer);
  });

  function setLayers(layers) {
    entries = layers.map((roadLayer) => createButton(roadLayer, press));
    setChildren(
      node,
      entries.map(({ button }) => button),
    );
    reach(entries.find(({ roadLayer }) => roadLayer.movable) ?? entries[0]);
    node.style.setProperty("--stretches", String(layers.flatMap(({ stretches }) => stretches).length));
  }

  function press(entry) {
    reach(entry);
    if (!entry.roadLayer.movable) return;
    onPress(entry.roadLayer.layer, entry.state === "as trained" ? "closed" : "as trained");
  }

  /** Tab stops at one button; arrow keys lead to the others. */
  function reach(entry) {
    reached = entry;
    for (const other of entries) other.button.tabIndex = other === entry ? 0 : -1;
    onReach(entry?.roadLayer ?? null);
    const layer = entry?.roadLayer.layer ?? null;
    if (layer !== current("chosen layer")) publish("chosen layer", layer);
  }

  function moveFocus(event) {
    const place = entries.findIndex(({ button }) => button === event.target);
    const target = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: entries.length - 1 }[event.key];
    if (place < 0 || target === undefined) return;
    event.preventDefault();
    const entry = entries[target];
    if (!entry) return;
    reach(entry);
    entry.button.focus();
  }

  function showLevers(levers) {
    const moved = entries.filter(({ state, roadLayer }) => state === "as trained" && levers.has(roadLayer.layer));
    // moved from elsewhere: by a link, or in the table of layers
    if (moved.length && !(reached && moved.includes(reached))) reach(moved[0]);
    for (const entry of entries) {
      entry.state = levers.get(entry.roadLayer.layer) ?? "as trained";
      entry.button.dataset.state = String(entry.state);
      entry.button.setAttribute("aria-pressed", String(entry.state === "closed"));
      describe(entry);
    }
  }

  function showShares(shares) {
    let first = 0;
    for (const entry of entries) {
      const { length } = entry.roadLayer.stretches;
      entry.shares = shares.slice(first, first + length);
      first += length;
      describe(entry);
    }
  }

  function markFlips(layers) {
    for (const { button, roadLayer } of entries)
      button.classList.toggle("flips", layers.includes(roadLayer.layer));
  }

  function point(layer) {
    for (const entry of entries) {
      const isPointed = entry.roadLayer.layer === layer;
      entry.button.classList.toggle("pointed", isPointed);
      if (isPointed) reach(entry);
    }
  }

  function reveal(layer, scroll) {
    const entry = entries.find(({ roadLayer }) => roadLayer.layer === layer);
    if (!entry) return;
    const { button } = entry;
    reach(entry);
    scroll.scrollLeft = button.offsetLeft + (button.offsetWidth - scroll.clientWidth) / 2;
  }

  function thinNumbers(stretch) {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const each = Math.ceil((MIN_NUMBER_SPACE * rem) / stretch);
    entries
      .flatMap(({ numbers }) => numbers)
      .forEach((number, n) => number.classList.toggle("thinned", n % each !== 0));
  }

  return { setLayers, showLevers, showShares, markFlips, point, reveal, thinNumbers };
}

function createButton(roadLayer, press) {
  const { layer, stretches, movable } = roadLayer;
  const numbers = stretches.map(({ name }) => el("span", { class: "layer-number" }, name));
  const label = movable ? `Close layer ${layer}` : `Layer ${layer} cannot be closed`;
  const button = el(
    "button",
    {
      type: "button",
      class: "layer-button",
      "aria-label": label,
      "aria-pressed": "false",
      "aria-disabled": movable ? null : "true",
      on: { click: () => press(entry), pointerenter: () => publish("hovered layer", layer) },
    },
    numbers,
  );
  /** @type {Entry} */
  const entry = { roadLayer, numbers, state: "as trained", shares: [], button };
  button.style.setProperty("--span", String(stretches.length));
  return entry;
}

/** @param {Entry} entry */
function describe({ button, roadLayer: { layer, stretches, movable }, state, shares }) {
  const known = shares.filter((share) => share !== null);
  const mean = (key) => known.reduce((sum, share) => sum + share[key], 0) / known.length;
  const depths = stretches.length > 1 ? `, mean of ${stretches.length} depths` : "";
  const action = !movable
    ? "It has no bias to change, so it cannot be closed."
    : state === "as trained"
      ? "Press to close it."
      : `It is ${leverText(state)}; press to reset it.`;
  const sharesText = known.length
    ? `: ${percent(mean("carried"))} carried, ${percent(mean("transformed"))} transformed${depths}`
    : "";
  button.title = `Layer ${layer}${sharesText}. ${action}`;
}
