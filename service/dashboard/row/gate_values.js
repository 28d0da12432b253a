// A gate's values laid out: its units, and the places where each has one (steps, words, pixels).

import { elementCount } from "../state/tensors.js";

/**
 * @typedef {object} Laid
 * @property {number} units
 * @property {number} before  places that come before the units' axis: steps or words
 * @property {number[]} after  axes that come after it: the pixels of a picture
 * @property {ArrayLike<number>} data
 */

/** @returns {Laid} of a tensor that has its units along this axis, counted from the end */
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

/** All units at each place: a list for each step, word or pixel. */
export function unitsByPlace({ units, before, after, data }) {
  const pixels = elementCount(after);
  const places = Array.from({ length: before * pixels }, () => new Float32Array(units));
  places.forEach((values, n) => {
    const [place, pixel] = [Math.floor(n / pixels), n % pixels];
    for (let unit = 0; unit < units; unit += 1) values[unit] = data[(place * units + unit) * pixels + pixel];
  });
  return places;
}

/** One unit as a picture, or the mean of all where `unit` is null: a list for each line of pixels. */
export function unitPicture({ units, before, after, data }, unit) {
  const width = after.at(-1);
  const pixels = elementCount(after);
  const lines = Array.from({ length: pixels / width }, () => new Float32Array(width));
  const wanted = unit === null ? Array.from({ length: units }, (_, n) => n) : [unit];
  for (let place = 0; place < before; place += 1) {
    for (const one of wanted) {
      const start = (place * units + one) * pixels;
      for (let n = 0; n < pixels; n += 1) lines[Math.floor(n / width)][n % width] += data[start + n];
    }
  }
  for (const line of lines) line.forEach((sum, n) => (line[n] = sum / (before * wanted.length)));
  return lines;
}

/** The mean of lists of one length. */
export function meanOfLists(lists) {
  if (lists.length < 2) return lists[0];
  return Float32Array.from(lists[0], (_, n) => lists.reduce((sum, list) => sum + list[n], 0) / lists.length);
}

/** What a reading has of a gate's values, by unit: of all its places the mean; null where it has none. */
export function unitMeans(reading, name, unitAxis) {
  const whole = reading.tensors.get(name);
  return whole ? meansByUnit(gateLayout(whole, unitAxis)) : null;
}
