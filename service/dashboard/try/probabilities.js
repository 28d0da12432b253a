// Class probabilities of the first output, as the service computes them.

import { predictedClass, indexOfMax } from "../row/predicted_class.js";

/** {label, share, place} per class, in order; null if the output has no classes. */
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
  const maximum = logits[indexOfMax(logits)];
  const powers = logits.map((logit) => Math.exp(logit - maximum));
  const sum = powers.reduce((all, power) => all + power, 0);
  return powers.map((power) => power / sum);
}
