// Reads an image file with the browser's decoder.

import { contextOf } from "./pixel_canvas.js";

// pixels; larger images are scaled down to this side length
const MAX_SIDE = 1024;

/** The pixels of a file in three channels, with transparency on white. */
export async function readImage(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch (error) {
    const fileType = file.type ? `${file.type}, which is damaged or not supported` : "a file of unknown type";
    throw new Error(`expected an image that the browser can read, or .npy, got ${fileType}`, {
      cause: error,
    });
  }
  const scale = Math.min(1, MAX_SIDE / Math.max(bitmap.width, bitmap.height));
  const [width, height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * scale)));
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = contextOf(canvas, { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  bitmap.close();
  const { data: rgba } = context.getImageData(0, 0, width, height);
  const data = new Float32Array(width * height * 3);
  for (let pixel = 0; pixel < width * height; pixel++) {
    for (let c = 0; c < 3; c++) data[3 * pixel + c] = rgba[4 * pixel + c] / 255;
  }
  return { height, width, channels: 3, data };
}
