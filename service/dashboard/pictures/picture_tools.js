// What stands beneath the drawing board: brush, undo, a file, and how a picture is made to fit.

import { el } from "../dom/element.js";
import { openFileButton } from "../inputs/file_input.js";

// how much thicker than usual a line becomes
const BRUSHES = { 0.6: "fine", 1: "usual", 1.6: "broad" };

export class PictureTools {
  #brush;
  #fit;
  #invert;
  #over;

  /** Each of the listeners hears of one tool; `turned` of whatever changes how a picture is made to fit. */
  constructor({ colours, cleared, undone, opened, brushed, turned }) {
    this.#brush = el(
      "select",
      { on: { change: brushed } },
      Object.entries(BRUSHES).map(([value, name]) => el("option", { value, selected: value === "1" }, name)),
    );
    this.#fit = check("Fit to the frame", { checked: !colours, hidden: colours, turned });
    this.#fit.title = "Cut out, scaled and centred as the pictures that the network was trained on";
    this.#invert = check("Swap light and dark", { hidden: true, turned });
    this.#over = check("Draw over it", { hidden: true });
    this.node = el(
      "div",
      { class: "toolbar" },
      el("button", { type: "button", on: { click: cleared } }, "Clear"),
      el("button", { type: "button", on: { click: undone } }, "Undo"),
      el("label", { class: "check" }, "Brush", this.#brush),
      openFileButton("Open a file…", "image/*,.npy", opened),
      [this.#fit, this.#invert, this.#over],
    );
  }

  get brush() {
    return Number(this.#brush.value);
  }

  get fit() {
    return boxOf(this.#fit).checked;
  }

  set fit(on) {
    boxOf(this.#fit).checked = on;
  }

  get invert() {
    return boxOf(this.#invert).checked;
  }

  set invert(on) {
    boxOf(this.#invert).checked = on;
  }

  get over() {
    return boxOf(this.#over).checked;
  }

  /** Show the tools that are for what lies on the board: "image", "row" or "nothing". */
  suit(what) {
    this.#invert.hidden = what !== "image";
    this.#over.hidden = what === "nothing";
  }
}

function check(text, { checked = false, hidden, turned }) {
  const input = el("input", { type: "checkbox", checked, on: turned ? { change: turned } : {} });
  return el("label", { class: "check", hidden }, input, text);
}

function boxOf(label) {
  return label.querySelector("input");
}
