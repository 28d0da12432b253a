// The last minutes as looks at `/metrics` tell them: what came between two looks, by second.

import { histogramDifference, mean, quantile, histogramSum } from "./histogram.js";

/** Seconds that are kept, and seconds that each figure is told from. */
export const HISTORY_SECONDS = 300;
export const WINDOW_SECONDS = 10;
// seconds without a look after which figures begin anew: the tab was hidden or the server away
const GAP = 12;

/**
 * @typedef {object} Figures  what the seconds before a look were like
 * @property {number} requests  answered a second
 * @property {number} rows  a second
 * @property {number|null} p50  seconds from a request's headers to its answer; null where there was none
 * @property {number|null} p99
 * @property {number|null} mean
 * @property {number|null} batch  the mean number of rows of a run
 * @property {number} queue  requests that wait now
 * @property {number|null} queueTime  99 of 100 requests waited no longer
 * @property {number|null} runTime  the median of runs
 * @property {number} failed  requests a second that were not answered
 * @property {Map<string, number>} reasons  the same by reason
 *
 * @typedef {object} Drifted  of one model
 * @property {Map<string, number>} drift  the index of each gate
 * @property {number|null} driftRows  that it is told from
 * @property {Map<string, number>} counted  requests not answered since the server began, by reason
 *
 * @typedef {object} Moment
 * @property {number} at  seconds of a clock that only goes forward
 * @property {number} since  seconds that the figures are told from
 * @property {number} workers
 * @property {Figures & {refused: number, refusals: Map<string, number>}} total
 * @property {Map<string, number>} counted  refusals since the server began, by reason
 * @property {Map<string, Figures & Drifted>} models
 */

/** A ring of moments, null where looks were too far apart to tell what came between. */
export class MetricsHistory {
  #looks = [];
  /** @type {(Moment|null)[]} */
  moments = [];

  /** Take a look in; the first after a gap only tells where the next begins. */
  add(look) {
    const last = this.#looks.at(-1);
    if (last && (look.at - last.at > GAP || look.started !== last.started)) this.stop();
    while (this.#looks.length && look.at - this.#looks[0].at > WINDOW_SECONDS + 0.5) this.#looks.shift();
    if (this.#looks.length) this.moments.push(momentBetween(this.#looks[0], look));
    this.#looks.push(look);
    while (this.moments.length && !(look.at - this.moments[0]?.at <= HISTORY_SECONDS)) this.moments.shift();
  }

  /** What comes next does not follow on what was. */
  stop() {
    this.#looks = [];
    if (this.moments.at(-1)) this.moments.push(null);
  }

  /** The present figures, null where two looks have not been had. */
  get now() {
    return this.moments.at(-1) ?? null;
  }
}

/** @returns {Moment} what came between two looks. */
export function momentBetween(before, after) {
  const since = after.at - before.at;
  const parts = [...after.models].map(([key, counts]) => [key, cameBetween(before.models.get(key), counts)]);
  const refusals = rates(before.refused, after.refused, since);
  return {
    at: after.at,
    since,
    workers: after.workers,
    counted: after.refused,
    total: { ...figuresOf(joined(parts.map(([, part]) => part)), since), refused: sum(refusals), refusals },
    models: new Map(
      parts.map(([key, part]) => {
        const { drift, driftRows, failed } = after.models.get(key);
        return [key, { ...figuresOf(part, since), drift, driftRows, counted: failed }];
      }),
    ),
  };
}

function cameBetween(before, after) {
  const { histograms, failed } = after;
  const each = (counts, of) => new Map([...counts].map(([key, now]) => [key, of(key, now)]));
  return {
    requests: grown(before?.requests, after.requests),
    rows: grown(before?.rows, after.rows),
    waiting: after.waiting,
    failed: each(failed, (reason, now) => grown(before?.failed.get(reason), now)),
    histograms: Object.fromEntries(
      each(Object.entries(histograms), (kind, now) => histogramDifference(before?.histograms[kind], now)),
    ),
  };
}

function joined(parts) {
  const failed = new Map();
  for (const part of parts) {
    for (const [reason, count] of part.failed) failed.set(reason, (failed.get(reason) ?? 0) + count);
  }
  const all = (kind) => histogramSum(parts.map(({ histograms }) => histograms[kind]));
  return {
    requests: sum(parts.map(({ requests }) => requests)),
    rows: sum(parts.map(({ rows }) => rows)),
    waiting: sum(parts.map(({ waiting }) => waiting)),
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
  return new Map([...after].map(([reason, count]) => [reason, grown(before.get(reason), count) / since]));
}

/** How far a counter has gone; one that is lower than before began anew meanwhile. */
function grown(before = 0, after) {
  return after >= before ? after - before : after;
}

function sum(numbers) {
  let whole = 0;
  for (const number of numbers instanceof Map ? numbers.values() : numbers) whole += number;
  return whole;
}
