// Finds the layers that change a row's answer when they are closed, each of them alone.

import { postTensors } from "../state/api.js";

/**
 * @typedef {object} Flips
 * @property {number[]} flipping  the layers that change the class
 * @property {number|null} strongest  the layer that takes most probability from it; null if none can be closed
 * @property {number} change  of the probability
 */

/**
 * Ask the service to close each layer in turn, in one request.
 *
 * @param {import("../state/store.js").Model} model
 * @param {import("../state/store.js").Row} row
 * @param {AbortSignal} [signal]
 * @returns {Promise<Flips>}
 */
export async function findFlips(model, row, signal) {
  const keys = { curve: true };
  const { curve } = await postTensors(`${model.path}/lesion`, row.inputs, { keys, signal });
  const layers = curve.layers.filter(({ change }) => change !== null);
  const flipping = layers.filter(({ flipped }) => flipped > 0);
  const candidates = flipping.length ? flipping : layers;
  const strongest = candidates.reduce((best, other) => (best && best.change <= other.change ? best : other), null);
  return {
    flipping: flipping.map(({ layer }) => layer),
    strongest: strongest?.layer ?? null,
    change: strongest?.change ?? 0,
  };
}
