// Sends the current row to the model: at a limited rate, always including the latest row, and using only the
// response to the latest request.

import { ApiError } from "../state/api.js";
import { fetchReading } from "../state/reading.js";
import { current, publish, subscribe } from "../state/store.js";

/**
 * Value of the topic `request`: the state of the request for the current row, null without a row.
 * @typedef {{row: object, busy: boolean, error: ApiError|null}} RequestState
 */
// milliseconds between two requests, so at most six per second
const MIN_INTERVAL = 165;
// milliseconds after which a newer request may replace one that is still running
const MAX_WAIT = 1000;

let model = null;
let row = null;
let inFlight = null;
let timer = 0;
let lastStart = -Infinity;

/** Request a reading for each row that is published, and again when the server is back. */
export function startRowRequests() {
  subscribe("model", (newModel) => {
    const isOther =
      newModel?.path !== model?.path || newModel?.certificate.digest !== model?.certificate.digest;
    model = newModel;
    if (!isOther) return;
    row = null;
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
    response = await fetchReading(model, requestedRow, { signal: controller.signal });
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
