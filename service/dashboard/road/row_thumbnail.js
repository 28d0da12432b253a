// The row at the start of the road: a small picture if the model takes pictures.

import { el, setChildren } from "../dom/element.js";
import { pictureFormatOf, tensorToPixels } from "../pictures/picture_input.js";
import { paintPixels } from "../pictures/pixel_canvas.js";

/** What the numbers below the road are; those of digits could be taken for classes. */
const axisName = () => el("span", { class: "axis-name", "aria-hidden": "true" }, "layer");

/** Create it in `node`. Returns `setModel(model)`, `showRow(row)`, and `canvas()`, null without a picture. */
export function rowThumbnail(node) {
  const canvas = el("canvas", { class: "pixels", "aria-hidden": "true" });
  let model = null;

  function setModel(chosen) {
    model = chosen;
    setChildren(node, pictureFormat() && canvas, el("span", {}, "row"), axisName());
    canvas.hidden = true;
  }

  /** The user may have chosen other values of black and white since the last row. */
  function pictureFormat() {
    const format = model && pictureFormatOf(model);
    return format?.likely ? format : null;
  }

  function showRow(row) {
    const format = pictureFormat();
    canvas.hidden = !row || !format;
    if (!canvas.hidden) paintPixels(canvas, tensorToPixels(format, row.inputs[0]));
  }

  return { setModel, showRow, canvas: () => (canvas.hidden ? null : canvas) };
}
