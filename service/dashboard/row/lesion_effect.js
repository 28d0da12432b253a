// What closing and opening layers did to the answer, in a sentence.

import { el, setChildren } from "../dom/element.js";
import { predictedClassText } from "./predicted_class.js";
import { current, subscribe } from "../state/store.js";

/** The sentence in `node`, which is hidden while all layers are as they are. */
export function startLesionEffect(node) {
  subscribe("layer states", (wishes) => show(node, wishes, current("lesioned")));
  subscribe("lesioned", (lesioned) => show(node, current("layer states"), lesioned));
}

function show(node, wishes, lesioned) {
  const moved = wishes ? movedSaid(wishes) : "";
  node.hidden = !moved;
  node.classList.toggle("failed", wishes?.state === "failed");
  if (!moved) return;
  const what = wishes.state === "failed" ? wishes.message : cameTo(wishes, lesioned);
  setChildren(node, `With ${moved}: `, what);
}

/** The answer with and without; nothing yet where what is known is of other wishes. */
function cameTo(wishes, lesioned) {
  const same = (state) => String(lesioned[state]) === String(wishes[state]);
  if (!lesioned || !same("closed") || !same("open")) return "…";
  const { certificate } = current("model");
  const said = ({ outputs }) => predictedClassText(certificate, outputs);
  const [before, after] = [said(lesioned.reading), said(lesioned)];
  if (!before) return "what changes is told beside the prediction.";
  return [el("strong", {}, after), `, as it is ${before}.`];
}

function movedSaid({ closed, open }) {
  const said = (layers, state) =>
    layers.length > 0 && `${layers.length > 1 ? "layers" : "layer"} ${layers.join(", ")} ${state}`;
  return [said(closed, "closed"), said(open, "open")].filter(Boolean).join(" and ");
}
