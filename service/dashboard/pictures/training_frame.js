// How the training pictures of a network are placed in their frame: the size of the ink, what is centred, and how
// thick the lines are.

import { placeStrokes } from "./fit_to_frame.js";
import { inkBounds } from "./pixels.js";
import { rasterize } from "./stroke_raster.js";

/**
 * @typedef {object} Frame  lengths are in pixels
 * @property {number} height  of the whole picture
 * @property {number} width
 * @property {{height: number, width: number}} box  the area that the ink fills
 * @property {number} stretch  how much more a drawing may be enlarged horizontally than vertically
 * @property {boolean} upright  whether slanted drawings are straightened
 * @property {("mass"|"box")[]} centre  what is centred vertically and horizontally: mass or bounding box
 * @property {number|null} ink  sum of all values if it is the same in all pictures, else null
 * @property {number} pen  thickness of lines
 */

// pixels; pictures up to this size are too coarse to learn a frame from
const MAX_SMALL_SIZE = 12;
// share of the frame's width that digits in NIST's form have at most
const MAX_DIGIT_WIDTH = 0.75;
// number of samples needed to learn a frame
const MIN_SAMPLES = 5;

/** The frame for pictures of this size, learned from samples if there are enough. */
export function frameFor(height, width, samples) {
  const measurements = samples.map(measure).filter(Boolean);
  if (Math.max(height, width) <= MAX_SMALL_SIZE) {
    return areDigits(measurements, height, width) ? digitFrame(height, width) : smallFrame(height, width);
  }
  return measurements.length < MIN_SAMPLES
    ? largeFrame(height, width)
    : learnedFrame(height, width, measurements);
}

/** Whether all pictures are as high as their frame and narrower, as digits in NIST's form are. */
function areDigits(measurements, height, width) {
  return (
    measurements.length >= MIN_SAMPLES &&
    measurements.every(({ high, wide }) => high === height && wide <= MAX_DIGIT_WIDTH * width)
  );
}

/** The drawing fills the frame as it is. */
function smallFrame(height, width) {
  const box = { height, width };
  const centre = ["box", "box"];
  return { height, width, box, stretch: 1, upright: false, centre, ink: null, pen: height / 6 };
}

/** Like NIST's digits: width and height fill the box, straightened, always with the same amount of ink. */
function digitFrame(height, width) {
  const box = { height, width: (width * 5) / 8 };
  const ink = 0.305 * height * width;
  return { height, width, box, stretch: 1.5, upright: true, centre: ["box", "mass"], ink, pen: height / 6 };
}

/** Like MNIST: in a box of 20 of 28 pixels, with the centre of mass in the middle. */
function largeFrame(height, width) {
  const box = { height: (height * 20) / 28, width: (width * 20) / 28 };
  const centre = ["mass", "mass"];
  return { height, width, box, stretch: 1, upright: false, centre, ink: null, pen: height / 11 };
}

function learnedFrame(height, width, measurements) {
  const valuesOf = (name) => measurements.map((measurement) => measurement[name]);
  const frame = {
    ...largeFrame(height, width),
    box: { height: Math.max(...valuesOf("high")), width: Math.max(...valuesOf("wide")) },
    centre: [
      steadier(valuesOf("massDown"), valuesOf("boxDown")),
      steadier(valuesOf("massAcross"), valuesOf("boxAcross")),
    ],
  };
  return { ...frame, pen: penOf(frame, mean(valuesOf("thick"))) };
}

/** Measure a picture; null if it has no ink. */
function measure(pixels) {
  const bounds = inkBounds(pixels);
  if (bounds === null) return null;
  const { top, bottom, left, right, mass } = bounds;
  return {
    high: bottom - top,
    wide: right - left,
    massDown: mass.y,
    massAcross: mass.x,
    boxDown: (top + bottom) / 2,
    boxAcross: (left + right) / 2,
    thick: thickness(pixels),
  };
}

/** Thickness of lines: a line covers length × thickness, and the length of its edge is twice its length. */
function thickness({ height, width, data }) {
  let [ink, edge] = [0, 0];
  const valueAt = (y, x) => (y < 0 || x < 0 ? 0 : data[y * width + x]);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      ink += valueAt(y, x);
      edge += Math.hypot(valueAt(y, x) - valueAt(y - 1, x), valueAt(y, x) - valueAt(y, x - 1));
    }
  }
  return (2 * ink) / edge;
}

/** The pen width that draws a ring and a hook with this thickness, found by bisection. */
function penOf(frame, targetThickness) {
  const angles = Array.from({ length: 33 }, (_, i) => (i * Math.PI) / 16);
  const ring = angles.map((angle) => [0.3 + 0.3 * Math.cos(angle), 0.5 + 0.5 * Math.sin(angle)]);
  const hook = [
    [0, 0],
    [0.6, 0],
    [0.2, 1],
  ];
  let [low, high] = [0.5, frame.height / 4];
  for (let iteration = 0; iteration < 12; iteration++) {
    const pen = (low + high) / 2;
    const thicknesses = [ring, hook].map((points) => {
      const strokes = placeStrokes([{ points, width: 1 }], frame, pen, 1);
      return thickness(rasterize(strokes, frame.height, frame.width));
    });
    if (mean(thicknesses) < targetThickness) low = pen;
    else high = pen;
  }
  return (low + high) / 2;
}

/** Which of the two varies less between samples, and is therefore what was centred. */
function steadier(mass, box) {
  return variance(mass) < variance(box) ? "mass" : "box";
}

function variance(values) {
  const average = mean(values);
  return mean(values.map((value) => (value - average) ** 2));
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
