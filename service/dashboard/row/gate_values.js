// Reads a gate's tensor by unit and by place (time steps, words or pixels).

import { elementCount } from "../state/tensors.js";

/**
 * @typedef {object} GateLayout
 * @property {number} units
 * @property {number} before  number of places on the axes before the unit axis: steps or words
 * @property {number[]} after  axes after the unit axis: the pixels of a picture
 * @property {ArrayLike<number>} data
 */

/** @returns {GateLayout} of a tensor whose unit axis is `unitAxis`, counted from the end */
export function gateLayout(tensor, unitAxis) {
  const axis = tensor.shape.length + unitAxis;
  return {
    units: tensor.shape[axis],
    before: elementCount(tensor.shape.slice(0, axis)),
    after: tensor.shape.slice(axis + 1),
    data: tensor.data,
  };
}

/** The mean of each unit over its places. */
export function meansByUnit({ units, before, after, data }) {
  const pixels = elementCount(after);
  const means = new Float32Array(units);
  for (let unit = 0; unit < units; unit += 1) {
    let sum = 0;
    for (let place = 0; place < before; place += 1) {
      const start = (place * units + unit) * pixels;
      for (let n = start; n < start + pixels; n += 1) sum += data[n];
    }
    means[unit] = sum / (before * pixels);
  }
  return means;
}

/** The values of all units at each place: one list per step, word or pixel. */
export function unitsByPlace({ units, before, after, data }) {
  const pixels = elementCount(after);
  const places = Array.from({ length: before * pixels }, () => new Float32Array(units));
  places.forEach((values, n) => {
    const [place, pixel] = [Math.floor(n / pixels), n % pixels];
    for (let unit = 0; unit < units; unit += 1) values[unit] = data[(place * units + unit) * pixels + pixel];
  });
  return places;
}

/** One unit as a picture, or the mean of all units if `unit` is null: one list per line of pixels. */
export function unitPicture({ units, before, after, data }, unit) {
  const width = after.at(-1);
  const pixels = elementCount(after);
  const lines = Array.from({ length: pixels / width }, () => new Float32Array(width));
  const chosenUnits = unit === null ? Array.from({ length: units }, (_, n) => n) : [unit];
  for (let place = 0; place < before; place += 1) {
    for (const chosenUnit of chosenUnits) {
      const start = (place * units + chosenUnit) * pixels;
      for (let n = 0; n < pixels; n += 1) lines[Math.floor(n / width)][n % width] += data[start + n];
    }
  }
  for (const line of lines) line.forEach((sum, n) => (line[n] = sum / (before * chosenUnits.length)));
  return lines;
}

/** The element-wise mean of lists of the same length. */
export function meanOfLists(lists) {
  if (lists.length < 2) return lists[0];
  return Float32Array.from(lists[0], (_, n) => lists.reduce((sum, list) => sum + list[n], 0) / lists.length);
}

/** The values of a tensor in a reading, by unit and averaged over places; null if it is not in the reading. */
export function unitMeans(reading, name, unitAxis) {
  const gateTensor = reading.tensors.get(name);
  return gateTensor ? meansByUnit(gateLayout(gateTensor, unitAxis)) : null;
}
