// Fits drawings and images into a frame the way the network's training pictures are placed.

import { crop, inkBounds, pasteOnto, resize, shear } from "./pixels.js";
import { rasterize } from "./stroke_raster.js";

/**
 * @typedef {import("./stroke_raster.js").Pixels} Pixels
 * @typedef {import("./stroke_raster.js").Stroke} Stroke
 * @typedef {import("./training_frame.js").Frame} Frame
 */

// fraction of a drawing's height that counts as its top and its bottom
const BAND = 0.12;
// heights of the board; a smaller drawing is not enlarged to fill the frame
const MIN_DRAWING_SIZE = 0.08;
// largest ratio of vertical to horizontal enlargement
const MAX_STRETCH_RATIO = 2.5;
// iterations that adjust the amount of ink
const INK_ITERATIONS = 6;

/**
 * Fit strokes into a frame; a pen twice as wide as `usualWidth` gives lines twice as thick.
 *
 * @param {Stroke[]} strokes
 * @param {Frame} frame
 * @param {number} usualWidth
 */
export function fitStrokes(strokes, frame, usualWidth) {
  let pen = frame.pen;
  let pixels = rasterize([], frame.height, frame.width);
  if (strokes.length === 0) return pixels;
  for (let iteration = 0; iteration < INK_ITERATIONS; iteration++) {
    pixels = rasterize(placeStrokes(strokes, frame, pen, usualWidth), frame.height, frame.width);
    if (frame.ink === null) break;
    const sum = pixels.data.reduce((total, value) => total + value, 0);
    pen = Math.min(1.8 * frame.pen, Math.max(0.6 * frame.pen, (pen * frame.ink) / sum));
  }
  return pixels;
}

/** Draw strokes unchanged, on a board as high as the picture. */
export function strokesAsDrawn(strokes, height, width) {
  const scaled = strokes.map((stroke) =>
    transform({ ...stroke, width: stroke.width * height }, height, height, 0, 0),
  );
  return rasterize(scaled, height, width);
}

/**
 * Fit an image of light ink on dark into a frame.
 *
 * @param {Pixels} pixels
 * @param {Frame} frame
 */
export function fitPixels(pixels, frame) {
  const ink = inkBounds(pixels);
  if (ink === null) return resize(pixels, frame.height, frame.width);
  const cropped = crop(pixels, ink);
  const { across, down } = scales(cropped.height, cropped.width, frame.box, frame);
  const straightened = frame.upright ? shear(cropped, slantOf(cropped)) : cropped;
  const size = (side) => Math.max(1, Math.round(side));
  const [height, width] = [size(straightened.height * down), size(straightened.width * across)];
  const resized = adjustInk(resize(straightened, height, width), frame.ink);
  const mass = inkBounds(resized)?.mass;
  const y = mass && frame.centre[0] === "mass" ? mass.y : resized.height / 2;
  const x = mass && frame.centre[1] === "mass" ? mass.x : resized.width / 2;
  const [top, left] = [Math.round(frame.height / 2 - y), Math.round(frame.width / 2 - x)];
  return pasteOnto(resized, frame.height, frame.width, top, left);
}

/** Scale values until the sum is `ink`: thin lines become lighter, thick ones darker; null leaves it as is. */
function adjustInk(pixels, ink) {
  let { data } = pixels;
  for (let iteration = 0; ink !== null && iteration < INK_ITERATIONS; iteration++) {
    const sum = data.reduce((total, value) => total + value, 0);
    data = data.map((value) => Math.min(1, (value * ink) / sum));
  }
  return { ...pixels, data };
}

/** Horizontal distance from the leftmost ink at the bottom to that at the top, per row in between. */
function slantOf(pixels) {
  const band = Math.max(1, Math.round(BAND * pixels.height));
  const leftEdge = (top) =>
    inkBounds(crop(pixels, { top, bottom: top + band, left: 0, right: pixels.width }))?.left ?? 0;
  return (leftEdge(0) - leftEdge(pixels.height - band)) / Math.max(1, pixels.height - band);
}

/** Strokes in pixels of the frame, drawn with a pen of `pen` pixels. */
export function placeStrokes(strokes, frame, pen, usualWidth) {
  const bounds = boundsOf(strokes);
  const available = {
    height: Math.max(1, frame.box.height - pen),
    width: Math.max(1, frame.box.width - pen),
  };
  const size = [bounds.bottom - bounds.top, bounds.right - bounds.left].map((side) =>
    Math.max(MIN_DRAWING_SIZE, side),
  );
  const { across, down } = scales(...size, available, frame);
  let placed = strokes.map((stroke) =>
    transform({ ...stroke, width: (pen * stroke.width) / usualWidth }, across, down, 0, 0),
  );
  if (frame.upright) placed = straighten(placed);
  return centre(placed, frame);
}

/** Horizontal and vertical enlargement of a drawing in the available space. */
function scales(height, width, available, { stretch }) {
  const down = available.height / height;
  const across = Math.min(available.width / width, down * stretch);
  return { across, down: Math.min(down, across * (stretch > 1 ? MAX_STRETCH_RATIO : 1)) };
}

// shear the strokes so that the leftmost points of top and bottom are above each other
function straighten(strokes) {
  const points = strokes.flatMap((stroke) => stroke.points);
  const { top, bottom } = boundsOf(strokes);
  const height = bottom - top;
  if (height === 0) return strokes;
  const leftEdge = (inBand) => Math.min(...points.filter(([, y]) => inBand(y)).map(([x]) => x));
  const slant =
    (leftEdge((y) => y <= top + BAND * height) - leftEdge((y) => y >= bottom - BAND * height)) / height;
  return strokes.map((stroke) => ({ ...stroke, points: stroke.points.map(([x, y]) => [x + slant * y, y]) }));
}

function centre(strokes, frame) {
  const bounds = boundsOf(strokes);
  const mass = centreOfMass(strokes);
  const y = frame.centre[0] === "mass" ? mass.y : (bounds.top + bounds.bottom) / 2;
  const x = frame.centre[1] === "mass" ? mass.x : (bounds.left + bounds.right) / 2;
  return strokes.map((stroke) => transform(stroke, 1, 1, frame.width / 2 - x, frame.height / 2 - y));
}

function transform(stroke, across, down, dx, dy) {
  return { ...stroke, points: stroke.points.map(([x, y]) => [x * across + dx, y * down + dy]) };
}

/** The centre of mass of all lines, weighted by length and width; a dot has a small weight. */
function centreOfMass(strokes) {
  const sum = { weight: 0, x: 0, y: 0 };
  for (const { points, width } of strokes) {
    points.forEach(([x, y], i) => {
      const [px, py] = points[Math.max(0, i - 1)];
      const weight = width * (Math.hypot(x - px, y - py) + 1e-3);
      sum.weight += weight;
      sum.x += (weight * (x + px)) / 2;
      sum.y += (weight * (y + py)) / 2;
    });
  }
  return { x: sum.x / sum.weight, y: sum.y / sum.weight };
}

function boundsOf(strokes) {
  const bounds = { left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity };
  for (const { points } of strokes) {
    for (const [x, y] of points) {
      bounds.left = Math.min(bounds.left, x);
      bounds.right = Math.max(bounds.right, x);
      bounds.top = Math.min(bounds.top, y);
      bounds.bottom = Math.max(bounds.bottom, y);
    }
  }
  return bounds;
}
