// Pictures as plain numbers from 0 to 1: made smaller, cut out, laid down, turned to grey.

/** @typedef {import("./stroke_raster.js").Pixels} Pixels */

// how dark a pixel is, beside the darkest, that belongs to the ink
const INK = 0.3;

/** A picture that is black all over. */
export function blackPixels(height, width, channels) {
  return { height, width, channels, data: new Float32Array(height * width * channels) };
}

/** A picture in another size, each pixel the mean of what it covers. */
export function resize(pixels, height, width) {
  const { channels } = pixels;
  const [rows, columns] = [covers(pixels.height, height), covers(pixels.width, width)];
  const narrow = new Float64Array(pixels.height * width * channels);
  for (let y = 0; y < pixels.height; y++) {
    columns.forEach((parts, x) => {
      for (const [from, share] of parts) {
        for (let c = 0; c < channels; c++) {
          narrow[(y * width + x) * channels + c] +=
            share * pixels.data[(y * pixels.width + from) * channels + c];
        }
      }
    });
  }
  const line = width * channels;
  const data = new Float32Array(height * line);
  rows.forEach((parts, y) => {
    for (const [from, share] of parts) {
      for (let i = 0; i < line; i++) data[y * line + i] += share * narrow[from * line + i];
    }
  });
  return { height, width, channels, data };
}

/** For each new place along an axis the old ones that it covers, [place, share]. */
function covers(from, to) {
  const scale = from / to;
  return Array.from({ length: to }, (_, place) => {
    const [start, end] = [place * scale, (place + 1) * scale];
    const parts = [];
    for (let old = Math.floor(start); old < Math.min(from, Math.ceil(end)); old++) {
      const share = (Math.min(end, old + 1) - Math.max(start, old)) / scale;
      if (share > 0) parts.push([old, share]);
    }
    return parts;
  });
}

/** The part of a picture from top to bottom and from left to right. */
export function crop({ width, channels, data }, { top, bottom, left, right }) {
  const line = (right - left) * channels;
  const part = new Float32Array((bottom - top) * line);
  for (let y = top; y < bottom; y++) {
    const start = (y * width + left) * channels;
    part.set(data.subarray(start, start + line), (y - top) * line);
  }
  return { height: bottom - top, width: right - left, channels, data: part };
}

/** A grey picture with each row moved to the right by so much more than the one above it. */
export function shear({ height, width, data }, slant) {
  const most = slant * (height - 1);
  const wide = width + Math.ceil(Math.abs(most));
  const moved = new Float32Array(height * wide);
  for (let y = 0; y < height; y++) {
    const shift = Math.round(slant * y - Math.min(0, most));
    moved.set(data.subarray(y * width, (y + 1) * width), y * wide + shift);
  }
  return { height, width: wide, channels: 1, data: moved };
}

/** A picture laid on another of `ground`; what lies outside is lost. */
export function pasteOnto(pixels, height, width, top, left, ground = 0) {
  const { channels } = pixels;
  const data = new Float32Array(height * width * channels).fill(ground);
  for (let y = Math.max(0, -top); y < Math.min(pixels.height, height - top); y++) {
    for (let x = Math.max(0, -left); x < Math.min(pixels.width, width - left); x++) {
      for (let c = 0; c < channels; c++) {
        const to = ((y + top) * width + x + left) * channels + c;
        data[to] = pixels.data[(y * pixels.width + x) * channels + c];
      }
    }
  }
  return { height, width, channels, data };
}

/** A picture whole within another shape: what it leaves free is as its border is. */
export function fitInside(pixels, height, width) {
  const scale = Math.min(height / pixels.height, width / pixels.width);
  const size = (length, most) => Math.min(most, Math.max(1, Math.round(length * scale)));
  const small = resize(pixels, size(pixels.height, height), size(pixels.width, width));
  const [top, left] = [Math.floor((height - small.height) / 2), Math.floor((width - small.width) / 2)];
  return pasteOnto(small, height, width, top, left, borderMean(pixels));
}

/** The middle of a picture that fills another shape. */
export function cropToFill(pixels, height, width) {
  const scale = Math.min(pixels.height / height, pixels.width / width);
  const [high, wide] = [Math.max(1, Math.round(height * scale)), Math.max(1, Math.round(width * scale))];
  const [top, left] = [Math.floor((pixels.height - high) / 2), Math.floor((pixels.width - wide) / 2)];
  return resize(crop(pixels, { top, bottom: top + high, left, right: left + wide }), height, width);
}

/** The same in grey, as the eye weighs colours. */
export function toGrey({ height, width, channels, data }) {
  if (channels === 1) return { height, width, channels, data };
  const one = new Float32Array(height * width);
  for (let i = 0; i < one.length; i++) {
    one[i] = 0.299 * data[3 * i] + 0.587 * data[3 * i + 1] + 0.114 * data[3 * i + 2];
  }
  return { height, width, channels: 1, data: one };
}

/** The same with light for dark. */
export function invert(pixels) {
  return { ...pixels, data: pixels.data.map((value) => 1 - value) };
}

/** The mean of the outermost pixels. */
export function borderMean({ height, width, channels, data }) {
  let [sum, count] = [0, 0];
  data.forEach((value, place) => {
    const pixel = Math.floor(place / channels);
    const [y, x] = [Math.floor(pixel / width), pixel % width];
    if (y === 0 || x === 0 || y === height - 1 || x === width - 1) {
      sum += value;
      count += 1;
    }
  });
  return sum / count;
}

/** Where the ink of a grey picture lies, light on dark, and the middle of its mass; null without any. */
export function inkBounds({ height, width, data }) {
  const darkest = data.reduce((most, value) => Math.max(most, value), 0);
  if (darkest === 0) return null;
  const found = { top: height, bottom: 0, left: width, right: 0, mass: { x: 0, y: 0 } };
  let sum = 0;
  data.forEach((value, place) => {
    const [y, x] = [Math.floor(place / width), place % width];
    sum += value;
    found.mass.x += value * (x + 0.5);
    found.mass.y += value * (y + 0.5);
    if (value < INK * darkest) return;
    found.top = Math.min(found.top, y);
    found.bottom = Math.max(found.bottom, y + 1);
    found.left = Math.min(found.left, x);
    found.right = Math.max(found.right, x + 1);
  });
  found.mass.x /= sum;
  found.mass.y /= sum;
  return found;
}
