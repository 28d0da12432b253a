// Recognizes inputs that take pictures, and converts between pictures and tensors.

import { elementCount } from "../state/tensors.js";

/**
 * @typedef {object} PictureFormat  how a model takes a picture
 * @property {import("../state/api_types.js").TensorMetadata} input
 * @property {number} height
 * @property {number} width
 * @property {number} channels
 * @property {boolean} first  whether the channel axis comes first
 * @property {number} low  value of black
 * @property {number} high  value of white
 * @property {import("../state/api_types.js").Certificate} certificate  of the model
 * @property {boolean} known  whether the file says which values these are, or which its data has
 * @property {boolean} likely  whether the input is probably a picture and not other numbers
 */

const NUMERIC_TYPES = /^(FP32|FP64|U?INT(8|16|32|64))$/;
const PICTURE_TYPES = /^(FP32|FP64|UINT8)$/;
const MIN_FLAT_PIXELS = 64;

/**
 * Values of black and white that one may choose if the file does not say them; the first is assumed.
 *
 * @type {[number, number][]}
 */
export const PIXEL_RANGES = [
  [0, 1],
  [0, 255],
  [-1, 1],
  [0, 16],
];
// what the user has chosen, by the certificate of the model
const chosenRanges = new WeakMap();

/** How a model takes a picture, or null if it does not. */
export function pictureFormatOf({ inputs, certificate }) {
  const [input] = inputs;
  if (inputs.length !== 1 || certificate.alphabet || certificate.text || !NUMERIC_TYPES.test(input.datatype)) return null;
  const layout = layoutOf(input.shape);
  if (layout === null) return null;
  const { picture, ranges } = certificate;
  const range = ranges[input.name];
  const [low, high] = picture
    ? [picture.black, picture.white]
    : range
      ? [range.low, range.high > range.low ? range.high : range.low + 1]
      : (chosenRanges.get(certificate) ?? PIXEL_RANGES[0]);
  // a flat row or a table may be anything; if it is square and its range is known, it is probably a picture
  const ambiguous = input.shape.length < 4;
  const square =
    layout.height === layout.width && (input.shape.length === 3 || input.name in ranges);
  const likely = Boolean(picture) || (PICTURE_TYPES.test(input.datatype) && (!ambiguous || square));
  return { input, ...layout, low, high, likely, certificate, known: Boolean(picture ?? range) };
}

/** The format with other values of black and white, which other parts of the page then use, too. */
export function withPixelRange(format, [low, high]) {
  chosenRanges.set(format.certificate, [low, high]);
  return { ...format, low, high };
}

function layoutOf([rows, ...dims]) {
  if (rows !== -1 || dims.some((dim) => dim < 1)) return null;
  if (dims.length === 3 && isChannelCount(dims[0]))
    return { channels: dims[0], height: dims[1], width: dims[2], first: true };
  if (dims.length === 3 && isChannelCount(dims[2]))
    return { height: dims[0], width: dims[1], channels: dims[2], first: false };
  if (dims.length === 2 && Math.min(...dims) > 1)
    return { height: dims[0], width: dims[1], channels: 1, first: true };
  const side = Math.sqrt(dims[0]);
  const square = dims.length === 1 && dims[0] >= MIN_FLAT_PIXELS && Number.isInteger(side);
  return square ? { height: side, width: side, channels: 1, first: true } : null;
}

function isChannelCount(dim) {
  return dim === 1 || dim === 3;
}

/** The tensor of a picture, with values rounded to what can be distinguished, so that they are readable. */
export function pixelsToTensor(format, pixels) {
  const { input, height, width, channels, first, low, high } = format;
  const size = Math.abs(high - low);
  const digits = size >= 100 || !input.datatype.startsWith("FP") ? 0 : size >= 10 ? 1 : 3;
  const data = new Array(height * width * channels);
  pixels.data.forEach((value, index) => {
    data[first ? channelsFirstIndex(format, index) : index] = Number(
      (low + value * (high - low)).toFixed(digits),
    );
  });
  return { name: input.name, datatype: input.datatype, shape: [1, ...input.shape.slice(1)], data };
}

/** The picture of a tensor; values beyond black or white are clipped. */
export function tensorToPixels(format, tensor) {
  const { height, width, channels, first, low, high } = format;
  const data = new Float32Array(elementCount([height, width, channels]));
  data.forEach((_, index) => {
    const value = Number(tensor.data[first ? channelsFirstIndex(format, index) : index]);
    data[index] = Math.min(1, Math.max(0, (value - low) / (high - low)));
  });
  return { height, width, channels, data };
}

/** The index of a channels-last value in a channels-first tensor. */
function channelsFirstIndex({ height, width, channels }, index) {
  return (index % channels) * height * width + Math.floor(index / channels);
}
