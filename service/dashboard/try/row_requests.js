// The row in hand is put to the model: at a pace the server can bear, the last row always, and of answers
// only that to the newest question counts.

import { ApiError, postTensors } from "../state/api.js";
import { current, publish, subscribe } from "../state/store.js";

/**
 * Topic `asking`, beside those of the store: what has become of the row, null where there is none.
 * @typedef {{row: object, busy: boolean, error: ApiError|null}} Asking
 */

// milliseconds between two questions, so at most six a second
const PACE = 165;
// and how long a question may take before a newer one overtakes it
const PATIENCE = 1000;

// what is asked for, from everything to the prediction alone
const WISHES = [
  { path: "gates", parameters: { detail: "rows", blocks: true } },
  { path: "gates", parameters: { detail: "rows" } },
  { path: "infer", parameters: {} },
];
const LEAST = WISHES.length - 1;
const MISSING = [
  null,
  "The outputs of layers are too many to be sent.",
  "The gates of this row are too many to be sent.",
];
const NO_BLOCKS = "This model does not tell the outputs of its layers.";

let about = null;
let row = null;
let flight = null;
let timer = 0;
let begun = -Infinity;
// by the shapes of a row, how little has to be asked for
const modest = new Map();

/** Ask about each row that is published, and again when a server is back that was gone. */
export function startRowRequests() {
  subscribe("model", (model) => {
    const other = model?.path !== about?.path || model?.certificate.digest !== about?.certificate.digest;
    about = model;
    if (!other) return;
    row = null;
    modest.clear();
    drop();
    publish("reading", null);
  });
  subscribe("row", (next) => {
    row = next;
    if (row === null) {
      drop();
      publish("reading", null);
    } else {
      soon();
    }
  });
  subscribe("server", (state) => {
    const status = current("request")?.error?.status;
    if (state === "up" && (status === 0 || status === 401)) requestAgain();
  });
}

/** Ask once more about the row that there is. */
export function requestAgain() {
  if (row !== null && about !== null) soon();
}

function drop() {
  clearTimeout(timer);
  timer = 0;
  flight?.abort();
  flight = null;
  publish("request", null);
}

function soon() {
  publish("request", { row, busy: true, error: null });
  if (!timer) wait();
}

/** Put the row that there is then, when its turn has come. */
function wait() {
  clearTimeout(timer);
  const turn = begun + (flight ? PATIENCE : PACE);
  timer = setTimeout(
    () => {
      timer = 0;
      put(row).catch(reportError);
    },
    Math.max(0, turn - performance.now()),
  );
}

async function put(asked) {
  flight?.abort();
  const mine = (flight = new AbortController());
  begun = performance.now();
  let answer;
  try {
    answer = await answered(about, asked, mine.signal);
  } catch (error) {
    if (!landed(mine)) return;
    if (!(error instanceof ApiError)) throw error;
    publish("request", { row: asked, busy: timer !== 0, error });
    // what was known stays on the page while the server is away
    if (error.status !== 0 && error.status !== 401) publish("reading", null);
    return;
  }
  if (!landed(mine)) return;
  publish("request", { row: asked, busy: timer !== 0, error: null });
  publish("reading", answer);
}

/** Whether a question's answer still counts; the next need not wait for it any longer. */
function landed(mine) {
  if (flight !== mine) return false;
  flight = null;
  if (timer) wait();
  return true;
}

/** The reading of a row, with as much of its gates as the server gives. */
async function answered(model, asked, signal) {
  const shapes = JSON.stringify(asked.inputs.map((input) => input.shape));
  let level = modest.get(shapes) ?? firstWish(model);
  let refusal = null;
  for (;;) {
    const { path, parameters } = WISHES[level];
    const start = performance.now();
    try {
      const answer = await postTensors(`${model.path}/${path}`, asked.inputs, { parameters, signal });
      const milliseconds = performance.now() - start;
      if (refusal === null) modest.set(shapes, level);
      return readingOf(asked, answer, milliseconds, refusal ?? missing(model, level));
    } catch (error) {
      const next = error instanceof ApiError && model.gates.length > 0 ? lesser(error, level) : null;
      if (next === null) throw error;
      if (error.status === 422) refusal = error.message;
      level = next;
    }
  }
}

function firstWish({ gates }) {
  if (gates.length === 0) return LEAST;
  return gates.some((gate) => gate.output) ? 0 : 1;
}

// gates that are too many are done without; of a row that makes them NaN there is no summary
function lesser(error, level) {
  if (level === LEAST) return null;
  if (error.status === 413) return level + 1;
  return error.status === 422 ? LEAST : null;
}

function missing({ gates }, level) {
  if (gates.length === 0) return null;
  return level === 1 && firstWish({ gates }) === 1 ? NO_BLOCKS : MISSING[level];
}

function readingOf(asked, answer, milliseconds, why) {
  return {
    row: asked,
    outputs: answer.outputs,
    gates: answer.gates ?? [],
    route: answer.route ?? null,
    tensors: new Map((answer.tensors ?? []).map((tensor) => [tensor.name, tensor])),
    missing: why,
    milliseconds,
  };
}
