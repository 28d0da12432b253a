// Requests a reading of a row: the outputs, and as much of the gates as the server provides.

import { ApiError, postTensors } from "./api.js";
import { leverFields } from "./levers.js";

// what to request, from everything to the prediction alone
const LEVELS = [
  { path: "gates", parameters: { detail: "rows", blocks: true } },
  { path: "gates", parameters: { detail: "rows" } },
  { path: "infer", parameters: {} },
];
const LAST_LEVEL = LEVELS.length - 1;
const MISSING_TEXTS = [
  null,
  "The layer outputs are too large to be sent.",
  "The gates of this row are too large to be sent.",
];
const NO_LAYER_OUTPUTS = "This model does not provide the outputs of its layers.";

// by model, the level by the shapes of a row's inputs, where the server refused more
const knownLevels = new WeakMap();

/**
 * Fetch the reading of a row.
 *
 * @param {import("./store.js").Model} model
 * @param {import("./store.js").Row} row
 * @param {{levers?: import("./levers.js").Levers|null, signal?: AbortSignal}} options  no levers are null
 * @returns {Promise<import("./store.js").Reading>}
 */
export async function fetchReading(model, row, { levers = null, signal }) {
  if (!knownLevels.has(model)) knownLevels.set(model, new Map());
  const levelByShapes = knownLevels.get(model);
  const shapes = JSON.stringify(row.inputs.map((input) => input.shape));
  let level = levelByShapes.get(shapes) ?? firstLevel(model);
  let refusalText = null;
  for (;;) {
    const start = performance.now();
    try {
      const response = await requestLevel(model, row, level, levers, signal);
      const milliseconds = performance.now() - start;
      if (refusalText === null) levelByShapes.set(shapes, level);
      const missing = refusalText ?? missingText(model, level);
      return readingOf(row, response, { levers, milliseconds, missing });
    } catch (error) {
      const next = error instanceof ApiError && model.gates.length > 0 ? nextLevel(error, level) : null;
      if (next === null) throw error;
      if (error.status === 422) refusalText = error.message;
      level = next;
    }
  }
}

async function requestLevel(model, row, level, levers, signal) {
  const { path, parameters } = LEVELS[level];
  const keys = levers ? leverFields(levers) : {};
  if (levers && level === LAST_LEVEL)
    return (await postTensors(`${model.path}/lesion`, row.inputs, { keys, signal })).lesioned;
  return postTensors(`${model.path}/${path}`, row.inputs, { keys, parameters, signal });
}

function firstLevel({ gates }) {
  if (gates.length === 0) return LAST_LEVEL;
  return gates.some((gate) => gate.output) ? 0 : 1;
}

// 413: the gates are too large, request fewer; 422: gates are NaN, so there is no summary of them
function nextLevel(error, level) {
  if (level === LAST_LEVEL) return null;
  if (error.status === 413) return level + 1;
  return error.status === 422 ? LAST_LEVEL : null;
}

function missingText({ gates }, level) {
  if (gates.length === 0) return null;
  return level === 1 && firstLevel({ gates }) === 1 ? NO_LAYER_OUTPUTS : MISSING_TEXTS[level];
}

function readingOf(row, response, { levers, milliseconds, missing }) {
  return {
    row,
    levers,
    outputs: response.outputs,
    gates: response.gates ?? [],
    route: response.route ?? null,
    tensors: new Map((response.tensors ?? []).map((tensor) => [tensor.name, tensor])),
    missing,
    milliseconds,
  };
}
