// One sentence on how the closed and opened layers changed the prediction.

import { el, setChildren } from "../dom/element.js";
import { leversText, sameLevers } from "../state/levers.js";
import { current, expectCurrent, subscribe } from "../state/store.js";
import { answerText } from "./predicted_class.js";

/** Show the sentence in `node`, which is hidden while all layers are as trained. */
export function startLesionEffect(node) {
  subscribe("levers", (leverState) => show(node, leverState, current("lesioned")));
  subscribe("lesioned", (lesioned) => show(node, current("levers"), lesioned));
}

function show(node, leverState, lesioned) {
  const movedLayers = leverState ? leversText(leverState.levers) : "";
  node.hidden = !movedLayers;
  node.classList.toggle("failed", leverState?.state === "failed");
  if (!movedLayers) return;
  const effect = leverState.state === "failed" ? leverState.message : effectOf(leverState, lesioned);
  setChildren(node, `With ${movedLayers}: `, effect);
}

/** The prediction with and without; "…" while the response to the current states is pending. */
function effectOf(leverState, lesioned) {
  if (!lesioned || !sameLevers(lesioned.levers, leverState.levers)) return "…";
  const { certificate } = expectCurrent("model");
  const classText = ({ outputs }) => answerText(certificate, outputs);
  const [before, after] = [classText(lesioned.reading), classText(lesioned)];
  if (!before) return "the change is shown beside the prediction.";
  return [el("strong", {}, after), `; as trained: ${before}.`];
}
