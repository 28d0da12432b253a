// A model's answer: the class probabilities of its first output and the most probable class, or a number.

import { number } from "../dom/number_format.js";

/** {label, share} of the first output; null if the output has no classes. */
export function predictedClass({ distribution, labels }, outputs) {
  const [output] = outputs;
  if (!distribution || output.shape.length !== 2 || output.shape[1] < 2) return null;
  const values = Float64Array.from(output.data, Number);
  // NaN or infinity: no class
  if (!values.every((value) => value < Infinity)) return null;
  const top = indexOfMax(values);
  const logits = distribution === "logits";
  const share = logits ? 1 / sum(values.map((value) => Math.exp(value - values[top]))) : values[top];
  return { label: labels.length === values.length ? labels[top] : `class ${top}`, share };
}

/**
 * {name, value, text, interval} of a predicted number; null if the model predicts none. `interval` is a text, null
 * if the model has no intervals.
 */
export function predictedNumber({ task, target, interval }, outputs) {
  const [{ data }] = outputs;
  if (task !== "number" || data.length !== 1) return null;
  const value = Number(data[0]);
  return { name: target, value, text: numberText(value), interval: interval ? intervalText(value, interval) : null };
}

/** The interval of a predicted number, as in "8.1 to 12.3 in 90 % of such rows". */
function intervalText(value, { level, half_width }) {
  const [low, high] = [value - half_width, value + half_width].map(numberText);
  return `${low} to ${high} in ${Number((100 * level).toPrecision(4))} % of such rows`;
}

/** The answer as text: "7 (99.2 %)", "sex F (99.2 %)", or "price: 12.5"; null if the output is neither a class nor a number. */
export function answerText(certificate, outputs) {
  const predicted = predictedNumber(certificate, outputs);
  if (predicted) return predicted.name ? `${predicted.name}: ${predicted.text}` : predicted.text;
  const prediction = predictedClass(certificate, outputs);
  if (!prediction) return null;
  const label = certificate.target ? `${certificate.target} ${prediction.label}` : prediction.label;
  return `${label} (${probabilityText(prediction.share)})`;
}

/** A predicted number with five significant digits. */
function numberText(value) {
  const size = Math.abs(value);
  if (!Number.isFinite(value) || (size !== 0 && (size < 1e-3 || size >= 1e12))) return number(value);
  return value.toLocaleString("en", { maximumSignificantDigits: 5 }).replace("-", "−");
}

/** A probability as text; rounding never turns it into 0 % or 100 %. */
export function probabilityText(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  if (share < 1 && share >= 0.9995) return "> 99.9 %";
  return `${(100 * share).toFixed(1)} %`;
}

/** The index of the highest value. Math.max fails with very many arguments. */
export function indexOfMax(values) {
  return values.reduce((top, value, place) => (value > values[top] ? place : top), 0);
}

function sum(values) {
  return values.reduce((all, value) => all + value, 0);
}

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
  const total = sum(powers);
  return powers.map((power) => power / total);
}
