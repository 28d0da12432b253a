// A drawing or a picture is laid into a frame as those lie there that the network saw in training.

import { rasterize } from "./stroke_raster.js";
import { crop, inkBounds, pasteOnto, resize, shear } from "./pixels.js";

/**
 * @typedef {import("./stroke_raster.js").Pixels} Pixels
 * @typedef {import("./stroke_raster.js").Stroke} Stroke
 * @typedef {import("./training_frame.js").Frame} Frame
 */

// the parts of a drawing's height that count as its top and its bottom
const BAND = 0.12;
// a drawing smaller than this, in heights of the board, is not blown up as if it were a whole
const DOT = 0.08;
// a drawing that has to grow narrower than its height asks for loses height as well, beyond this
const LOPSIDED = 2.5;
const ROUNDS = 6;

/** Strokes in a frame; those of a pen twice as wide as `usual` become twice as thick. */
export function fitStrokes(strokes, frame, usual) {
  let pen = frame.pen;
  let pixels = rasterize([], frame.height, frame.width);
  if (strokes.length === 0) return pixels;
  for (let round = 0; round < ROUNDS; round++) {
    pixels = rasterize(placeStrokes(strokes, frame, pen, usual), frame.height, frame.width);
    if (frame.ink === null) break;
    const sum = pixels.data.reduce((total, value) => total + value, 0);
    pen = Math.min(1.8 * frame.pen, Math.max(0.6 * frame.pen, (pen * frame.ink) / sum));
  }
  return pixels;
}

/** Strokes as they are, on a board as high as the picture. */
export function strokesAsDrawn(strokes, height, width) {
  const scaled = strokes.map((stroke) =>
    moved({ ...stroke, width: stroke.width * height }, height, height, 0, 0),
  );
  return rasterize(scaled, height, width);
}

/** A picture of ink, light on dark, in a frame. */
export function fitPixels(pixels, frame) {
  const ink = inkBounds(pixels);
  if (ink === null) return resize(pixels, frame.height, frame.width);
  const cut = crop(pixels, ink);
  const { across, down } = scalesOf(cut.height, cut.width, frame.box, frame);
  const turned = frame.upright ? shear(cut, slantOfPixels(cut)) : cut;
  const size = [turned.height * down, turned.width * across].map((side) => Math.max(1, Math.round(side)));
  const small = evened(resize(turned, ...size), frame.ink);
  const { mass } = inkBounds(small);
  const y = frame.centre[0] === "mass" ? mass.y : small.height / 2;
  const x = frame.centre[1] === "mass" ? mass.x : small.width / 2;
  const [top, left] = [Math.round(frame.height / 2 - y), Math.round(frame.width / 2 - x)];
  return pasteOnto(small, frame.height, frame.width, top, left);
}

/** As much ink as is wanted, thin lines made lighter and thick ones darker; null leaves it as it is. */
function evened(pixels, ink) {
  let { data } = pixels;
  for (let round = 0; ink !== null && round < ROUNDS; round++) {
    const sum = data.reduce((total, value) => total + value, 0);
    data = data.map((value) => Math.min(1, (value * ink) / sum));
  }
  return { ...pixels, data };
}

/** How far the leftmost ink of the top lies from that of the bottom, for each row between them. */
function slantOfPixels(pixels) {
  const band = Math.max(1, Math.round(BAND * pixels.height));
  const left = (top) =>
    inkBounds(crop(pixels, { top, bottom: top + band, left: 0, right: pixels.width })).left;
  return (left(0) - left(pixels.height - band)) / Math.max(1, pixels.height - band);
}

/** Strokes with their places in pixels of the frame, drawn by a pen of `pen` pixels. */
export function placeStrokes(strokes, frame, pen, usual) {
  const outer = bounds(strokes);
  const room = { height: Math.max(1, frame.box.height - pen), width: Math.max(1, frame.box.width - pen) };
  const size = [outer.bottom - outer.top, outer.right - outer.left].map((side) => Math.max(DOT, side));
  const { across, down } = scalesOf(...size, room, frame);
  let put = strokes.map((stroke) =>
    moved({ ...stroke, width: (pen * stroke.width) / usual }, across, down, 0, 0),
  );
  if (frame.upright) put = upright(put);
  return centred(put, frame);
}

/** How much larger a drawing becomes in a room, across and down. */
function scalesOf(height, width, room, { stretch }) {
  const down = room.height / height;
  const across = Math.min(room.width / width, down * stretch);
  return { across, down: Math.min(down, across * (stretch > 1 ? LOPSIDED : 1)) };
}

// the leftmost places of the top and of the bottom come to stand above each other
function upright(strokes) {
  const points = strokes.flatMap((stroke) => stroke.points);
  const { top, bottom } = bounds(strokes);
  const high = bottom - top;
  if (high === 0) return strokes;
  const left = (within) => Math.min(...points.filter(([, y]) => within(y)).map(([x]) => x));
  const slant = (left((y) => y <= top + BAND * high) - left((y) => y >= bottom - BAND * high)) / high;
  return strokes.map((stroke) => ({ ...stroke, points: stroke.points.map(([x, y]) => [x + slant * y, y]) }));
}

function centred(strokes, frame) {
  const outer = bounds(strokes);
  const mass = massOf(strokes);
  const y = frame.centre[0] === "mass" ? mass.y : (outer.top + outer.bottom) / 2;
  const x = frame.centre[1] === "mass" ? mass.x : (outer.left + outer.right) / 2;
  return strokes.map((stroke) => moved(stroke, 1, 1, frame.width / 2 - x, frame.height / 2 - y));
}

function moved(stroke, across, down, dx, dy) {
  return { ...stroke, points: stroke.points.map(([x, y]) => [x * across + dx, y * down + dy]) };
}

/** The middle of all lines, each part weighing what it is long and wide; a dot weighs a little. */
function massOf(strokes) {
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

function bounds(strokes) {
  const outer = { left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity };
  for (const { points } of strokes) {
    for (const [x, y] of points) {
      outer.left = Math.min(outer.left, x);
      outer.right = Math.max(outer.right, x);
      outer.top = Math.min(outer.top, y);
      outer.bottom = Math.max(outer.bottom, y);
    }
  }
  return outer;
}
