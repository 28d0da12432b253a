// Layers closed and opened by a person, and what the network answers so.

import { post, tensorAsJson } from "../state/api.js";
import { current, publish, subscribe } from "../state/store.js";
import { toTypedArray } from "../state/tensors.js";

const wishes = new Map();
let running = null;

/**
 * Publish `wishes` at each change, and `lesioned` when the answer is there, for each reading anew.
 * @typedef {object} Wishes
 * @property {Map<number, "closed"|"open">} of  the layers that are moved
 * @property {number[]} closed
 * @property {number[]} open
 * @property {"idle"|"asked"|"failed"} state
 * @property {string} message  why it failed
 */
export function startLesion() {
  subscribe("model", resetLayers);
  subscribe("reading", follow);
  subscribe("server", (state) => {
    if (state === "up" && current("layer states")?.state === "failed") follow(current("reading"));
  });
}

/** Have a layer "closed", "open" or "as is". */
export function setLayerState(layer, what) {
  if (what === "as is") wishes.delete(layer);
  else wishes.set(layer, what);
  follow(current("reading"));
}

/** All layers as they are. */
export function resetLayers() {
  wishes.clear();
  follow(current("reading"));
}

async function follow(reading) {
  running?.abort();
  const mine = (running = new AbortController());
  if (!reading || !wishes.size) {
    say("idle");
    publish("lesioned", null);
    return;
  }
  const { closed, open } = say("asked");
  try {
    const asked = { inputs: reading.row.inputs.map(tensorAsJson), close: closed, open };
    const answer = await post(`${current("model").path}/lesion`, asked, mine.signal);
    if (mine !== running) return;
    say("idle");
    const outputs = answer.lesioned.outputs.map((one) => ({ ...one, data: toTypedArray(one.datatype, one.data) }));
    publish("lesioned", { reading, closed, open, outputs, told: answer.lesion });
  } catch (error) {
    if (mine !== running) return;
    say("failed", error.message);
    publish("lesioned", null);
  }
}

function layersThatAre(what) {
  return [...wishes].filter(([, wanted]) => wanted === what).map(([layer]) => layer).sort((a, b) => a - b);
}

function say(state, message = "") {
  const [closed, open] = ["closed", "open"].map(layersThatAre);
  const tensorAsJson = { of: new Map(wishes), closed, open, state, message };
  publish("layer states", tensorAsJson);
  return tensorAsJson;
}
