// Whether a model's input is a picture, and a picture as a row of that input.

import { elementCount } from "../state/tensors.js";

/**
 * @typedef {object} Picture  how a model takes a picture
 * @property {object} input  its metadata
 * @property {number} height
 * @property {number} width
 * @property {number} channels
 * @property {boolean} first  whether the axis of the channels is the first
 * @property {number} low  what stands for black
 * @property {number} high  what stands for white
 * @property {boolean} likely  whether it may well be a picture and not numbers of another kind
 */

const NUMBERS = /^(FP32|FP64|U?INT(8|16|32|64))$/;
const BRIGHT = /^(FP32|FP64|UINT8)$/;
const FEWEST_FLAT = 64;

/** How a model takes a picture, null for one that takes none. */
export function pictureFormatOf({ inputs, certificate }) {
  const [input] = inputs;
  if (inputs.length !== 1 || certificate.alphabet || !NUMBERS.test(input.datatype)) return null;
  const form = formOf(input.shape);
  if (form === null) return null;
  const { low = 0, high = 1 } = certificate.ranges[input.name] ?? {};
  // a flat row or a table of numbers may be anything; a square one of known range is a picture more often
  const plain = input.shape.length < 4;
  const square = form.height === form.width && (input.shape.length === 3 || input.name in certificate.ranges);
  const likely = BRIGHT.test(input.datatype) && (!plain || square);
  return { input, ...form, low, high: high > low ? high : low + 1, likely };
}

function formOf([rows, ...dims]) {
  if (rows !== -1 || dims.some((dim) => dim < 1)) return null;
  if (dims.length === 3 && colours(dims[0]))
    return { channels: dims[0], height: dims[1], width: dims[2], first: true };
  if (dims.length === 3 && colours(dims[2]))
    return { height: dims[0], width: dims[1], channels: dims[2], first: false };
  if (dims.length === 2 && Math.min(...dims) > 1)
    return { height: dims[0], width: dims[1], channels: 1, first: true };
  const side = Math.sqrt(dims[0]);
  const square = dims.length === 1 && dims[0] >= FEWEST_FLAT && Number.isInteger(side);
  return square ? { height: side, width: side, channels: 1, first: true } : null;
}

function colours(dim) {
  return dim === 1 || dim === 3;
}

/** The row of a picture. Values are rounded to what can be told apart, so that they can be read. */
export function pixelsToTensor(picture, pixels) {
  const { input, height, width, channels, first, low, high } = picture;
  const digits = high - low >= 100 || !input.datatype.startsWith("FP") ? 0 : high - low >= 10 ? 1 : 3;
  const data = new Array(height * width * channels);
  pixels.data.forEach((value, place) => {
    data[first ? turned(picture, place) : place] = Number((low + value * (high - low)).toFixed(digits));
  });
  return { name: input.name, datatype: input.datatype, shape: [1, ...input.shape.slice(1)], data };
}

/** The picture of a row; what is beyond black or white is shown as these. */
export function tensorToPixels(picture, tensor) {
  const { height, width, channels, first, low, high } = picture;
  const data = new Float32Array(elementCount([height, width, channels]));
  data.forEach((_, place) => {
    const value = Number(tensor.data[first ? turned(picture, place) : place]);
    data[place] = Math.min(1, Math.max(0, (value - low) / (high - low)));
  });
  return { height, width, channels, data };
}

/** Where a value lies, of a picture with its channels beside each other, when the channels come first. */
function turned({ height, width, channels }, place) {
  return (place % channels) * height * width + Math.floor(place / channels);
}
