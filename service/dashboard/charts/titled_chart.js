// A chart with a title and a caption above it.

import { el } from "../dom/element.js";

/** The whole as `node`, and in it the caption and the figure to draw in. */
export function titledChart(title, captionText = "") {
  const caption = el("p", { class: "caption" }, captionText);
  const figure = el("figure");
  return { node: el("div", { class: "titled" }, el("h3", {}, title), caption, figure), caption, figure };
}
