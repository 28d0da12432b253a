import assert from "node:assert/strict";
import test from "node:test";

import { fitPixels, fitStrokes, strokesAsDrawn } from "../../service/dashboard/pictures/fit_to_frame.js";
import {
  blackPixels,
  borderMean,
  crop,
  cropToFill,
  fitInside,
  inkBounds,
  invert,
  pasteOnto,
  resize,
  shear,
  toGrey,
} from "../../service/dashboard/pictures/pixels.js";
import { rasterize } from "../../service/dashboard/pictures/stroke_raster.js";
import { frameFor } from "../../service/dashboard/pictures/training_frame.js";

const grey = (...rows) => ({
  height: rows.length,
  width: rows[0].length,
  channels: 1,
  data: Float32Array.from(rows.flat()),
});
const near = (actual, expected, tolerance = 1e-6) =>
  assert.ok(Math.abs(actual - expected) <= tolerance, `expected ${expected}, got ${actual}`);
const sum = ({ data }) => data.reduce((total, value) => total + value, 0);

test("a resized pixel is the mean of the area that it covers", () => {
  assert.deepEqual([...resize(grey([0, 1], [1, 0]), 1, 1).data], [0.5]);
  // three pixels in two: 1.5 each
  const [left, right] = resize(grey([0, 0.75, 1]), 1, 2).data;
  near(left, 0.25);
  near(right, (0.375 + 1) / 1.5);
  assert.deepEqual([...resize(grey([0.25, 1]), 2, 4).data], [0.25, 0.25, 1, 1, 0.25, 0.25, 1, 1]);
});

test("channels stay apart", () => {
  const pixels = { height: 1, width: 2, channels: 3, data: Float32Array.from([1, 0, 0, 0, 0, 1]) };
  assert.deepEqual([...resize(pixels, 1, 1).data], [0.5, 0, 0.5]);
  assert.deepEqual([...crop(pixels, { top: 0, bottom: 1, left: 1, right: 2 }).data], [0, 0, 1]);
  const [red, blue] = toGrey(pixels).data;
  near(red, 0.299);
  near(blue, 0.114);
});

test("what is pasted outside of the background is cut off", () => {
  const ones = grey([1, 1], [1, 1]);
  assert.deepEqual([...pasteOnto(ones, 2, 2, -1, 1).data], [0, 1, 0, 0]);
  assert.deepEqual([...pasteOnto(ones, 2, 2, 5, 5, 0.5).data], [0.5, 0.5, 0.5, 0.5]);
});

test("a picture is fitted with its border, or cropped to its middle", () => {
  assert.deepEqual([...fitInside(grey([1, 1, 1, 1]), 4, 4).data], new Array(16).fill(1));
  assert.deepEqual([...cropToFill(grey([0, 1, 1, 0]), 1, 2).data], [1, 1]);
  // never less than a pixel
  assert.equal(fitInside(grey(new Array(1000).fill(1)), 2, 2).data.length, 4);
});

test("shearing moves rows apart, in either direction", () => {
  assert.deepEqual([...shear(grey([1], [1], [1]), 1).data], [1, 0, 0, 0, 1, 0, 0, 0, 1]);
  assert.deepEqual([...shear(grey([1], [1], [1]), -1).data], [0, 0, 1, 0, 1, 0, 1, 0, 0]);
  assert.deepEqual([...shear(grey([1, 2]), 7).data], [1, 2]);
});

test("ink has bounds and a centre of mass, and its absence has none", () => {
  const { top, bottom, left, right, mass } = inkBounds(grey([0, 0, 0], [0, 0.5, 1], [0, 0.1, 0]));
  assert.deepEqual([top, bottom, left, right], [1, 2, 1, 3]);
  near(mass.x, (0.5 * 1.5 + 2.5 + 0.1 * 1.5) / 1.6);
  near(mass.y, (1.5 * 1.5 + 0.1 * 2.5) / 1.6);
  assert.equal(inkBounds(blackPixels(3, 3, 1)), null);
});

test("the border is counted once, also at the corners", () => {
  near(borderMean(grey([1, 0, 1], [0, 9, 0], [1, 0, 1])), 0.5);
  near(borderMean(grey([0.25])), 0.25);
  near(borderMean(invert(grey([0.25]))), 0.75);
});

test("a dot is a disc, and a line has its length and width", () => {
  const dot = rasterize([{ points: [[16, 16]], width: 10 }], 32, 32);
  near(sum(dot), Math.PI * 25, 1);
  const line = rasterize([{ points: [[8, 16], [24, 16]], width: 4 }], 32, 32);
  near(sum(line), 16 * 4 + Math.PI * 4, 1);
  // crossing lines are not darker than ink
  const cross = rasterize([{ points: [[8, 16], [24, 16]], width: 4 }, { points: [[16, 8], [16, 24]], width: 4 }], 32, 32);
  assert.equal(Math.max(...cross.data), 1);
});

test("strokes outside of the picture leave it black", () => {
  assert.equal(sum(rasterize([{ points: [[-50, -50], [-40, -50]], width: 4 }], 16, 16)), 0);
  assert.equal(sum(rasterize([], 16, 16)), 0);
});

test("a drawing is placed alike wherever it was drawn, and however large", () => {
  const frame = frameFor(28, 28, []);
  const hook = (scale, dx, dy) => [{ points: [[0, 0], [0.6, 0], [0.2, 1]].map(([x, y]) => [x * scale + dx, y * scale + dy]), width: 0.1 }];
  const [small, large] = [fitStrokes(hook(0.3, 0.05, 0.1), frame, 0.1), fitStrokes(hook(0.9, 0, 0.05), frame, 0.1)];
  small.data.forEach((value, place) => near(value, large.data[place], 1e-4));
  const { mass } = inkBounds(small);
  near(mass.x, 14, 0.5);
  near(mass.y, 14, 0.5);
});

// digits in NIST's form: bars as high as the picture, and narrower
const digits = [2, 3, 4, 5, 5].map((wide) => pasteOnto({ height: 8, width: wide, channels: 1, data: new Float32Array(8 * wide).fill(0.5) }, 8, 8, 0, 2));

test("small digits have the same amount of ink", () => {
  const frame = frameFor(8, 8, digits);
  const stroke = [{ points: [[0.5, 0.1], [0.5, 0.9]], width: 0.1 }];
  near(sum(fitStrokes(stroke, frame, 0.1)), frame.ink, 0.35 * frame.ink);
});

test("other small pictures are not squeezed into the form of digits", () => {
  const square = [{ points: [[0.2, 0.2], [0.8, 0.2], [0.8, 0.8], [0.2, 0.8], [0.2, 0.2]], width: 0.1 }];
  const wide = pasteOnto({ height: 8, width: 8, channels: 1, data: new Float32Array(64).fill(0.5) }, 8, 8, 0, 0);
  for (const samples of [[], [...digits, wide], digits.slice(1)]) {
    const bounds = inkBounds(fitStrokes(square, frameFor(8, 8, samples), 0.1));
    near(bounds.right - bounds.left, bounds.bottom - bounds.top, 0);
  }
  const bounds = inkBounds(fitStrokes(square, frameFor(8, 8, digits), 0.1));
  assert.ok(bounds.right - bounds.left < bounds.bottom - bounds.top);
});

test("without strokes and without ink, a picture is black", () => {
  const frame = frameFor(28, 28, []);
  assert.equal(sum(fitStrokes([], frame, 0.1)), 0);
  assert.equal(sum(fitPixels(blackPixels(40, 60, 1), frame)), 0);
  assert.equal(sum(strokesAsDrawn([], 28, 28)), 0);
});

test("a file is fitted like a drawing: its box is filled, and its mass is in the middle", () => {
  for (const size of [28, 8]) {
    const frame = frameFor(size, size, []);
    const bar = pasteOnto({ ...blackPixels(60, 20, 1), data: new Float32Array(1200).fill(1) }, 100, 100, 5, 70);
    const fitted = fitPixels(bar, frame);
    const bounds = inkBounds(fitted);
    near(bounds.bottom - bounds.top, frame.box.height, 1);
    near(bounds.mass.x, size / 2, 0.6);
  }
});

test("a single pixel of ink is fitted, too", () => {
  for (const size of [28, 8]) {
    const pixels = blackPixels(50, 50, 1);
    pixels.data[7] = 0.01;
    const fitted = fitPixels(pixels, frameFor(size, size, []));
    assert.equal(fitted.data.length, size * size);
    assert.ok(fitted.data.every((value) => value >= 0 && value <= 1));
  }
});

test("samples say how pictures are placed", () => {
  const sample = (left) => pasteOnto({ ...blackPixels(20, 6, 1), data: new Float32Array(120).fill(1) }, 28, 28, 4, left);
  const frame = frameFor(28, 28, Array.from({ length: 5 }, () => sample(11)));
  assert.deepEqual(frame.box, { height: 20, width: 6 });
  // fewer than five are not enough, and pictures without ink say nothing
  const few = frameFor(28, 28, [...Array.from({ length: 4 }, () => sample(11)), blackPixels(28, 28, 1)]);
  assert.deepEqual(few.box, { height: 20, width: 20 });
});
