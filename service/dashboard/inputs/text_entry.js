// Entry of text as the row, for networks that read characters or words.

import { el } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { inKnownCase, randomText, readPart, textTensor, unreadParts } from "./text_tensor.js";

// known words that are listed
const MAX_LISTED = 500;

/** An entry of the section "Try it"; `onRow` receives the row, or null for none. */
export class TextEntry {
  title = "Text";

  #textFormat;
  #onRow;
  #area;
  #notes;

  constructor(textFormat, onRow) {
    this.#textFormat = textFormat;
    this.#onRow = onRow;
    this.#notes = el("p", { class: "quiet", id: "text-notes", role: "status" });
    this.#area = el("textarea", {
      rows: "3",
      spellcheck: "false",
      "aria-describedby": "text-notes",
      on: { input: () => this.#sendTyped("text") },
    });
    const useRandomText = () => {
      this.#area.value = randomText(this.#textFormat);
      this.#sendTyped("random text");
    };
    const { reads, known } = textFormat;
    this.node = el(
      "div",
      { class: "writing" },
      el("label", { class: "field" }, `Text, ${readPart(textFormat)}`, this.#area),
      this.#notes,
      el(
        "div",
        { class: "toolbar" },
        el("button", { type: "button", on: { click: useRandomText } }, "Random text"),
        known.length > 0 &&
          el(
            "details",
            {},
            el("summary", {}, reads === "words" ? `Known words: ${number(known.length)}` : "Known characters"),
            el("code", { class: "letters" }, reads === "words" ? someWords(known) : known.join("")),
          ),
      ),
    );
  }

  learnFrom() {}

  /** Show a row that was not made here; ids that came from elsewhere have no text. */
  take({ title, inputs }) {
    const [tensor] = inputs;
    const isText = tensor.datatype === "BYTES";
    this.#area.value = isText ? tensor.data[0] : "";
    this.#area.placeholder = isText ? "" : `ids: ${title}`;
    this.#showNotes(this.#area.value);
    this.#onRow({ title, inputs });
  }

  open(file) {
    file.text().then((text) => {
      this.#area.value = text.trim();
      this.#sendTyped(file.name);
    }, reportError);
  }

  #sendTyped(title) {
    const text = inKnownCase(this.#textFormat, this.#area.value);
    this.#area.placeholder = "";
    this.#showNotes(text);
    this.#onRow(text.trim() ? { title, inputs: [textTensor(this.#textFormat, text)] } : null);
  }

  #showNotes(text) {
    this.#notes.textContent = unreadParts(this.#textFormat, text).join(" ");
  }
}

function someWords(words) {
  return words.slice(0, MAX_LISTED).join(" ") + (words.length > MAX_LISTED ? " …" : "");
}
