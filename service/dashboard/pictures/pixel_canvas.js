// Paints pixels on a canvas, one canvas pixel each; the style sheet enlarges them without smoothing.

/** @typedef {import("./stroke_raster.js").Pixels} Pixels */

/** Paint a picture on a canvas, which takes the picture's size. */
export function paintPixels(canvas, pixels) {
  canvas.width = pixels.width;
  canvas.height = pixels.height;
  canvas.getContext("2d").putImageData(toImageData(pixels), 0, 0);
}

function toImageData({ height, width, channels, data }) {
  const image = new ImageData(width, height);
  for (let pixel = 0; pixel < height * width; pixel++) {
    for (let c = 0; c < 3; c++) {
      image.data[4 * pixel + c] = Math.round(255 * data[pixel * channels + (channels === 3 ? c : 0)]);
    }
    image.data[4 * pixel + 3] = 255;
  }
  return image;
}
