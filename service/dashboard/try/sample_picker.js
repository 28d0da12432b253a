// The rows that a model brings along, as pictures or names to choose from.

import { el, fill } from "../dom/element.js";
import { paint } from "../pictures/pixel_canvas.js";
import { pixelsOf } from "../pictures/picture_input.js";
import { textOf } from "../inputs/text_tensor.js";

/** What a sample is called. */
export function titleOf({ label }, place) {
  return label ? `sample: ${label}` : `sample ${place + 1}`;
}

/** Show samples to choose from; `chosen` hears a sample and its title. */
export function showSamples(node, samples, { picture, reader }, chosen) {
  if (samples.length === 0) {
    fill(node);
    return;
  }
  const buttons = samples.map((sample, place) => {
    const title = titleOf(sample, place);
    const button = el("button", { type: "button", class: "sample", "aria-label": title, title });
    fill(button, shownAs(sample, place, picture, reader));
    button.addEventListener("click", () => chosen(sample, title));
    return button;
  });
  fill(
    node,
    el("h3", {}, "Samples"),
    el("div", { class: "samples", role: "group", "aria-label": "Samples" }, buttons),
  );
}

function shownAs({ label, inputs }, place, picture, reader) {
  if (picture) {
    const canvas = el("canvas", { class: "pixels", "aria-hidden": "true" });
    paint(canvas, pixelsOf(picture, inputs[0]));
    return [canvas, label && el("span", { "aria-hidden": "true" }, label)];
  }
  if (reader) return textOf(reader, inputs[0]);
  return label || `row ${place + 1}`;
}
