// A chart with its title above it and, in a sentence, what can be read from it.

import { el } from "../dom/element.js";

/** All of it as a node, and in it the words and the figure to draw in. */
export function titledChart(title, words = "") {
  const says = el("p", { class: "says" }, words);
  const figure = el("figure");
  return { node: el("div", { class: "titled" }, el("h3", {}, title), says, figure), says, figure };
}
