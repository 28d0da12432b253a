// What an answer comes to: the class that it gives most to, and how much.

/** {label, share} of the first output; null where that tells none. */
export function predictedClass({ distribution, labels }, outputs) {
  const [output] = outputs;
  if (!distribution || output.shape.length !== 2 || output.shape[1] < 2) return null;
  const values = Float64Array.from(output.data, Number);
  // a network that answers NaN tells no class
  if (!values.every((value) => value < Infinity)) return null;
  const top = indexOfMax(values);
  const logits = distribution === "logits";
  const share = logits ? 1 / sum(values.map((one) => Math.exp(one - values[top]))) : values[top];
  return { label: labels.length === values.length ? labels[top] : `class ${top}`, share };
}

/** The same as people read it: "7 (99.2 %)". */
export function predictedClassText(certificate, outputs) {
  const outcome = predictedClass(certificate, outputs);
  return outcome ? `${outcome.label} (${probabilityText(outcome.share)})` : null;
}

/** A probability; one that is all but certain or impossible is never told as if it were. */
export function probabilityText(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  if (share < 1 && share >= 0.9995) return "> 99.9 %";
  return `${(100 * share).toFixed(1)} %`;
}

/** Where the greatest value is; of very many classes the arguments of Math.max would be too many. */
export function indexOfMax(values) {
  return values.reduce((top, value, place) => (value > values[top] ? place : top), 0);
}

function sum(values) {
  return values.reduce((all, one) => all + one, 0);
}
