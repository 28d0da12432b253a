// A picture out of a file, as the browser reads it.

// no more pixels along a side are looked at
const LONGEST = 1024;

/** The pixels of a file in three colours; what is see-through lies on white. */
export async function readImage(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch (error) {
    const kind = file.type ? `${file.type}, damaged or unknown to it` : "a file of no known kind";
    throw new Error(`expected a picture that the browser can read, or .npy, got ${kind}`, {
      cause: error,
    });
  }
  const scale = Math.min(1, LONGEST / Math.max(bitmap.width, bitmap.height));
  const [width, height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * scale)));
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  bitmap.close();
  const { data: read } = context.getImageData(0, 0, width, height);
  const data = new Float32Array(width * height * 3);
  for (let pixel = 0; pixel < width * height; pixel++) {
    for (let c = 0; c < 3; c++) data[3 * pixel + c] = read[4 * pixel + c] / 255;
  }
  return { height, width, channels: 3, data };
}
