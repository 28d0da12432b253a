// File input: a button that opens a file, files dropped on an element, and the choice of a row in a file.

import { el } from "../dom/element.js";
import { number } from "../dom/number_format.js";

/**
 * A button that opens a file.
 *
 * @param {string} text
 * @param {string} accept
 * @param {(file: File) => void} onFile
 */
export function openFileButton(text, accept, onFile) {
  const input = el("input", { type: "file", accept, hidden: true });
  input.addEventListener("change", () => {
    const [file] = input.files ?? [];
    // allow the same file to be opened again
    input.value = "";
    if (file) onFile(file);
  });
  return [el("button", { type: "button", on: { click: () => input.click() } }, text), input];
}

/**
 * Accept files dropped on an element.
 *
 * @param {HTMLElement} node
 * @param {(file: File) => void} onFile
 */
export function acceptDroppedFiles(node, onFile) {
  const highlight = (on) => (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    node.classList.toggle("dropping", on);
  };
  node.addEventListener("dragover", highlight(true));
  node.addEventListener("dragleave", highlight(false));
  node.addEventListener("drop", (event) => {
    const [file] = event.dataTransfer?.files ?? [];
    highlight(false)(event);
    if (file) onFile(file);
  });
}

/** A field for the number of a row in a file, from 1; null for a file with one row. */
export function rowPicker(count, onChoose) {
  if (count < 2) return null;
  const input = el("input", { type: "number", min: "1", max: count, value: "1" });
  input.addEventListener("change", () => {
    const row = Math.min(count, Math.max(1, Math.round(Number(input.value)) || 1));
    input.value = String(row);
    onChoose(row - 1);
  });
  return el("label", { class: "check" }, "Row", input, `of ${number(count)}`);
}
