// What an answer comes to: the class that it gives most to, and how much.

import { percent } from "./figures.js";

/** {label, share} of the first output; null where that does not tell classes. */
export function outcomeOf({ distribution, labels }, outputs) {
  const [output] = outputs;
  if (!distribution || output.shape.length !== 2 || output.shape[1] < 2) return null;
  const values = Float64Array.from(output.data, Number);
  const top = values.indexOf(Math.max(...values));
  const logits = distribution === "logits";
  const share = logits ? 1 / sum(values.map((one) => Math.exp(one - values[top]))) : values[top];
  return { label: labels.length === values.length ? labels[top] : `class ${top}`, share };
}

/** The same as people read it: "7 (99.2 %)". */
export function outcomeSaid(certificate, outputs) {
  const outcome = outcomeOf(certificate, outputs);
  return outcome ? `${outcome.label} (${percent(outcome.share)})` : null;
}

function sum(values) {
  return values.reduce((all, one) => all + one, 0);
}
