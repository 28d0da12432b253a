// The row at the start of the road: a small picture if the model takes pictures.

import { el, setChildren } from "../dom/element.js";
import { pictureFormatOf, tensorToPixels } from "../pictures/picture_input.js";
import { paintPixels } from "../pictures/pixel_canvas.js";

/** Create it in `node`. Returns `setModel(model)`, `showRow(row)`, and `canvas()`, null without a picture. */
export function rowThumbnail(node) {
  const canvas = el("canvas", { class: "pixels", "aria-hidden": "true" });
  let format = null;

  function setModel(model) {
    const found = model && pictureFormatOf(model);
    format = found?.likely ? found : null;
    setChildren(node, format && canvas, el("span", {}, "row"));
    canvas.hidden = true;
  }

  function showRow(row) {
    canvas.hidden = !row || !format;
    if (!canvas.hidden) paintPixels(canvas, tensorToPixels(format, row.inputs[0]));
  }

  return { setModel, showRow, canvas: () => (canvas.hidden ? null : canvas) };
}
