// Strokes of a pen as grey values: how much of each pixel is under ink, from 0 to 1.

/**
 * @typedef {{height: number, width: number, channels: number, data: Float32Array}} Pixels
 *   values from 0 to 1, row by row, the channels of a pixel beside each other
 *
 * @typedef {{points: number[][], width: number}} Stroke
 *   places [x, y] where the pen was and how wide it was, all in heights of the board
 */

// an axis of the fine grid has at least so many places, so that slanted lines get their greys
const FINE = 96;

/** The pixels of strokes whose places and widths are in pixels already. */
export function rasterize(strokes, height, width) {
  const times = Math.max(2, Math.ceil(FINE / Math.max(height, width)));
  const fine = { height: height * times, width: width * times };
  fine.data = new Float32Array(fine.height * fine.width);
  for (const stroke of strokes) drawn(fine, stroke, times);
  return { height, width, channels: 1, data: averaged(fine, height, width, times) };
}

function drawn(fine, { points, width }, times) {
  const radius = (width * times) / 2;
  const places = points.map(([x, y]) => [x * times, y * times]);
  if (places.length === 1) places.push(places[0]);
  for (let i = 1; i < places.length; i++) segment(fine, places[i - 1], places[i], radius);
}

// a fine place is as dark as its middle is deep within the line, at most a place's breadth
function segment({ height, width, data }, [ax, ay], [bx, by], radius) {
  const [dx, dy] = [bx - ax, by - ay];
  const long = dx * dx + dy * dy;
  const top = Math.max(0, Math.floor(Math.min(ay, by) - radius - 1));
  const bottom = Math.min(height, Math.ceil(Math.max(ay, by) + radius + 1));
  const left = Math.max(0, Math.floor(Math.min(ax, bx) - radius - 1));
  const right = Math.min(width, Math.ceil(Math.max(ax, bx) + radius + 1));
  for (let row = top; row < bottom; row++) {
    for (let column = left; column < right; column++) {
      const [px, py] = [column + 0.5 - ax, row + 0.5 - ay];
      const along = long === 0 ? 0 : Math.min(1, Math.max(0, (px * dx + py * dy) / long));
      const away = Math.hypot(px - along * dx, py - along * dy);
      const dark = Math.min(1, radius - away + 0.5);
      const place = row * width + column;
      if (dark > data[place]) data[place] = dark;
    }
  }
}

function averaged(fine, height, width, times) {
  const data = new Float32Array(height * width);
  for (let row = 0; row < fine.height; row++) {
    const start = Math.floor(row / times) * width;
    for (let column = 0; column < fine.width; column++) {
      data[start + Math.floor(column / times)] += fine.data[row * fine.width + column];
    }
  }
  return data.map((sum) => sum / (times * times));
}
