// One sentence on how the closed and opened layers changed the prediction.

import { el, setChildren } from "../dom/element.js";
import { current, subscribe } from "../state/store.js";
import { predictedClassText } from "./predicted_class.js";

/** Show the sentence in `node`, which is hidden while all layers are as is. */
export function startLesionEffect(node) {
  subscribe("layer states", (layerStates) => show(node, layerStates, current("lesioned")));
  subscribe("lesioned", (lesioned) => show(node, current("layer states"), lesioned));
}

function show(node, layerStates, lesioned) {
  const movedLayers = layerStates ? movedText(layerStates) : "";
  node.hidden = !movedLayers;
  node.classList.toggle("failed", layerStates?.state === "failed");
  if (!movedLayers) return;
  const effect = layerStates.state === "failed" ? layerStates.message : effectOf(layerStates, lesioned);
  setChildren(node, `With ${movedLayers}: `, effect);
}

/** The prediction with and without; "…" while the response to the current states is pending. */
function effectOf(layerStates, lesioned) {
  const matches = (state) => String(lesioned[state]) === String(layerStates[state]);
  if (!lesioned || !matches("closed") || !matches("open")) return "…";
  const { certificate } = current("model");
  const classText = ({ outputs }) => predictedClassText(certificate, outputs);
  const [before, after] = [classText(lesioned.reading), classText(lesioned)];
  if (!before) return "the change is shown beside the prediction.";
  return [el("strong", {}, after), `; as is: ${before}.`];
}

function movedText({ closed, open }) {
  const classText = (layers, state) =>
    layers.length > 0 && `${layers.length > 1 ? "layers" : "layer"} ${layers.join(", ")} ${state}`;
  return [classText(closed, "closed"), classText(open, "open")].filter(Boolean).join(" and ");
}
