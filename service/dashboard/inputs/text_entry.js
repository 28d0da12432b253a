// Entry of text as the row, for networks that read characters.

import { el } from "../dom/element.js";
import { randomText, tensorToText, textToTensor } from "./text_tensor.js";

/** An entry of the section "Try it"; `onRow` receives the row, or null for none. */
export class TextEntry {
  title = "Text";

  #textFormat;
  #onRow;
  #area;
  #error;

  constructor(textFormat, onRow) {
    this.#textFormat = textFormat;
    this.#onRow = onRow;
    this.#error = el("p", { class: "failed", id: "text-error", role: "status" });
    this.#area = el("textarea", {
      rows: "3",
      spellcheck: "false",
      "aria-describedby": "text-error",
      on: { input: () => this.#send("text") },
    });
    const useRandomText = () => {
      this.#area.value = randomText(this.#textFormat);
      this.#send("random text");
    };
    this.node = el(
      "div",
      { class: "writing" },
      el("label", { class: "field" }, `Text, ${lengthLimits(textFormat)}`, this.#area),
      this.#error,
      el(
        "div",
        { class: "toolbar" },
        el("button", { type: "button", on: { click: useRandomText } }, "Random text"),
        el(
          "details",
          {},
          el("summary", {}, "Known characters"),
          el("code", { class: "letters" }, textFormat.alphabet),
        ),
      ),
    );
  }

  learnFrom() {}

  take({ title, inputs }) {
    this.#area.value = tensorToText(this.#textFormat, inputs[0]);
    this.#send(title);
  }

  open(file) {
    file.text().then((text) => {
      this.#area.value = text.trim();
      this.#send(file.name);
    }, reportError);
  }

  #send(title) {
    let row = null;
    try {
      this.#showError("");
      if (this.#area.value.trim())
        row = { title, inputs: [textToTensor(this.#textFormat, this.#area.value)] };
    } catch (error) {
      this.#showError(error.message);
    }
    this.#onRow(row);
  }

  #showError(text) {
    this.#error.textContent = text;
    this.#area.setAttribute("aria-invalid", String(text !== ""));
  }
}

function lengthLimits({ words, letters }) {
  const limitText = (count, what) => (count === -1 ? `any number of ${what}` : `at most ${count} ${what}`);
  if (words === null) return limitText(letters, "characters");
  return `${limitText(words, "words")} of ${limitText(letters, "characters")}`;
}
