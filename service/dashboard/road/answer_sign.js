// The sign at the end of the road: the model's answer, and the answer before layers were closed or opened.

import { el, setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { predictedClass, predictedNumber, probabilityText } from "../row/predicted_class.js";

// characters of a label in large letters
const MAX_LARGE = 4;

/** Show the answer of a reading in `node`; `before` is the reading without lesions, null if there are none. */
export function showAnswer(node, certificate, reading, before) {
  if (!reading) {
    node.classList.remove("changed");
    setChildren(node, el("span", { class: "answer" }, "?"));
    return;
  }
  const [now, then] = [answerOf(certificate, reading.outputs), before && answerOf(certificate, before.outputs)];
  node.classList.toggle("changed", Boolean(then) && then.label !== now.label);
  setChildren(
    node,
    now.target && el("span", { class: "answer-target", title: now.target }, now.target),
    el("span", { class: now.label.length > MAX_LARGE ? "answer long" : "answer", title: now.label }, now.label),
    now.share && el("span", { class: "answer-share" }, now.share),
    then && el("span", { class: "answer-before" }, `was ${then.label}`),
    // the name of a number is there already
    then?.share && then.share !== now.share && el("span", { class: "answer-before" }, then.share),
  );
}

/** {target, label, share} as text: the class of what is predicted, or else the first number of the outputs. */
function answerOf(certificate, outputs) {
  const predicted = predictedNumber(certificate, outputs);
  if (predicted) return { label: predicted.text, share: predicted.name };
  const prediction = predictedClass(certificate, outputs);
  if (prediction)
    return { target: certificate.target, label: prediction.label, share: probabilityText(prediction.share) };
  const { data, name } = outputs[0];
  if (data.length === 1) return { label: number(Number(data[0])), share: "" };
  return { label: name, share: `${data.length} values` };
}
