// Chooses the sample that the page begins with, and a layer that changes its answer when it is closed.

import { predictedClass, predictedNumber } from "../row/predicted_class.js";
import { postTensors } from "../state/api.js";

// layers that are tried on all samples, and how long that may take
const MAX_TRIED_LAYERS = 4;
const MAX_MILLISECONDS = 8000;

/**
 * @typedef {object} Opening
 * @property {number} index  of the sample
 * @property {number|null} layer  that flips the sample's answer alone, when it is closed; null if none is known
 * @property {string} after  the answer then
 */

/**
 * For a table the sample whose most probable class is least certain, or whose predicted number is nearest to the median:
 * an undecided row shows most when a cell is changed. For other models the sample whose answer a closed layer flips.
 *
 * @param {import("../state/store.js").Model} model
 * @returns {Promise<Opening>}
 */
export async function openingSample(model, samples, signal) {
  const limited = AbortSignal.any([signal, AbortSignal.timeout(MAX_MILLISECONDS)]);
  const isTable = model.certificate.features.length > 0;
  const index = isTable ? await undecidedSample(model, samples, limited) : 0;
  const tensors = joined(isTable ? [samples[index]] : samples);
  if (!tensors || !model.gates.length || !model.certificate.distribution) return { index, layer: null, after: "" };
  const flip = await strongestFlip(model, tensors, limited);
  if (!flip) return { index, layer: null, after: "" };
  return { index: isTable ? index : flip.row, layer: flip.layer, after: flip.after };
}

async function undecidedSample({ path, certificate }, samples, signal) {
  const rows = samples.map(({ inputs }) => inputs[0].data);
  const batch = joined(samples);
  // rows of a table are all of one size
  if (batch === null) return 0;
  const { outputs } = await postTensors(`${path}/infer`, batch, { signal });
  const answers = rows.map((_, row) => outputs.map((output) => rowOf(output, row)));
  const distance = certificate.task === "number" ? fromMedian(certificate, answers) : certainty(certificate, answers);
  return distance.reduce((best, value, index) => (value < distance[best] ? index : best), 0);
}

/** The row and the layer for which closing takes most probability from the answer and flips it; null if none does. */
async function strongestFlip({ path }, tensors, signal) {
  const { curve } = await postTensors(`${path}/lesion`, tensors, { keys: { curve: true }, signal });
  const flipping = curve.layers.filter(({ flipped }) => flipped > 0).sort((a, b) => a.change - b.change);
  /** @type {{row: number, layer: number, change: number, after: string}|null} */
  let best = null;
  for (const { layer } of flipping.slice(0, MAX_TRIED_LAYERS)) {
    const { lesion } = await postTensors(`${path}/lesion`, tensors, { keys: { close: [layer] }, signal });
    const { flipped, change, label, class: classes } = lesion.by_row;
    for (const [row, flips] of flipped.entries()) {
      if (!flips || (best && best.change <= change[row])) continue;
      best = { row, layer, change: change[row], after: String((label ?? classes).after[row]) };
    }
  }
  return best;
}

/**
 * The samples as one batch; null if they have other sizes.
 *
 * @param {import("../state/api_types.js").Sample[]} samples
 */
function joined(samples) {
  const [{ inputs }] = samples;
  const sizes = (sample) => JSON.stringify(sample.inputs.map(({ shape }) => shape));
  if (samples.some((sample) => sizes(sample) !== sizes(samples[0]))) return null;
  return inputs.map((tensor, place) => ({
    ...tensor,
    shape: [samples.length * tensor.shape[0], ...tensor.shape.slice(1)],
    data: samples.flatMap((sample) => Array.from(sample.inputs[place].data)),
  }));
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
