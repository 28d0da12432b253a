// Draws the road as SVG: its lanes, the junctions between layers, and barriers where a lane is closed.

import { setChildren, svg } from "../dom/element.js";
import {
  carriedLane,
  junction,
  laneWidths,
  pictureHeight,
  roadTop,
  transformedLane,
} from "./lane_shapes.js";

// lanes narrower than this have no markings, in pixels
const MIN_MARKED = 9;
// Shorter stretches have no letter for their transform, and on narrower lanes it is above the lane, in pixels.
const [MIN_LETTERED, MIN_LETTERED_LANE] = [34, 14];
// distance of the middle of such a letter from its lane
const LETTER_RISE = 8;
// height of a barrier in pixels
const BARRIER = 9;
// each picture has stripes of its own, because ids are unique in a page
let pictures = 0;

/** A picture of `count` stretches; `node` is the SVG element. */
export class RoadPicture {
  #stretches = [];
  /** @type {import("./lane_shapes.js").RoadSize|null} */
  #size = null;
  #stripes = `road-stripes-${(pictures += 1)}`;
  #asphalt = svg("rect", { class: "asphalt" });
  #junctions = svg("g", { class: "junctions" });
  #lanes = svg("g");

  constructor() {
    this.node = svg("svg", { class: "road-picture", "aria-hidden": "true" });
    setChildren(this.node, barrierStripes(this.#stripes), this.#asphalt, this.#lanes, this.#junctions);
  }

  setCount(count) {
    this.#stretches = Array.from({ length: count }, () => createStretch(`url(#${this.#stripes})`));
    setChildren(
      this.#lanes,
      this.#stretches.map(({ node }) => node),
    );
    setChildren(
      this.#junctions,
      Array.from({ length: count + 1 }, () => svg("rect")),
    );
  }

  /** @param {import("./lane_shapes.js").RoadSize} size */
  resize(size) {
    this.#size = size;
    const length = size.stretch * this.#stretches.length;
    const [top, half] = [roadTop(size), junction(size)];
    set(this.node, { width: length, height: pictureHeight(size) });
    set(this.#asphalt, { x: 0, y: top, width: length, height: size.width });
    [...this.#junctions.children].forEach((node, n) =>
      set(node, {
        x: Math.min(Math.max(n * size.stretch - half, 0), length - 2 * half),
        y: top,
        width: 2 * half,
        height: size.width,
      }),
    );
  }

  /**
   * The kinds of lanes with their colors.
   * @returns {[string, string][]}
   */
  laneColors() {
    const [{ carried, transformed }] = this.#stretches;
    return [
      ["carried", getComputedStyle(carried).fill],
      ["transformed", getComputedStyle(transformed).fill],
    ];
  }

  /** Draw these shares, one per stretch; null draws the road without lanes. */
  draw(shares) {
    if (!this.#size) return;
    this.#stretches.forEach((stretch, n) => drawStretch(stretch, n, shares[n], this.#size));
  }

  /**
   * Draw a barrier on each closed lane, and the outlines of the lanes as trained.
   * @param {("as trained"|import("../state/levers.js").Lever)[]} states  one per stretch
   * @param {(import("./road_layers.js").Shares|null)[]} original  the shares without lesions
   */
  drawBarriers(states, original) {
    if (!this.#size) return;
    const moved = states.some((state) => state !== "as trained");
    this.#stretches.forEach((stretch, n) => {
      drawOutline(stretch, n, states[n], moved ? original[n] : null, this.#size);
      drawBarrier(stretch, n, states[n], original[n], this.#size);
    });
  }
}

function createStretch(stripes) {
  const parts = {
    outline: svg("path", { class: "as-trained" }),
    carried: svg("rect", { class: "carried" }),
    transformed: svg("path", { class: "transformed" }),
    marking: svg("line", { class: "marking" }),
    letter: svg("text", { class: "letter" }, "H"),
    barrier: svg("g", { class: "barrier" }, svg("line"), svg("line"), svg("rect", { rx: 2, fill: stripes })),
  };
  return { ...parts, node: svg("g", {}, Object.values(parts)) };
}

function drawStretch({ carried, transformed, marking, letter }, n, shares, size) {
  const widths = shares ? laneWidths(shares, size) : { carried: 0, transformed: 0 };
  const x = n * size.stretch;
  const lane = carriedLane(x, widths.carried, size);
  set(carried, lane);
  set(transformed, { d: widths.transformed > 0 ? transformedLane(x, widths.transformed, size) : "" });
  const middle = lane.y + widths.carried / 2;
  set(marking, { x1: lane.x, x2: lane.x + lane.width, y1: middle, y2: middle });
  show(marking, widths.carried >= MIN_MARKED);
  show(letter, size.stretch >= MIN_LETTERED && widths.transformed > 0);
  const isAbove = widths.transformed < MIN_LETTERED_LANE;
  letter.classList.toggle("above", isAbove);
  const rise = isAbove ? widths.transformed + LETTER_RISE : widths.transformed / 2;
  set(letter, { x: x + size.stretch / 2, y: roadTop(size) - size.gap - rise });
}

/** The lane as trained, behind the lanes with the lesion: the carried one of an open layer, otherwise the transformed one. */
function drawOutline({ outline }, n, state, original, size) {
  show(outline, Boolean(original));
  if (!original) return;
  const x = n * size.stretch;
  const widths = laneWidths(original, size);
  const lane = carriedLane(x, widths.carried, size);
  const carriedOutline = `M${lane.x},${lane.y}h${lane.width}v${lane.height}h${-lane.width}Z`;
  set(outline, { d: state === "open" ? carriedOutline : transformedLane(x, widths.transformed, size) });
}

function drawBarrier({ barrier }, n, state, original, size) {
  const closed = state === "closed";
  const blocked = closed || state === "open";
  show(barrier, blocked);
  if (!blocked) return;
  const widths = original ? laneWidths(original, size) : { carried: 0, transformed: 0 };
  const lane = Math.max(closed ? widths.transformed : widths.carried, 2 * BARRIER);
  const foot = closed ? roadTop(size) - size.gap : roadTop(size) + size.width;
  const middle = foot - lane / 2;
  const length = Math.min(Math.max(0.62 * size.stretch, 8), 46);
  const left = n * size.stretch + (size.stretch - length) / 2;
  const [firstPost, secondPost, bar] = barrier.children;
  const post = (x) => ({ x1: x, x2: x, y1: middle, y2: middle + BARRIER });
  set(firstPost, post(left + 0.2 * length));
  set(secondPost, post(left + 0.8 * length));
  set(bar, { x: left, y: middle - BARRIER / 2, width: length, height: BARRIER });
}

function barrierStripes(id) {
  const stripes = { id, width: 8, height: 8, patternUnits: "userSpaceOnUse" };
  return svg(
    "defs",
    {},
    svg(
      "pattern",
      { ...stripes, patternTransform: "rotate(45)" },
      svg("rect", { class: "stripe-ground", width: 8, height: 8 }),
      svg("rect", { class: "stripe", width: 4, height: 8 }),
    ),
  );
}

function show(node, shown) {
  node.classList.toggle("absent", !shown);
}

function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
}
