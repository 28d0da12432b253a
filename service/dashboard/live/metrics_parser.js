// Parses the Prometheus text of `/metrics` into samples, and those into one scrape.

import { emptyHistogram } from "./histogram.js";

const SAMPLE_PATTERN = /^([a-zA-Z_:][\w:]*)(\{.*\})?\s+(\S+)(?:\s+-?\d+)?$/;
const LABEL_PATTERN = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPES = { n: "\n", "\\": "\\", '"': '"' };
const HISTOGRAM_NAMES = {
  turnpike_model_request_seconds: "request",
  turnpike_model_queue_seconds: "queue",
  turnpike_model_run_seconds: "run",
  turnpike_model_batch_rows: "batch",
};

/**
 * @typedef {import("./histogram.js").Histogram} Histogram
 *
 * @typedef {object} Counts  counters of one model since the server started
 * @property {number} requests  answered
 * @property {number} rows
 * @property {number} waiting  requests in the queue now
 * @property {Map<string, number>} failed  failed requests, by reason
 * @property {{request: Histogram, queue: Histogram, run: Histogram, batch: Histogram}} histograms
 * @property {Map<string, number>} drift  stability index of each gate
 * @property {number|null} driftRows
 *
 * @typedef {object} Scrape  one response of `/metrics`
 * @property {number} at  seconds on a monotonic clock
 * @property {number} started  when the server started, in seconds since 1970
 * @property {number} workers
 * @property {Map<string, number>} refused  error responses, by reason
 * @property {Map<string, Counts>} models  by "name/version"
 */

/** The samples in the text; lines that are not samples are skipped. */
export function* parseSamples(text) {
  for (const line of text.split("\n")) {
    if (line.startsWith("#")) continue;
    const match = SAMPLE_PATTERN.exec(line.trim());
    if (match) yield { name: match[1], labels: labelsOf(match[2] ?? ""), value: valueOf(match[3]) };
  }
}

/** @returns {Scrape} what this page needs of the text, which was received at time `at` */
export function parseScrape(text, at) {
  const scrape = { at, started: 0, workers: 0, refused: new Map(), models: new Map() };
  for (const { name, labels, value } of parseSamples(text)) {
    if (name === "turnpike_start_time_seconds") scrape.started = value;
    else if (name === "turnpike_workers") scrape.workers = value;
    else if (name === "turnpike_requests_refused_total") scrape.refused.set(labels.reason, value);
    else if (labels.model !== undefined) addSample(modelOf(scrape, labels), name, labels, value);
  }
  return scrape;
}

function addSample(counts, name, labels, value) {
  const histogram = HISTOGRAM_NAMES[name.replace(/_(bucket|sum|count)$/, "")];
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

function modelOf(scrape, { model, version }) {
  const key = `${model}/${version}`;
  if (!scrape.models.has(key)) {
    scrape.models.set(key, {
      requests: 0,
      rows: 0,
      waiting: 0,
      failed: new Map(),
      histograms: {
        request: emptyHistogram(),
        queue: emptyHistogram(),
        run: emptyHistogram(),
        batch: emptyHistogram(),
      },
      drift: new Map(),
      driftRows: null,
    });
  }
  return scrape.models.get(key);
}

function labelsOf(braced) {
  const labels = {};
  for (const [, name, value] of braced.matchAll(LABEL_PATTERN)) {
    labels[name] = value.replace(/\\(.)/g, (_, letter) => ESCAPES[letter] ?? letter);
  }
  return labels;
}

function valueOf(text) {
  if (text === "+Inf") return Infinity;
  return text === "-Inf" ? -Infinity : Number(text);
}
