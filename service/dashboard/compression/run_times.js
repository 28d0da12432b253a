// Mean times of runs in the traffic of two models, for runs with the same number of rows.

import { get } from "../state/api.js";

// numbers of rows that are compared at most
const MAX_SIZES = 3;

/**
 * The numbers of rows that both models have run most often, from the smallest on, and the mean seconds of such a
 * run since the service started.
 *
 * @returns {Promise<{rows: number, compressed: number, original: number}[]>}
 */
export async function commonRunTimes(compressedPath, originalPath) {
  const [compressed, original] = await Promise.all([compressedPath, originalPath].map(meanTimes));
  return [...compressed]
    .filter(([rows]) => original.has(rows))
    .map(([rows, { runs, seconds }]) => ({
      rows,
      runs: Math.min(runs, original.get(rows).runs),
      compressed: seconds,
      original: original.get(rows).seconds,
    }))
    .sort((a, b) => b.runs - a.runs)
    .slice(0, MAX_SIZES)
    .sort((a, b) => a.rows - b.rows);
}

/** Runs and their mean seconds, by the number of rows. */
async function meanTimes(path) {
  const { model_stats: [stats] } = await get(`${path}/stats`);
  const times = (stats?.batch_stats ?? []).map(({ batch_size: rows, compute_infer: { count, ns } }) => [
    rows,
    { runs: count, seconds: ns / count / 1e9 },
  ]);
  return new Map(times.filter(([, { runs }]) => runs));
}
