// History of the last minutes: figures derived from pairs of scrapes of `/metrics`.

import { histogramDifference, mean, quantile, histogramSum } from "./histogram.js";

/** Seconds of history, and seconds over which each figure is averaged. */
export const HISTORY_SECONDS = 300;
export const WINDOW_SECONDS = 10;
// seconds without a scrape after which the history restarts: the tab was hidden or the server down
const MAX_GAP = 12;

/**
 * @typedef {object} Figures  averages over the seconds before a scrape
 * @property {number} requests  answered per second
 * @property {number} rows  per second
 * @property {number|null} p50  seconds from a request's headers to its response; null without requests
 * @property {number|null} p99
 * @property {number|null} mean
 * @property {number|null} batch  mean number of rows per run
 * @property {number} queue  requests in the queue now
 * @property {number|null} queueTime  99th percentile of waiting times, in seconds
 * @property {number|null} runTime  median of run times, in seconds
 * @property {number} failed  failed requests per second
 * @property {Map<string, number>} reasons  the same by reason
 *
 * @typedef {object} ModelTotals  totals and drift of one model
 * @property {Map<string, number>} drift  stability index of each gate
 * @property {number|null} driftRows  number of rows it is based on
 * @property {Map<string, number>} counted  failed requests since the server started, by reason
 *
 * @typedef {object} Moment
 * @property {number} at  seconds on a monotonic clock
 * @property {number} since  seconds over which the figures are averaged
 * @property {number} workers
 * @property {Figures & {refused: number, refusals: Map<string, number>}} total
 * @property {Map<string, number>} counted  error responses since the server started, by reason
 * @property {Map<string, Figures & ModelTotals>} models
 */

/** Moments of the last minutes; null marks a gap between scrapes that are too far apart. */
export class MetricsHistory {
  #scrapes = [];
  /** @type {(Moment|null)[]} */
  moments = [];

  /** Add a scrape. The first one after a gap only sets the starting point. */
  add(scrape) {
    const last = this.#scrapes.at(-1);
    if (last && (scrape.at - last.at > MAX_GAP || scrape.started !== last.started)) this.stop();
    while (this.#scrapes.length && scrape.at - this.#scrapes[0].at > WINDOW_SECONDS + 0.5)
      this.#scrapes.shift();
    if (this.#scrapes.length) this.moments.push(momentBetween(this.#scrapes[0], scrape));
    this.#scrapes.push(scrape);
    while (this.moments.length && !(scrape.at - this.moments[0]?.at <= HISTORY_SECONDS)) this.moments.shift();
  }

  /** Mark a gap: the next scrape does not continue the previous ones. */
  stop() {
    this.#scrapes = [];
    if (this.moments.at(-1)) this.moments.push(null);
  }

  /** The latest figures, or null until there are two scrapes. */
  get now() {
    return this.moments.at(-1) ?? null;
  }
}

/** @returns {Moment} the figures between two scrapes */
export function momentBetween(before, after) {
  const since = after.at - before.at;
  const changes = [...after.models].map(([key, counts]) => [
    key,
    changeBetween(before.models.get(key), counts),
  ]);
  const refusals = rates(before.refused, after.refused, since);
  return {
    at: after.at,
    since,
    workers: after.workers,
    counted: after.refused,
    total: {
      ...figuresOf(sumOfChanges(changes.map(([, change]) => change)), since),
      refused: sum(refusals),
      refusals,
    },
    models: new Map(
      changes.map(([key, change]) => {
        const { drift, driftRows, failed } = after.models.get(key);
        return [key, { ...figuresOf(change, since), drift, driftRows, counted: failed }];
      }),
    ),
  };
}

function changeBetween(before, after) {
  const { histograms, failed } = after;
  const mapValues = (counts, toValue) => new Map([...counts].map(([key, now]) => [key, toValue(key, now)]));
  return {
    requests: increase(before?.requests, after.requests),
    rows: increase(before?.rows, after.rows),
    waiting: after.waiting,
    failed: mapValues(failed, (reason, now) => increase(before?.failed.get(reason), now)),
    histograms: Object.fromEntries(
      mapValues(Object.entries(histograms), (kind, now) =>
        histogramDifference(before?.histograms[kind], now),
      ),
    ),
  };
}

function sumOfChanges(changes) {
  const failed = new Map();
  for (const change of changes) {
    for (const [reason, count] of change.failed) failed.set(reason, (failed.get(reason) ?? 0) + count);
  }
  const all = (kind) => histogramSum(changes.map(({ histograms }) => histograms[kind]));
  return {
    requests: sum(changes.map(({ requests }) => requests)),
    rows: sum(changes.map(({ rows }) => rows)),
    waiting: sum(changes.map(({ waiting }) => waiting)),
    failed,
    histograms: { request: all("request"), queue: all("queue"), run: all("run"), batch: all("batch") },
  };
}

function figuresOf({ requests, rows, waiting, failed, histograms }, since) {
  const reasons = new Map([...failed].map(([reason, count]) => [reason, count / since]));
  return {
    requests: requests / since,
    rows: rows / since,
    p50: quantile(histograms.request, 0.5),
    p99: quantile(histograms.request, 0.99),
    mean: mean(histograms.request),
    batch: mean(histograms.batch),
    queue: waiting,
    queueTime: quantile(histograms.queue, 0.99),
    runTime: quantile(histograms.run, 0.5),
    failed: sum(reasons),
    reasons,
  };
}

function rates(before, after, since) {
  return new Map([...after].map(([reason, count]) => [reason, increase(before.get(reason), count) / since]));
}

/** The increase of a counter; one that decreased was reset in between. */
function increase(before = 0, after) {
  return after >= before ? after - before : after;
}

function sum(numbers) {
  let total = 0;
  for (const number of numbers instanceof Map ? numbers.values() : numbers) total += number;
  return total;
}
