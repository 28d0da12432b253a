// Shapes of one stretch of road: a straight lane for what is carried, and a ramp for what is transformed.

/**
 * @typedef {object} RoadSize  in pixels
 * @property {number} stretch  length of a stretch
 * @property {number} width  of the whole road
 * @property {number} gap  between the road and the lowest part of a ramp
 * @property {number} margin  above the highest ramp
 */

// a lane with any share is at least this wide in pixels
const MIN_LANE = 1;
// share of a stretch in which a ramp leaves the road, and in which it returns
const RAMP = 0.42;

/** The top of the road, below the ramps. */
export function roadTop({ width, gap, margin }) {
  return margin + width + gap;
}

/** Height of the picture. */
export function pictureHeight(size) {
  return roadTop(size) + size.width + 2;
}

/** The widths of both lanes in pixels. Gates whose shares add up to more than the road share it. */
export function laneWidths({ carried, transformed }, { width }) {
  const scale = width / Math.max(1, carried + transformed);
  const lane = (share) => (share > 0 ? Math.max(share * scale, MIN_LANE) : 0);
  return { carried: lane(carried), transformed: lane(transformed) };
}

/** Half the length of the junction between two stretches. */
export function junction({ stretch }) {
  return Math.min(Math.max(0.06 * stretch, 1), 4);
}

/** The carried lane of the stretch that begins at x, as {x, y, width, height}. */
export function carriedLane(x, height, size) {
  const inset = junction(size);
  return {
    x: x + inset,
    y: roadTop(size) + size.width - height,
    width: size.stretch - 2 * inset,
    height,
  };
}

/** The path of the transformed lane: it leaves the top of the road, runs above it, and returns. */
export function transformedLane(x, height, size) {
  const inset = junction(size);
  const [start, end] = [x + inset, x + size.stretch - inset];
  const ramp = RAMP * (end - start);
  const low = roadTop(size);
  const high = low - size.gap - height;
  const [up, down] = [start + ramp, end - ramp];
  const bend = (from, to) => (from + to) / 2;
  return (
    `M${start},${low}C${bend(start, up)},${low} ${bend(start, up)},${high} ${up},${high}L${down},${high}` +
    `C${bend(down, end)},${high} ${bend(down, end)},${low} ${end},${low}v${height}` +
    `C${bend(down, end)},${low + height} ${bend(down, end)},${high + height} ${down},${high + height}` +
    `L${up},${high + height}C${bend(start, up)},${high + height} ${bend(start, up)},${low + height} ` +
    `${start},${low + height}Z`
  );
}
