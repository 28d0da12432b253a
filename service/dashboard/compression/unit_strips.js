// A strip for each layer of the original network, with a cell for each unit: coloured if the unit is left.

import { el, setChildren, svg } from "../dom/element.js";

// units up to which there is a gap between cells, and its width in cells
const [MAX_SEPARATE_CELLS, GAP] = [100, 0.15];
const HINT = "Point at a cell to see the number of its unit.";

/** Create the strips in `body`. Returns a function that shows the layers of a model. */
export function startUnitStrips(body) {
  const pointed = el("p", { class: "caption", "aria-hidden": "true" }, HINT);
  const lines = el("tbody");
  const numbers = el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Unit numbers" });
  const details = el("details", { class: "as-table" }, el("summary", {}, "Unit numbers"), numbers);
  let layers = [];
  const title = (text, attributes) => el("th", { scope: "col", ...attributes }, text);
  const table = el(
    "table",
    { class: "unit-strips" },
    el("caption", { class: "visually-hidden" }, "Units that are left in each layer"),
    el("thead", {}, el("tr", {}, title("layer"), title("its units"), title("left", { class: "number" }))),
    lines,
  );
  const region = { class: "scroll", tabindex: "0", role: "region", "aria-label": "Units that are left" };
  setChildren(body, el("h3", {}, "Units that are left"), pointed, el("div", region, table), details);
  table.addEventListener("pointermove", (event) => setChildren(pointed, unitText(event, layers)));
  table.addEventListener("pointerleave", () => setChildren(pointed, HINT));
  const showNumbers = () => details.open && setChildren(numbers, layers.map(numberLine));
  details.addEventListener("toggle", showNumbers);

  /** @param {import("./layer_units.js").LayerUnits[]} newLayers */
  return (newLayers) => {
    layers = newLayers;
    setChildren(lines, layers.map(stripLine));
    showNumbers();
  };
}

function stripLine({ name, kept, units }, n) {
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, name),
    el("td", { class: "strip-cell" }, strip(kept, cellCount(kept, units), n)),
    el("td", { class: "number" }, countText(kept, units)),
  );
}

function strip(kept, count, n) {
  if (!count) return null;
  const left = new Set(kept);
  const removed = Array.from({ length: count }, (_, unit) => unit).filter((unit) => !left.has(unit));
  const gap = count <= MAX_SEPARATE_CELLS ? GAP : 0;
  const attributes = { viewBox: `0 0 ${count} 1`, preserveAspectRatio: "none", "aria-hidden": "true" };
  return svg(
    "svg",
    { class: "unit-strip", "data-line": n, ...attributes },
    svg("path", { class: "removed", d: cells(removed, gap) }),
    svg("path", { class: "left", d: cells(kept, gap) }),
  );
}

/** The outlines of cells; without gaps, cells that follow each other are one. */
function cells(units, gap) {
  if (gap) return units.map((unit) => `M${unit + gap / 2} 0h${1 - gap}v1h${gap - 1}z`).join("");
  return runsOf(units)
    .map(([first, last]) => `M${first} 0H${last + 1}V1H${first}z`)
    .join("");
}

/** Ascending numbers as pairs of the first and last number of each run. */
function runsOf(units) {
  /** @type {[number, number][]} */
  const runs = [];
  for (const unit of units) {
    const last = runs.at(-1);
    if (last?.[1] === unit - 1) last[1] = unit;
    else runs.push([unit, unit]);
  }
  return runs;
}

/** The number of cells: that of the units, as far as they are known. */
function cellCount(kept, units) {
  return units ?? (kept.length ? kept.at(-1) + 1 : 0);
}

function countText(kept, units) {
  const of = units === null ? "" : ` of ${units.toLocaleString("en")}`;
  return kept.length ? `${kept.length.toLocaleString("en")}${of}` : `none${of}`;
}

function numberLine({ name, kept }) {
  const runs = runsOf(kept).map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`));
  return el("p", {}, `Layer ${name}: ${runs.join(", ") || "none"}`);
}

function unitText({ target, clientX }, layers) {
  const image = target.closest?.("svg");
  if (!image) return HINT;
  const { name, kept, units } = layers[Number(image.dataset.line)];
  const box = image.getBoundingClientRect();
  const count = cellCount(kept, units);
  const unit = Math.min(Math.max(Math.floor(((clientX - box.left) / box.width) * count), 0), count - 1);
  return `Layer ${name}, unit ${unit}: ${kept.includes(unit) ? "left" : "removed"}`;
}
