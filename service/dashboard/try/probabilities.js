// How much the first output gives to each class, as the service itself tells it.

import { predictedClass, indexOfMax } from "../row/predicted_class.js";

/** Labels and shares of the classes, in their order; null where the output tells none. */
export function classProbabilities(certificate, outputs) {
  if (predictedClass(certificate, outputs) === null) return null;
  const values = Float64Array.from(outputs[0].data, Number);
  const shares = certificate.distribution === "logits" ? softmax(values) : values;
  const { labels } = certificate;
  const named = labels.length === shares.length;
  return Array.from(shares, (share, place) => ({
    label: named ? labels[place] : `class ${place}`,
    share,
    place,
  }));
}

function softmax(logits) {
  const most = logits[indexOfMax(logits)];
  const powers = logits.map((logit) => Math.exp(logit - most));
  const sum = powers.reduce((all, power) => all + power, 0);
  return powers.map((power) => power / sum);
}
