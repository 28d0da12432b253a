// The rows that a model brings along, as pictures or names to choose from.

import { el, setChildren } from "../dom/element.js";
import { paintPixels } from "../pictures/pixel_canvas.js";
import { tensorToPixels } from "../pictures/picture_input.js";
import { tensorToText } from "../inputs/text_tensor.js";

/** What a sample is called. */
export function sampleTitle({ label }, place) {
  return label ? `sample: ${label}` : `sample ${place + 1}`;
}

/** Show samples to choose from; `chosen` hears a sample and its title. */
export function showSamples(node, samples, { picture, reader }, chosen) {
  if (samples.length === 0) {
    setChildren(node);
    return;
  }
  const buttons = samples.map((sample, place) => {
    const title = sampleTitle(sample, place);
    const button = el("button", { type: "button", class: "sample", "aria-label": title, title });
    setChildren(button, shownAs(sample, place, picture, reader));
    button.addEventListener("click", () => chosen(sample, title));
    return button;
  });
  setChildren(
    node,
    el("h3", {}, "Samples"),
    el("div", { class: "samples", role: "group", "aria-label": "Samples" }, buttons),
  );
}

function shownAs({ label, inputs }, place, picture, reader) {
  if (picture) {
    const canvas = el("canvas", { class: "pixels", "aria-hidden": "true" });
    paintPixels(canvas, tensorToPixels(picture, inputs[0]));
    return [canvas, label && el("span", { "aria-hidden": "true" }, label)];
  }
  if (reader) return tensorToText(reader, inputs[0]);
  return label || `row ${place + 1}`;
}
