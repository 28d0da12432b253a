// The samples stored with a model, as pictures or labels to choose from.

import { el, setChildren } from "../dom/element.js";
import { tensorToPixels } from "../pictures/picture_input.js";
import { paintPixels } from "../pictures/pixel_canvas.js";
import { current } from "../state/store.js";

/**
 * The title of a sample, unlike those of the others.
 *
 * @param {import("../state/api_types.js").Sample[]} samples
 * @param {number} index
 * @param {string} target  what is predicted, if that has a name
 */
export function sampleTitle(samples, index, target) {
  const { label } = samples[index];
  if (!label) return `sample ${index + 1}`;
  // "sample: 0" would read like an answer
  if (target) return `sample ${index + 1}, ${target} ${label}`;
  const isAlone = samples.every((other, place) => place === index || other.label !== label);
  return isAlone ? `sample: ${label}` : `sample ${index + 1}: ${label}`;
}

/** Show the samples; `onChoose` receives the chosen sample and its title. */
export function showSamples(node, samples, { pictureFormat, textFormat, target }, onChoose) {
  if (samples.length === 0) {
    setChildren(node);
    return;
  }
  const buttons = samples.map((sample, index) => {
    const title = sampleTitle(samples, index, target);
    const button = el("button", {
      type: "button",
      class: "sample",
      "aria-label": title,
      "aria-pressed": String(current("row")?.title === title),
      title,
    });
    setChildren(button, sampleContent(sample, index, pictureFormat, textFormat));
    button.addEventListener("click", () => onChoose(sample, title));
    return button;
  });
  setChildren(
    node,
    el("h3", {}, target ? `Samples, by ${target}` : "Samples"),
    el("div", { class: "samples", role: "group", "aria-label": "Samples" }, buttons),
  );
}

/** Mark the sample that is the current row, wherever it was chosen. */
export function markSample(node, row) {
  for (const button of node.querySelectorAll(".sample"))
    button.setAttribute("aria-pressed", String(row?.title === button.title));
}

function sampleContent({ label, text, inputs }, index, pictureFormat, textFormat) {
  if (pictureFormat) {
    const canvas = el("canvas", { class: "pixels", "aria-hidden": "true" });
    paintPixels(canvas, tensorToPixels(pictureFormat, inputs[0]));
    return [canvas, label && el("span", { "aria-hidden": "true" }, label)];
  }
  if (textFormat && text) return text;
  return label || `row ${index + 1}`;
}
