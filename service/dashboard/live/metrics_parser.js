// What `/metrics` says, read from the text that Prometheus reads: first its samples, then a look at them.

import { emptyHistogram } from "./histogram.js";

const LINE = /^([a-zA-Z_:][\w:]*)(\{.*\})?\s+(\S+)(?:\s+-?\d+)?$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPED = { n: "\n", "\\": "\\", '"': '"' };
const HISTOGRAMS = {
  turnpike_model_request_seconds: "request",
  turnpike_model_queue_seconds: "queue",
  turnpike_model_run_seconds: "run",
  turnpike_model_batch_rows: "batch",
};

/**
 * @typedef {import("./histogram.js").Histogram} Histogram
 *
 * @typedef {object} Counts  what has been counted of one model since the server began
 * @property {number} requests  answered
 * @property {number} rows
 * @property {number} waiting  now
 * @property {Map<string, number>} failed  requests not answered, by reason
 * @property {{request: Histogram, queue: Histogram, run: Histogram, batch: Histogram}} histograms
 * @property {Map<string, number>} drift  the index of each gate
 * @property {number|null} driftRows
 *
 * @typedef {object} Look  what one answer of `/metrics` tells
 * @property {number} at  seconds of a clock that only goes forward
 * @property {number} started  when the server began, in seconds since 1970
 * @property {number} workers
 * @property {Map<string, number>} refused  answers that were errors, by reason
 * @property {Map<string, Counts>} models  by "name/version"
 */

/** Each sample of the text: its name, its labels and its value; lines that are none are left out. */
export function* parseSamples(text) {
  for (const line of text.split("\n")) {
    if (line.startsWith("#")) continue;
    const found = LINE.exec(line.trim());
    if (found) yield { name: found[1], labels: labelsOf(found[2] ?? ""), value: valueOf(found[3]) };
  }
}

/** @returns {Look} what the text tells that this page shows; `at` is when it was asked for. */
export function parseScrape(text, at) {
  const look = { at, started: 0, workers: 0, refused: new Map(), models: new Map() };
  for (const { name, labels, value } of parseSamples(text)) {
    if (name === "turnpike_start_time_seconds") look.started = value;
    else if (name === "turnpike_workers") look.workers = value;
    else if (name === "turnpike_requests_refused_total") look.refused.set(labels.reason, value);
    else if (labels.model !== undefined) count(modelOf(look, labels), name, labels, value);
  }
  return look;
}

function count(counts, name, labels, value) {
  const histogram = HISTOGRAMS[name.replace(/_(bucket|sum|count)$/, "")];
  if (histogram !== undefined) {
    const { bounds, counts: below } = counts.histograms[histogram];
    if (name.endsWith("_sum")) counts.histograms[histogram].sum = value;
    if (name.endsWith("_bucket")) [bounds[bounds.length], below[below.length]] = [valueOf(labels.le), value];
  } else if (name === "turnpike_model_requests_total") counts.requests = value;
  else if (name === "turnpike_model_rows_total") counts.rows = value;
  else if (name === "turnpike_model_queue_depth") counts.waiting = value;
  else if (name === "turnpike_model_failures_total") counts.failed.set(labels.reason, value);
  else if (name === "turnpike_gate_drift_psi") counts.drift.set(labels.gate, value);
  else if (name === "turnpike_gate_drift_rows") counts.driftRows = value;
}

function modelOf(look, { model, version }) {
  const key = `${model}/${version}`;
  if (!look.models.has(key)) {
    look.models.set(key, {
      requests: 0,
      rows: 0,
      waiting: 0,
      failed: new Map(),
      histograms: { request: emptyHistogram(), queue: emptyHistogram(), run: emptyHistogram(), batch: emptyHistogram() },
      drift: new Map(),
      driftRows: null,
    });
  }
  return look.models.get(key);
}

function labelsOf(braced) {
  const labels = {};
  for (const [, name, value] of braced.matchAll(LABEL)) {
    labels[name] = value.replace(/\\(.)/g, (_, letter) => ESCAPED[letter] ?? letter);
  }
  return labels;
}

function valueOf(word) {
  if (word === "+Inf") return Infinity;
  return word === "-Inf" ? -Infinity : Number(word);
}
