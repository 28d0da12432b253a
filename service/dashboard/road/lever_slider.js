// The slider below the road: moves the gates of one layer from closed over "as trained" to open.

import { el, setChildren } from "../dom/element.js";
import { leverAt, leverPosition, leverText } from "../state/levers.js";

/**
 * Create it in `node`. `onMove(layer, lever)` receives the lever that the layer shall get. Returns
 * `showLayer(roadLayer)`, null for none, and `showLevers(levers)`.
 */
export function leverSlider(node, onMove) {
  const name = el("span", { class: "lever-name" });
  const slider = el("input", { type: "range", min: "-1", max: "1", step: "0.01", list: "lever-middle" });
  const middle = el("datalist", { id: "lever-middle" }, el("option", { value: "0" }));
  const ends = el(
    "div",
    { class: "lever-ends", "aria-hidden": "true" },
    ["closed", "as trained", "open"].map((text) => el("span", {}, text)),
  );
  setChildren(node, el("label", {}, name, slider), ends, middle);
  /** @type {import("./road_layers.js").RoadLayer|null} */
  let roadLayer = null;
  /** @type {import("../state/levers.js").Levers} */
  let levers = new Map();
  slider.addEventListener("input", () => {
    if (roadLayer) onMove(roadLayer.layer, leverAt(slider.valueAsNumber));
  });

  function showLayer(newLayer) {
    roadLayer = newLayer;
    node.hidden = !roadLayer?.movable;
    show();
  }

  function showLevers(newLevers) {
    levers = newLevers;
    show();
  }

  function show() {
    if (!roadLayer) return;
    const lever = levers.get(roadLayer.layer);
    const text = leverText(lever);
    setChildren(name, `Lever of layer ${roadLayer.layer}: `, el("output", {}, text));
    slider.setAttribute("aria-label", `Lever of layer ${roadLayer.layer}`);
    slider.setAttribute("aria-valuetext", text);
    // the slider stays where the user holds it
    if (leverAt(slider.valueAsNumber) !== (lever ?? "as trained")) slider.value = String(leverPosition(lever));
  }

  return { showLayer, showLevers };
}
