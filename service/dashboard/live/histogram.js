// Prometheus histograms: cumulative counts per bucket, and the sum of all values.

/**
 * @typedef {object} Histogram
 * @property {number[]} bounds  ascending, the last one is infinite
 * @property {number[]} counts  number of values at or below each bound
 * @property {number} sum
 */

/** @returns {Histogram} without buckets and values */
export function emptyHistogram() {
  return { bounds: [], counts: [], sum: 0 };
}

/** The number of values. */
export function total({ counts }) {
  return counts.at(-1) ?? 0;
}

/** What was added between two scrapes. If counts decreased, the counters were reset and `after` is all new. */
export function histogramDifference(before, after) {
  const same = before !== undefined && before.counts.length === after.counts.length;
  if (!same || after.counts.some((count, bucket) => count < before.counts[bucket])) return after;
  return {
    bounds: after.bounds,
    counts: after.counts.map((count, bucket) => count - before.counts[bucket]),
    sum: after.sum - before.sum,
  };
}

/** The sum of several histograms with the same bounds. */
export function histogramSum(histograms) {
  const [first, ...others] = histograms.filter(({ counts }) => counts.length);
  if (!first) return emptyHistogram();
  const combined = { bounds: first.bounds, counts: [...first.counts], sum: first.sum };
  for (const { counts, sum } of others) {
    counts.forEach((count, bucket) => (combined.counts[bucket] += count));
    combined.sum += sum;
  }
  return combined;
}

/** The exact mean of the values, or null without values. */
export function mean(histogram) {
  const count = total(histogram);
  return count > 0 ? histogram.sum / count : null;
}

/**
 * The quantile for a share, or null without values. Values are taken to be spread evenly within a bucket; a
 * quantile above the last finite bound is reported as that bound.
 */
export function quantile({ bounds, counts }, share) {
  const count = counts.at(-1) ?? 0;
  if (!(count > 0)) return null;
  const rank = share * count;
  const bucket = counts.findIndex((countBelow) => countBelow >= rank && countBelow > 0);
  const low = bucket > 0 ? bounds[bucket - 1] : 0;
  if (!Number.isFinite(bounds[bucket])) return low;
  const countBelow = bucket > 0 ? counts[bucket - 1] : 0;
  return low + (bounds[bucket] - low) * ((rank - countBelow) / (counts[bucket] - countBelow));
}
