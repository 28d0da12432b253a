// Paints pixels on a canvas, one canvas pixel each; the style sheet enlarges them without smoothing.

/** @typedef {import("./stroke_raster.js").Pixels} Pixels */

/**
 * What draws on a canvas.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {CanvasRenderingContext2DSettings} [settings]
 */
export function contextOf(canvas, settings) {
  const context = canvas.getContext("2d", settings);
  if (context === null) throw new Error("expected a browser that can draw on a canvas, got one that cannot");
  return context;
}

/**
 * Paint a picture on a canvas, which takes the picture's size.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {Pixels} pixels
 */
export function paintPixels(canvas, pixels) {
  canvas.width = pixels.width;
  canvas.height = pixels.height;
  contextOf(canvas).putImageData(toImageData(pixels), 0, 0);
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
