// Draws pen strokes into grey pixels: the share of each pixel that is under ink, from 0 to 1.

/**
 * @typedef {{height: number, width: number, channels: number, data: Float32Array}} Pixels
 *   values from 0 to 1, row by row, with the channels of a pixel next to each other
 *
 * @typedef {{points: number[][], width: number}} Stroke
 *   points [x, y] and the width of the pen, in units of the board's height
 */

// smallest number of subpixels along an axis, so that slanted lines get shades of grey
const MIN_SUBPIXELS = 96;

/** Draw strokes whose points and widths are in pixels. */
export function rasterize(strokes, height, width) {
  const factor = Math.max(2, Math.ceil(MIN_SUBPIXELS / Math.max(height, width)));
  const subpixels = { height: height * factor, width: width * factor };
  subpixels.data = new Float32Array(subpixels.height * subpixels.width);
  for (const stroke of strokes) drawStroke(subpixels, stroke, factor);
  return { height, width, channels: 1, data: average(subpixels, height, width, factor) };
}

function drawStroke(subpixels, { points, width }, factor) {
  const radius = (width * factor) / 2;
  const scaled = points.map(([x, y]) => [x * factor, y * factor]);
  if (scaled.length === 1) scaled.push(scaled[0]);
  for (let i = 1; i < scaled.length; i++) drawSegment(subpixels, scaled[i - 1], scaled[i], radius);
}

// a subpixel is as dark as its centre is deep within the line, at most one subpixel
function drawSegment({ height, width, data }, [ax, ay], [bx, by], radius) {
  const [dx, dy] = [bx - ax, by - ay];
  const lengthSquared = dx * dx + dy * dy;
  const top = Math.max(0, Math.floor(Math.min(ay, by) - radius - 1));
  const bottom = Math.min(height, Math.ceil(Math.max(ay, by) + radius + 1));
  const left = Math.max(0, Math.floor(Math.min(ax, bx) - radius - 1));
  const right = Math.min(width, Math.ceil(Math.max(ax, bx) + radius + 1));
  for (let row = top; row < bottom; row++) {
    for (let column = left; column < right; column++) {
      const [px, py] = [column + 0.5 - ax, row + 0.5 - ay];
      const along = lengthSquared === 0 ? 0 : Math.min(1, Math.max(0, (px * dx + py * dy) / lengthSquared));
      const distance = Math.hypot(px - along * dx, py - along * dy);
      const darkness = Math.min(1, radius - distance + 0.5);
      const place = row * width + column;
      if (darkness > data[place]) data[place] = darkness;
    }
  }
}

function average(subpixels, height, width, factor) {
  const data = new Float32Array(height * width);
  for (let row = 0; row < subpixels.height; row++) {
    const start = Math.floor(row / factor) * width;
    for (let column = 0; column < subpixels.width; column++) {
      data[start + Math.floor(column / factor)] += subpixels.data[row * subpixels.width + column];
    }
  }
  return data.map((sum) => sum / (factor * factor));
}
