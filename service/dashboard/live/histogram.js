// Histograms as Prometheus has them: how many values fell at or below each bound, and the sum of all.

/**
 * @typedef {object} Histogram
 * @property {number[]} bounds  rising, the last is infinite
 * @property {number[]} counts  of values at or below each bound, so they rise as well
 * @property {number} sum
 */

/** @returns {Histogram} one without any bounds or values. */
export function emptyHistogram() {
  return { bounds: [], counts: [], sum: 0 };
}

/** How many values there are. */
export function total({ counts }) {
  return counts.at(-1) ?? 0;
}

/** What came between two looks; where counts went back they began anew meanwhile, and all came since. */
export function histogramDifference(before, after) {
  const same = before !== undefined && before.counts.length === after.counts.length;
  if (!same || after.counts.some((count, n) => count < before.counts[n])) return after;
  return {
    bounds: after.bounds,
    counts: after.counts.map((count, n) => count - before.counts[n]),
    sum: after.sum - before.sum,
  };
}

/** The values of several together; all have the same bounds. */
export function histogramSum(histograms) {
  const [first, ...others] = histograms.filter(({ counts }) => counts.length);
  if (!first) return emptyHistogram();
  const whole = { bounds: first.bounds, counts: [...first.counts], sum: first.sum };
  for (const { counts, sum } of others) {
    counts.forEach((count, n) => (whole.counts[n] += count));
    whole.sum += sum;
  }
  return whole;
}

/** The mean of the values, null where there are none; it is exact, since sum and number are. */
export function mean(histogram) {
  const count = total(histogram);
  return count > 0 ? histogram.sum / count : null;
}

/**
 * The value that a share of all lies at or below, null where there are none. Where in a bucket it lies is
 * taken to be where its rank is; what is above the last finite bound is told as that bound.
 */
export function quantile({ bounds, counts }, share) {
  const count = counts.at(-1) ?? 0;
  if (!(count > 0)) return null;
  const rank = share * count;
  const n = counts.findIndex((below) => below >= rank && below > 0);
  const low = n > 0 ? bounds[n - 1] : 0;
  if (!Number.isFinite(bounds[n])) return low;
  const below = n > 0 ? counts[n - 1] : 0;
  return low + (bounds[n] - low) * ((rank - below) / (counts[n] - below));
}
