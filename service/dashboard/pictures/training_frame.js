// How the pictures that a network was trained on lie in their frame: what the ink fills, what lies in the
// middle, how thick lines are.

import { placeStrokes } from "./fit_to_frame.js";
import { rasterize } from "./stroke_raster.js";
import { inkBounds } from "./pixels.js";

/**
 * @typedef {object} Frame  lengths are in pixels
 * @property {number} height  of the picture as a whole
 * @property {number} width
 * @property {{height: number, width: number}} box  what the ink fills
 * @property {number} stretch  how many times wider a drawing may become than its height asks for
 * @property {boolean} upright  whether top and bottom begin at the same column, so that nothing slants
 * @property {("mass"|"box")[]} centre  what lies in the middle: down, across
 * @property {number|null} ink  the sum of all values, where it is the same in all pictures
 * @property {number} pen  how thick a line is
 */

// pictures as small as that are too coarse to learn from
const SMALL = 12;
const FEWEST = 5;

/** The frame of pictures of this size, by samples of them where there are enough. */
export function frameFor(height, width, samples) {
  if (Math.max(height, width) <= SMALL) return small(height, width);
  const seen = samples.map(measured).filter(Boolean);
  return seen.length < FEWEST ? large(height, width) : learned(height, width, seen);
}

/** As NIST's digits are: all as wide as high, made upright, with as much ink. */
function small(height, width) {
  const box = { height, width: (width * 5) / 8 };
  const ink = 0.305 * height * width;
  return { height, width, box, stretch: 1.5, upright: true, centre: ["box", "mass"], ink, pen: height / 6 };
}

/** As MNIST's are: in a box of 20 of 28 pixels, with the middle of the ink in the middle. */
function large(height, width) {
  const box = { height: (height * 20) / 28, width: (width * 20) / 28 };
  const centre = ["mass", "mass"];
  return { height, width, box, stretch: 1, upright: false, centre, ink: null, pen: height / 11 };
}

function learned(height, width, seen) {
  const of = (name) => seen.map((one) => one[name]);
  const frame = {
    ...large(height, width),
    box: { height: Math.max(...of("high")), width: Math.max(...of("wide")) },
    centre: [nearer(of("massDown"), of("boxDown")), nearer(of("massAcross"), of("boxAcross"))],
  };
  return { ...frame, pen: penOf(frame, mean(of("thick"))) };
}

/** What a picture is like, null where it has no ink. */
function measured(pixels) {
  const found = inkBounds(pixels);
  if (found === null) return null;
  const { top, bottom, left, right, mass } = found;
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

/** How thick lines are: a line covers its length times its breadth, and has its length twice as its edge. */
function thickness({ height, width, data }) {
  let [ink, edge] = [0, 0];
  const at = (y, x) => (y < 0 || x < 0 ? 0 : data[y * width + x]);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      ink += at(y, x);
      edge += Math.hypot(at(y, x) - at(y - 1, x), at(y, x) - at(y, x - 1));
    }
  }
  return (2 * ink) / edge;
}

/** The pen that draws a ring and a bar as thick as that. */
function penOf(frame, thick) {
  const turns = Array.from({ length: 33 }, (_, i) => (i * Math.PI) / 16);
  const ring = turns.map((turn) => [0.3 + 0.3 * Math.cos(turn), 0.5 + 0.5 * Math.sin(turn)]);
  const hook = [
    [0, 0],
    [0.6, 0],
    [0.2, 1],
  ];
  let [low, high] = [0.5, frame.height / 4];
  for (let round = 0; round < 12; round++) {
    const pen = (low + high) / 2;
    const shown = [ring, hook].map((points) => {
      const strokes = placeStrokes([{ points, width: 1 }], frame, pen, 1);
      return thickness(rasterize(strokes, frame.height, frame.width));
    });
    if (mean(shown) < thick) low = pen;
    else high = pen;
  }
  return (low + high) / 2;
}

/** Which of the two varies less, and so is what was put in the middle. */
function nearer(mass, box) {
  return spread(mass) < spread(box) ? "mass" : "box";
}

function spread(values) {
  const middle = mean(values);
  return mean(values.map((value) => (value - middle) ** 2));
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
