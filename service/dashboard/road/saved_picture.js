// Saves the road of a row as a PNG: title, row, lanes, answer, and what the colors mean.

import { contextOf } from "../pictures/pixel_canvas.js";

// pixels of the file per pixel of the page
const SCALE = 2;
const [MARGIN, LINE] = [16, 22];
// what the picture takes over from the style sheets of the page
const PAINT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "display"];
const TEXT = ["font-size", "font-weight", "font-family", "text-anchor", "dominant-baseline"];

/**
 * Draw the picture and let the browser save it.
 * @param {object} content
 * @param {SVGElement} content.road
 * @param {HTMLCanvasElement|null} content.row  the row as a picture
 * @param {string} content.title
 * @param {string} content.answer
 * @param {[string, string][]} content.keys  text and color of each kind of lane
 * @param {string} name  of the file, without its ending
 */
export async function savePicture(content, name) {
  const canvas = await paint(content);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${name}.png`;
  link.click();
  URL.revokeObjectURL(link.href);
}

async function paint({ road, row, title, answer, keys }) {
  const image = await imageOf(road);
  const style = getComputedStyle(document.body);
  const rowSize = row ? image.height / 2 : 0;
  const left = MARGIN + (row ? rowSize + MARGIN : 0);
  const canvas = document.createElement("canvas");
  const context = contextOf(canvas);
  const font = (size, weight = 400) => `${weight} ${size}px ${style.fontFamily}`;
  context.font = font(16, 600);
  const answerWidth = context.measureText(answer).width;
  const titleWidth = context.measureText(title).width;
  const width = Math.max(left + image.width + MARGIN + answerWidth, MARGIN + titleWidth) + MARGIN;
  const height = MARGIN + LINE + image.height + LINE + MARGIN;
  [canvas.width, canvas.height] = [width * SCALE, height * SCALE];
  context.scale(SCALE, SCALE);
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--panel");
  context.fillRect(0, 0, width, height);
  context.fillStyle = style.color;
  context.textBaseline = "middle";
  context.font = font(16, 600);
  context.fillText(title, MARGIN, MARGIN + LINE / 2);
  const top = MARGIN + LINE;
  context.drawImage(image, left, top, image.width, image.height);
  const lane = top + 0.75 * image.height;
  context.fillText(answer, left + image.width + MARGIN, lane);
  if (row) {
    context.imageSmoothingEnabled = false;
    context.drawImage(row, MARGIN, lane - rowSize / 2, rowSize, rowSize);
  }
  context.font = font(13);
  let x = left;
  for (const [text, color] of keys) {
    context.fillStyle = color;
    context.fillRect(x, top + image.height + LINE / 2 - 4, 20, 8);
    context.fillStyle = style.color;
    context.fillText(text, x + 26, top + image.height + LINE / 2);
    x += 26 + context.measureText(text).width + MARGIN;
  }
  return canvas;
}

/** An SVG element as an image, with the colors that style sheets give it. */
async function imageOf(picture) {
  const copy = picture.cloneNode(true);
  const [originals, copies] = [picture, copy].map((node) => [node, ...node.querySelectorAll("*")]);
  originals.forEach((node, n) => {
    const style = getComputedStyle(node);
    for (const property of node.tagName === "text" ? [...PAINT, ...TEXT] : PAINT)
      copies[n].setAttribute(property, style.getPropertyValue(property));
  });
  const image = new Image(Number(picture.getAttribute("width")), Number(picture.getAttribute("height")));
  const text = new XMLSerializer().serializeToString(copy);
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  return image;
}
