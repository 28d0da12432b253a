// Sends the current row to the model: at a limited rate, always including the latest row, and using only the
// response to the latest request.

import { ApiError, postTensors } from "../state/api.js";
import { current, publish, subscribe } from "../state/store.js";

/**
 * Value of the topic `request`: the state of the request for the current row, null without a row.
 * @typedef {{row: object, busy: boolean, error: ApiError|null}} RequestState
 */
// milliseconds between two requests, so at most six per second
const MIN_INTERVAL = 165;
// milliseconds after which a newer request may replace one that is still running
const MAX_WAIT = 1000;

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

let model = null;
let row = null;
let inFlight = null;
let timer = 0;
let lastStart = -Infinity;
// level by the shapes of a row's inputs, where the server refused more
const levelByShapes = new Map();

/** Request a reading for each row that is published, and again when the server is back. */
export function startRowRequests() {
  subscribe("model", (newModel) => {
    const isOther =
      newModel?.path !== model?.path || newModel?.certificate.digest !== model?.certificate.digest;
    model = newModel;
    if (!isOther) return;
    row = null;
    levelByShapes.clear();
    cancel();
    publish("reading", null);
  });
  subscribe("row", (next) => {
    row = next;
    if (row === null) {
      cancel();
      publish("reading", null);
    } else {
      requestSoon();
    }
  });
  subscribe("server", (state) => {
    const status = current("request")?.error?.status;
    if (state === "up" && (status === 0 || status === 401)) requestAgain();
  });
}

/** Repeat the request for the current row. */
export function requestAgain() {
  if (row !== null && model !== null) requestSoon();
}

function cancel() {
  clearTimeout(timer);
  timer = 0;
  inFlight?.abort();
  inFlight = null;
  publish("request", null);
}

function requestSoon() {
  publish("request", { row, busy: true, error: null });
  if (!timer) schedule();
}

/** Send the row that is current when the interval has passed. */
function schedule() {
  clearTimeout(timer);
  const startTime = lastStart + (inFlight ? MAX_WAIT : MIN_INTERVAL);
  timer = setTimeout(
    () => {
      timer = 0;
      send(row).catch(reportError);
    },
    Math.max(0, startTime - performance.now()),
  );
}

async function send(requestedRow) {
  inFlight?.abort();
  const controller = (inFlight = new AbortController());
  lastStart = performance.now();
  let response;
  try {
    response = await fetchReading(model, requestedRow, controller.signal);
  } catch (error) {
    if (!finishIfLatest(controller)) return;
    if (!(error instanceof ApiError)) throw error;
    publish("request", { row: requestedRow, busy: timer !== 0, error });
    // while the server is down, the last reading stays
    if (error.status !== 0 && error.status !== 401) publish("reading", null);
    return;
  }
  if (!finishIfLatest(controller)) return;
  publish("request", { row: requestedRow, busy: timer !== 0, error: null });
  publish("reading", response);
}

/** Whether a response is the latest one; the next request need not wait for it any longer. */
function finishIfLatest(controller) {
  if (inFlight !== controller) return false;
  inFlight = null;
  if (timer) schedule();
  return true;
}

/** Fetch a reading with as much of the gates as the server provides. */
async function fetchReading(model, requestedRow, signal) {
  const shapes = JSON.stringify(requestedRow.inputs.map((input) => input.shape));
  let level = levelByShapes.get(shapes) ?? firstLevel(model);
  let refusalText = null;
  for (;;) {
    const { path, parameters } = LEVELS[level];
    const start = performance.now();
    try {
      const response = await postTensors(`${model.path}/${path}`, requestedRow.inputs, {
        parameters,
        signal,
      });
      const milliseconds = performance.now() - start;
      if (refusalText === null) levelByShapes.set(shapes, level);
      return readingOf(requestedRow, response, milliseconds, refusalText ?? missingText(model, level));
    } catch (error) {
      const next = error instanceof ApiError && model.gates.length > 0 ? nextLevel(error, level) : null;
      if (next === null) throw error;
      if (error.status === 422) refusalText = error.message;
      level = next;
    }
  }
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

function readingOf(requestedRow, response, milliseconds, missingText) {
  return {
    row: requestedRow,
    outputs: response.outputs,
    gates: response.gates ?? [],
    route: response.route ?? null,
    tensors: new Map((response.tensors ?? []).map((tensor) => [tensor.name, tensor])),
    missing: missingText,
    milliseconds,
  };
}
