// Operations on pictures as numbers from 0 to 1: resize, crop, paste, convert to grey.

/** @typedef {import("./stroke_raster.js").Pixels} Pixels */

// share of the darkest value from which a pixel counts as ink
const INK_THRESHOLD = 0.3;

/** A black picture. */
export function blackPixels(height, width, channels) {
  return { height, width, channels, data: new Float32Array(height * width * channels) };
}

/** Resize a picture; each pixel is the mean of the area that it covers. */
export function resize(pixels, height, width) {
  const { channels } = pixels;
  const [rows, columns] = [coverage(pixels.height, height), coverage(pixels.width, width)];
  const resizedColumns = new Float64Array(pixels.height * width * channels);
  for (let y = 0; y < pixels.height; y++) {
    columns.forEach((shares, x) => {
      for (const [from, share] of shares) {
        for (let c = 0; c < channels; c++) {
          resizedColumns[(y * width + x) * channels + c] +=
            share * pixels.data[(y * pixels.width + from) * channels + c];
        }
      }
    });
  }
  const lineLength = width * channels;
  const data = new Float32Array(height * lineLength);
  rows.forEach((shares, y) => {
    for (const [from, share] of shares) {
      for (let i = 0; i < lineLength; i++)
        data[y * lineLength + i] += share * resizedColumns[from * lineLength + i];
    }
  });
  return { height, width, channels, data };
}

/** For each new position along an axis, the old ones that it covers, as [position, share]. */
function coverage(from, to) {
  const scale = from / to;
  return Array.from({ length: to }, (_, place) => {
    const [start, end] = [place * scale, (place + 1) * scale];
    const shares = [];
    for (let old = Math.floor(start); old < Math.min(from, Math.ceil(end)); old++) {
      const share = (Math.min(end, old + 1) - Math.max(start, old)) / scale;
      if (share > 0) shares.push([old, share]);
    }
    return shares;
  });
}

/** Cut a rectangle out of a picture. */
export function crop({ width, channels, data }, { top, bottom, left, right }) {
  const lineLength = (right - left) * channels;
  const cropped = new Float32Array((bottom - top) * lineLength);
  for (let y = top; y < bottom; y++) {
    const start = (y * width + left) * channels;
    cropped.set(data.subarray(start, start + lineLength), (y - top) * lineLength);
  }
  return { height: bottom - top, width: right - left, channels, data: cropped };
}

/** Shear a grey picture: shift each row to the right by `slant` more than the row above. */
export function shear({ height, width, data }, slant) {
  const maxShift = slant * (height - 1);
  const newWidth = width + Math.ceil(Math.abs(maxShift));
  const moved = new Float32Array(height * newWidth);
  for (let y = 0; y < height; y++) {
    const shift = Math.round(slant * y - Math.min(0, maxShift));
    moved.set(data.subarray(y * width, (y + 1) * width), y * newWidth + shift);
  }
  return { height, width: newWidth, channels: 1, data: moved };
}

/** Paste a picture onto a background; pixels outside of it are cut off. */
export function pasteOnto(pixels, height, width, top, left, background = 0) {
  const { channels } = pixels;
  const data = new Float32Array(height * width * channels).fill(background);
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

/** Fit a whole picture into another shape; the rest is filled with the mean of its border. */
export function fitInside(pixels, height, width) {
  const scale = Math.min(height / pixels.height, width / pixels.width);
  const size = (length, max) => Math.min(max, Math.max(1, Math.round(length * scale)));
  const small = resize(pixels, size(pixels.height, height), size(pixels.width, width));
  const [top, left] = [Math.floor((height - small.height) / 2), Math.floor((width - small.width) / 2)];
  return pasteOnto(small, height, width, top, left, borderMean(pixels));
}

/** Fill another shape with the middle of a picture. */
export function cropToFill(pixels, height, width) {
  const scale = Math.min(pixels.height / height, pixels.width / width);
  const [cropHeight, cropWidth] = [
    Math.max(1, Math.round(height * scale)),
    Math.max(1, Math.round(width * scale)),
  ];
  const [top, left] = [
    Math.floor((pixels.height - cropHeight) / 2),
    Math.floor((pixels.width - cropWidth) / 2),
  ];
  return resize(
    crop(pixels, { top, bottom: top + cropHeight, left, right: left + cropWidth }),
    height,
    width,
  );
}

/** Convert to grey, weighted as the eye perceives colours. */
export function toGrey({ height, width, channels, data }) {
  if (channels === 1) return { height, width, channels, data };
  const greyValues = new Float32Array(height * width);
  for (let i = 0; i < greyValues.length; i++) {
    greyValues[i] = 0.299 * data[3 * i] + 0.587 * data[3 * i + 1] + 0.114 * data[3 * i + 2];
  }
  return { height, width, channels: 1, data: greyValues };
}

/** Swap light and dark. */
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

/** The bounds and the centre of mass of the ink in a grey picture, light on dark; null without ink. */
export function inkBounds({ height, width, data }) {
  const darkest = data.reduce((max, value) => Math.max(max, value), 0);
  if (darkest === 0) return null;
  const bounds = { top: height, bottom: 0, left: width, right: 0, mass: { x: 0, y: 0 } };
  let sum = 0;
  data.forEach((value, place) => {
    const [y, x] = [Math.floor(place / width), place % width];
    sum += value;
    bounds.mass.x += value * (x + 0.5);
    bounds.mass.y += value * (y + 0.5);
    if (value < INK_THRESHOLD * darkest) return;
    bounds.top = Math.min(bounds.top, y);
    bounds.bottom = Math.max(bounds.bottom, y + 1);
    bounds.left = Math.min(bounds.left, x);
    bounds.right = Math.max(bounds.right, x + 1);
  });
  bounds.mass.x /= sum;
  bounds.mass.y /= sum;
  return bounds;
}
