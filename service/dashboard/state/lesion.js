// Lesions: layers that the user closed or opened, and the model's response with them.

import { fetchReading } from "./reading.js";
import { current, expectCurrent, publish, subscribe } from "./store.js";

// milliseconds after which a newer request replaces one that is still running
const MAX_WAIT = 250;

/** @type {import("./levers.js").Levers} */
const levers = new Map();
/** @type {AbortController|null} */
let inFlight = null;
let lastStart = 0;
let timer = 0;

/**
 * Publish `levers` on each change, and `lesioned` with the response, again for each new reading. Then
 * publish `shown reading`: the latest reading with the layers closed and opened.
 * @typedef {object} LeverState
 * @property {import("./levers.js").Levers} levers
 * @property {"idle"|"busy"|"failed"} state  of the request
 * @property {string} message  why the request failed
 */
export function startLesion() {
  subscribe("model", resetLayers);
  subscribe("reading", requestLesion);
  subscribe("server", (state) => {
    if (state === "up" && current("levers")?.state === "failed") requestLesion();
  });
}

/** Set the lever of a layer, or "as trained" to take it away. */
export function setLever(layer, lever) {
  if (lever === "as trained") levers.delete(layer);
  else levers.set(layer, lever);
  requestLesion();
}

/** Replace all levers. */
export function setLevers(newLevers) {
  levers.clear();
  for (const [layer, lever] of newLevers) levers.set(layer, lever);
  requestLesion();
}

/** Set all layers to "as trained". */
export function resetLayers() {
  setLevers(new Map());
}

/** Request the reading with the levers; while a lever is dragged, one request after the other. */
function requestLesion() {
  clearTimeout(timer);
  timer = 0;
  const reading = current("reading");
  if (!reading || !levers.size) {
    inFlight?.abort();
    inFlight = null;
    publishStates("idle");
    publish("lesioned", null);
    publish("shown reading", reading ?? null);
    return;
  }
  publishStates("busy");
  if (inFlight) timer = setTimeout(send, Math.max(0, lastStart + MAX_WAIT - performance.now()));
  else send();
}

async function send() {
  clearTimeout(timer);
  timer = 0;
  inFlight?.abort();
  const controller = (inFlight = new AbortController());
  lastStart = performance.now();
  const [reading, sentLevers] = [expectCurrent("reading"), new Map(levers)];
  /** @type {import("./store.js").Reading|null} */
  let moved = null;
  /** @type {Error|null} */
  let failure = null;
  try {
    const options = { levers: sentLevers, signal: controller.signal };
    moved = await fetchReading(expectCurrent("model"), reading.row, options);
  } catch (error) {
    failure = error;
  }
  if (controller !== inFlight) return;
  inFlight = null;
  if (timer === 0) publishStates(failure ? "failed" : "idle", failure?.message);
  publish("lesioned", moved && { reading, levers: sentLevers, outputs: moved.outputs });
  publish("shown reading", moved ?? reading);
  if (timer !== 0) send();
}

function publishStates(state, message = "") {
  publish("levers", { levers: new Map(levers), state, message });
}
