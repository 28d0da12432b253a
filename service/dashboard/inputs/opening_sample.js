// Chooses the sample that the page of a table begins with: an undecided row shows most when a cell is changed.

import { predictedClass, predictedNumber } from "../row/predicted_class.js";
import { postTensors } from "../state/api.js";

/**
 * The index of the sample whose most probable class is least certain, or whose predicted number is nearest to the
 * median of them. The answers come from one request.
 *
 * @param {import("../state/store.js").Model} model  with one input
 */
export async function openingSample({ path, certificate }, samples, signal) {
  const [first] = samples[0].inputs;
  const rows = samples.map(({ inputs }) => inputs[0].data);
  const table = { ...first, shape: [rows.length, ...first.shape.slice(1)], data: rows.flat() };
  const { outputs } = await postTensors(`${path}/infer`, [table], { signal });
  const answers = rows.map((_, row) => outputs.map((output) => rowOf(output, row)));
  const distance = certificate.task === "number" ? fromMedian(certificate, answers) : certainty(certificate, answers);
  return distance.reduce((best, value, index) => (value < distance[best] ? index : best), 0);
}

/** A row of an output, as a batch of one. */
function rowOf({ shape, data, ...rest }, row) {
  const length = data.length / shape[0];
  return { ...rest, shape: [1, ...shape.slice(1)], data: data.slice(row * length, (row + 1) * length) };
}

function certainty(certificate, answers) {
  return answers.map((outputs) => predictedClass(certificate, outputs)?.share ?? 1);
}

function fromMedian(certificate, answers) {
  const numbers = answers.map((outputs) => predictedNumber(certificate, outputs)?.value ?? Infinity);
  const median = [...numbers].sort((a, b) => a - b)[Math.floor((numbers.length - 1) / 2)];
  return numbers.map((value) => Math.abs(value - median));
}
