// Lesions: layers that the user closed or opened, and the model's response with them.

import { post, tensorAsJson } from "../state/api.js";
import { current, publish, subscribe } from "../state/store.js";
import { toTypedArray } from "../state/tensors.js";

const layerStates = new Map();
let inFlight = null;

/**
 * Publish `layer states` on each change, and `lesioned` with the response, again for each new reading.
 * @typedef {object} LayerStates
 * @property {Map<number, "closed"|"open">} states  the layers that are not as is
 * @property {number[]} closed
 * @property {number[]} open
 * @property {"idle"|"busy"|"failed"} state  of the request
 * @property {string} message  why the request failed
 */
export function startLesion() {
  subscribe("model", resetLayers);
  subscribe("reading", requestLesion);
  subscribe("server", (state) => {
    if (state === "up" && current("layer states")?.state === "failed") requestLesion(current("reading"));
  });
}

/** Set a layer to "closed", "open" or "as is". */
export function setLayerState(layer, state) {
  if (state === "as is") layerStates.delete(layer);
  else layerStates.set(layer, state);
  requestLesion(current("reading"));
}

/** Set all layers to "as is". */
export function resetLayers() {
  layerStates.clear();
  requestLesion(current("reading"));
}

async function requestLesion(reading) {
  inFlight?.abort();
  const controller = (inFlight = new AbortController());
  if (!reading || !layerStates.size) {
    publishStates("idle");
    publish("lesioned", null);
    return;
  }
  const { closed, open } = publishStates("busy");
  try {
    const body = { inputs: reading.row.inputs.map(tensorAsJson), close: closed, open };
    const response = await post(`${current("model").path}/lesion`, body, controller.signal);
    if (controller !== inFlight) return;
    publishStates("idle");
    const outputs = response.lesioned.outputs.map((output) => ({
      ...output,
      data: toTypedArray(output.datatype, output.data),
    }));
    publish("lesioned", { reading, closed, open, outputs, lesion: response.lesion });
  } catch (error) {
    if (controller !== inFlight) return;
    publishStates("failed", error.message);
    publish("lesioned", null);
  }
}

function layersIn(state) {
  return [...layerStates]
    .filter(([, layerState]) => layerState === state)
    .map(([layer]) => layer)
    .sort((a, b) => a - b);
}

function publishStates(state, message = "") {
  const [closed, open] = ["closed", "open"].map(layersIn);
  const value = { states: new Map(layerStates), closed, open, state, message };
  publish("layer states", value);
  return value;
}
