// Files that a person opens or drops, and of those with many rows the choice of one.

import { el } from "../dom/element.js";
import { number } from "../dom/number_format.js";

/** A button that opens a file. */
export function openFileButton(text, accept, opened) {
  const input = el("input", { type: "file", accept, hidden: true });
  input.addEventListener("change", () => {
    const [file] = input.files;
    // the same file may be opened again
    input.value = "";
    if (file) opened(file);
  });
  return [el("button", { type: "button", on: { click: () => input.click() } }, text), input];
}

/** Hear of files that are dropped on an element. */
export function acceptDroppedFiles(node, opened) {
  const over = (on) => (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    node.classList.toggle("dropping", on);
  };
  node.addEventListener("dragover", over(true));
  node.addEventListener("dragleave", over(false));
  node.addEventListener("drop", (event) => {
    const [file] = event.dataTransfer.files;
    over(false)(event);
    if (file) opened(file);
  });
}

/** A field for the row of a file that has many, from 1 on; nothing for a file of one. */
export function rowPicker(count, chosen) {
  if (count < 2) return null;
  const input = el("input", { type: "number", min: "1", max: count, value: "1" });
  input.addEventListener("change", () => {
    const row = Math.min(count, Math.max(1, Math.round(Number(input.value)) || 1));
    input.value = row;
    chosen(row - 1);
  });
  return el("label", { class: "check" }, "Row", input, `of ${number(count)}`);
}
