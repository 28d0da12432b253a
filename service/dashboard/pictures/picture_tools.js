// Tools beneath the drawing board: brush, undo, open a file, and how a picture is fitted to the frame.

import { el } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { openFileButton } from "../inputs/file_input.js";
import { PIXEL_RANGES } from "./picture_input.js";

// multiple of the usual line width: name
const BRUSHES = { 0.6: "fine", 1: "medium", 1.6: "broad" };

export class PictureTools {
  #brush;
  #fit;
  #invert;
  #drawOver;

  /**
   * Each callback belongs to one tool; `onFit` is called on any change of how a picture is fitted, and `onRange` with
   * the values of black and white, if they are to be chosen.
   */
  constructor({ hasColours, onClear, onUndo, onFile, onBrush, onFit, onRange }) {
    this.#brush = el(
      "select",
      { on: { change: onBrush } },
      Object.entries(BRUSHES).map(([value, name]) => el("option", { value, selected: value === "1" }, name)),
    );
    this.#fit = checkbox("Fit to the frame", { checked: !hasColours, hidden: hasColours, onFit });
    this.#fit.title = "Crop, scale and centre the picture like those the network was trained on";
    this.#invert = checkbox("Swap light and dark", { hidden: true, onFit });
    this.#drawOver = checkbox("Draw over this picture", { hidden: true });
    this.node = el(
      "div",
      { class: "toolbar" },
      el("button", { type: "button", on: { click: onClear } }, "Clear"),
      el("button", { type: "button", on: { click: onUndo } }, "Undo"),
      el("label", { class: "check" }, "Brush", this.#brush),
      openFileButton("Open a file…", "image/*,.npy", onFile),
      [this.#fit, this.#invert, this.#drawOver],
      onRange && rangeChoice(onRange),
    );
  }

  get brush() {
    return Number(this.#brush.value);
  }

  get fit() {
    return inputOf(this.#fit).checked;
  }

  set fit(on) {
    inputOf(this.#fit).checked = on;
  }

  get invert() {
    return inputOf(this.#invert).checked;
  }

  set invert(on) {
    inputOf(this.#invert).checked = on;
  }

  get drawOver() {
    return inputOf(this.#drawOver).checked;
  }

  /** Show the tools that apply to what is on the board: "image", "row" or "nothing". */
  showFor(source) {
    this.#invert.hidden = source !== "image";
    this.#drawOver.hidden = source === "nothing";
  }
}

/** The values of black and white, which the file does not say. */
function rangeChoice(onRange) {
  const label = ([black, white]) => `${number(black)} to ${number(white)}`;
  const choice = el(
    "select",
    { on: { change: () => onRange(PIXEL_RANGES[choice.selectedIndex]) } },
    PIXEL_RANGES.map((range) => el("option", {}, label(range))),
  );
  choice.title = "The file does not say which numbers black and white are: see --pixels of turnpike export";
  return el("label", { class: "check" }, "Black to white (not in the file)", choice);
}

/**
 * @param {string} text
 * @param {{checked?: boolean, hidden: boolean, onFit?: () => void}} options
 */
function checkbox(text, { checked = false, hidden, onFit }) {
  const input = el("input", { type: "checkbox", checked, on: onFit ? { change: onFit } : {} });
  return el("label", { class: "check", hidden }, input, text);
}

/** @param {HTMLLabelElement} label */
function inputOf(label) {
  const input = label.querySelector("input");
  if (input === null) throw new Error("expected a label with a checkbox, got one without");
  return input;
}
