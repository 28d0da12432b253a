// The traffic of the last minutes as the server keeps it, so that a reload of the page loses nothing.

/**
 * @typedef {object} Figures  of one model, or of all; docs/reference/metrics.md explains each of them
 * @property {number} requests_per_s
 * @property {number} rows_per_s
 * @property {number|null} p50_s
 * @property {number|null} p99_s
 * @property {number|null} mean_s
 * @property {number|null} rows_per_run
 * @property {number} waiting
 * @property {number|null} queue_p99_s
 * @property {number|null} run_p50_s
 * @property {Record<string, number>} failed_per_s  by reason
 *
 * @typedef {object} Moment
 * @property {number} at  seconds since the server started
 * @property {number} workers
 * @property {Figures} total
 * @property {Record<string, Figures>} models  by "name/version"; those without traffic are left out
 */

/** @type {Figures} of a model without traffic */
const NO_TRAFFIC = {
  requests_per_s: 0,
  rows_per_s: 0,
  p50_s: null,
  p99_s: null,
  mean_s: null,
  rows_per_run: null,
  waiting: 0,
  queue_p99_s: null,
  run_p50_s: null,
  failed_per_s: {},
};

/** Collects the server's answers, each of which has only the moments since the one before. */
export class TrafficHistory {
  /** @type {Moment[]} */
  moments = [];
  // settings and totals of the last answer
  historySeconds = 0;
  momentSeconds = 0;
  #started = null;
  #refused = {};
  #failed = {};

  /** Add an answer. Returns false if it is of another run of the server, and thus lacks older moments. */
  add({ started, moment_seconds, history_seconds, moments, refused, failed }) {
    const sameRun = this.#started === null || this.#started === started;
    if (!sameRun) this.moments = [];
    [this.#started, this.#refused, this.#failed] = [started, refused, failed];
    [this.momentSeconds, this.historySeconds] = [moment_seconds, history_seconds];
    this.moments.push(...moments.filter(({ at }) => at > this.lastAt));
    const kept = this.lastAt - history_seconds;
    while (this.moments.length && this.moments[0].at <= kept) this.moments.shift();
    return sameRun;
  }

  /** The time of the latest moment, from which on the next answer is needed. */
  get lastAt() {
    return this.latest?.at ?? 0;
  }

  /** The latest moment, or null before the server has one. */
  get latest() {
    return this.moments.at(-1) ?? null;
  }

  /** The figures of a model at each moment, or of all models if the key is null. */
  figures(modelKey) {
    if (modelKey === null) return this.moments.map(({ total }) => total);
    return this.moments.map(({ models }) => models[modelKey] ?? NO_TRAFFIC);
  }

  /** Error responses since the server started, by reason, of a model or of all if the key is null. */
  errors(modelKey) {
    return modelKey === null ? this.#refused : (this.#failed[modelKey] ?? {});
  }
}
