// A text as the row, of a network that reads letters.

import { el } from "../dom/element.js";
import { randomText, textToTensor, tensorToText } from "./text_tensor.js";

/** One of the ways to make a row; `put` takes it, null for none. */
export class TextEntry {
  title = "Text";

  #reader;
  #put;
  #area;
  #error;

  constructor(reader, put) {
    this.#reader = reader;
    this.#put = put;
    this.#error = el("p", { class: "failed", id: "text-error", role: "status" });
    this.#area = el("textarea", {
      rows: "3",
      spellcheck: "false",
      "aria-describedby": "text-error",
      on: { input: () => this.#send("text") },
    });
    const random = () => {
      this.#area.value = randomText(this.#reader);
      this.#send("random text");
    };
    this.node = el(
      "div",
      { class: "writing" },
      el("label", { class: "field" }, `Text, ${limits(reader)}`, this.#area),
      this.#error,
      el(
        "div",
        { class: "toolbar" },
        el("button", { type: "button", on: { click: random } }, "Random text"),
        el(
          "details",
          {},
          el("summary", {}, "Letters it knows"),
          el("code", { class: "letters" }, reader.alphabet),
        ),
      ),
    );
  }

  learn() {}

  take({ title, inputs }) {
    this.#area.value = tensorToText(this.#reader, inputs[0]);
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
      this.#say("");
      if (this.#area.value.trim()) row = { title, inputs: [textToTensor(this.#reader, this.#area.value)] };
    } catch (error) {
      this.#say(error.message);
    }
    this.#put(row);
  }

  #say(text) {
    this.#error.textContent = text;
    this.#area.setAttribute("aria-invalid", String(text !== ""));
  }
}

function limits({ words, letters }) {
  const most = (count, what) => (count === -1 ? `any number of ${what}` : `at most ${count} ${what}`);
  if (words === null) return most(letters, "letters");
  return `${most(words, "words")} of ${most(letters, "letters")}`;
}
