// The road of row A, which was kept for a comparison, above the road of the current row, B.

import { el, setChildren } from "../dom/element.js";
import { answerText } from "../row/predicted_class.js";
import { readingTitle } from "../state/levers.js";
import { current, publish, subscribe } from "../state/store.js";
import { sharesOf } from "./road_layers.js";
import { RoadPicture } from "./road_picture.js";

// its height, as a share of that of the road below it
const HEIGHT = 0.5;

/**
 * Create it in `node`, hidden until a row is kept. Returns `setStretches(stretches)` for another model and
 * `resize(size)` for the size of the road below it.
 */
export function keptRoad(node) {
  const picture = new RoadPicture();
  const [title, titleOfB] = [el("p"), el("p")];
  const discard = el("button", { type: "button", on: { click: () => publish("kept reading", null) } }, "Discard A");
  const head = (...content) => el("div", { class: "kept-head" }, content);
  setChildren(node, head(title, discard), picture.node, head(titleOfB));
  node.hidden = true;
  /** @type {import("./road_layers.js").RoadStretch[]} */
  let stretches = [];
  /** @type {import("./lane_shapes.js").RoadSize|null} */
  let size = null;

  function setStretches(newStretches) {
    stretches = newStretches;
    picture.setCount(stretches.length);
  }

  function resize({ stretch, width, gap, margin }) {
    const ownSize = { stretch, width: HEIGHT * width, gap: HEIGHT * gap, margin };
    size = ownSize;
    picture.resize(ownSize);
    draw();
  }

  function draw() {
    const kept = current("kept reading");
    // when the model goes, the reading of its row is there for a moment longer
    const model = current("model");
    node.hidden = !kept || !model;
    if (!kept || !model || !size) return;
    setChildren(title, titleOf("A", kept, model));
    const shown = current("shown reading");
    setChildren(titleOfB, shown && titleOf("B", shown, model));
    picture.draw(sharesOf(stretches, kept));
    const levers = kept.levers ?? new Map();
    picture.drawBarriers(
      stretches.map(({ group }) => levers.get(group.layer) ?? "as trained"),
      stretches.map(() => null),
    );
  }

  subscribe("kept reading", draw);
  subscribe("shown reading", draw);
  return { setStretches, resize };
}

function titleOf(letter, reading, { certificate }) {
  const prediction = answerText(certificate, reading.outputs);
  return [el("strong", {}, letter), `: ${readingTitle(reading)}`, prediction && ` → ${prediction}`];
}
