// A row as numbers: a field for each input, made from the model's metadata.

import { el, setChildren } from "../dom/element.js";
import { parseTensor, rowDims, dimsText, tensorFromValues } from "./tensor_parser.js";
import { openFileButton, rowPicker } from "./file_input.js";
import { rowsInNpy } from "./npy_rows.js";
import { randomRow } from "./random_row.js";

// longer rows are kept as they are, and not written out
const MOST_WRITTEN = 20_000;
const USUAL_LENGTH = 8;

/** One of the ways to make a row; `put` takes it. */
export class NumberForm {
  title = "Numbers";

  #fields;
  #put;

  constructor({ inputs, certificate }, put) {
    this.#put = put;
    this.#fields = inputs.map((input) => new Field(input, rangeOf(certificate, input), () => this.#ask()));
    const random = () => {
      for (const field of this.#fields) field.random();
      this.#ask("random row");
    };
    this.node = el(
      "form",
      {
        class: "numbers",
        novalidate: true,
        on: {
          submit: (event) => {
            event.preventDefault();
            this.#ask();
          },
        },
      },
      this.#fields.map((field) => field.node),
      el(
        "div",
        { class: "toolbar" },
        el("button", { type: "submit", class: "main" }, "Predict"),
        el("button", { type: "button", on: { click: random } }, "Random row"),
      ),
    );
  }

  learn() {}

  take({ title, inputs }) {
    for (const field of this.#fields) {
      const tensor = inputs.find((one) => one.name === field.name);
      if (tensor) field.show(tensor, title);
    }
    this.#ask(title);
  }

  open(file) {
    this.#fields[0].open(file);
  }

  #ask(title) {
    const tensors = this.#fields.map((field) => field.read());
    if (tensors.every(Boolean)) this.#put({ title: title ?? this.#titled(), inputs: tensors });
    else this.#fields.find((field) => field.wrong)?.focus();
  }

  #titled() {
    return this.#fields.find((field) => field.title)?.title ?? "pasted row";
  }
}

/** What one writes for one input. */
class Field {
  title = null;
  wrong = false;

  #input;
  #area;
  #error;
  #low;
  #high;
  #lengths;
  #chooser;
  #asked;
  // what is not written out because it is too long
  #kept = null;

  constructor(input, { low, high }, asked) {
    this.#input = input;
    this.#asked = asked;
    this.name = input.name;
    const id = `field-${crypto.randomUUID?.() ?? Math.random().toString(36).slice(2)}`;
    this.#error = el("p", { class: "failed", id: `${id}-error`, role: "alert" });
    this.#area = el("textarea", {
      id,
      rows: "4",
      spellcheck: "false",
      autocomplete: "off",
      "aria-describedby": `${id}-error`,
      on: { input: () => this.#written(), keydown: (event) => this.#key(event) },
    });
    this.#low = numberField("from", low);
    this.#high = numberField("to", high);
    const dims = rowDims(input);
    this.#lengths = dims.flatMap((dim, axis) =>
      dim === -1 ? [numberField(`length of axis ${axis + 1}`, USUAL_LENGTH, 1)] : [],
    );
    this.#chooser = el("div", { class: "chooser" });
    this.node = el(
      "fieldset",
      {},
      el("legend", {}, el("code", {}, input.name), ` ${input.datatype} ${dimsText(dims)}`),
      el("label", { class: "visually-hidden", for: id }, `Values of ${input.name}`),
      this.#area,
      this.#error,
      el(
        "div",
        { class: "toolbar ranges" },
        input.datatype === "BOOL" ? null : ["Random values", this.#low, this.#high],
        this.#lengths,
        openFileButton("Open .npy…", ".npy", (file) => this.open(file)),
      ),
      this.#chooser,
    );
  }

  focus() {
    this.#area.focus();
  }

  random() {
    const lengths = this.#lengths.map((label) => Math.max(1, Math.round(valueOf(label)) || 1));
    const wish = { low: valueOf(this.#low), high: valueOf(this.#high), lengths };
    const { dims, values } = randomRow(this.#input, wish);
    setChildren(this.#chooser);
    this.show(tensorFromValues(this.#input, values, dims), "random row");
  }

  /** The tensor, null where what is written is none; then the error stands beneath. */
  read() {
    try {
      const tensor = this.#kept ?? parseTensor(this.#input, this.#area.value);
      this.#say("");
      return tensor;
    } catch (error) {
      this.#say(error.message);
      return null;
    }
  }

  show(tensor, title) {
    this.title = title;
    this.#kept = tensor.data.length > MOST_WRITTEN ? tensor : null;
    this.#area.value = this.#kept ? "" : written(tensor.data, rowShape(tensor, this.#input));
    this.#area.placeholder = this.#kept ? `${tensor.data.length} values: ${title}` : "";
    this.#say("");
  }

  async open(file) {
    setChildren(this.#chooser);
    try {
      const rows = rowsInNpy(await file.arrayBuffer(), this.#input);
      const pick = (index) => this.#pick(rows, index, file.name);
      setChildren(this.#chooser, rowPicker(rows.count, pick));
      pick(0);
    } catch (error) {
      this.#say(`${file.name}: ${error.message}`);
    }
  }

  #pick(rows, index, name) {
    const { values, shape } = rows.row(index);
    const title = rows.count > 1 ? `${name}, row ${index + 1}` : name;
    this.show(tensorFromValues(this.#input, values, shape), title);
    this.#asked();
  }

  #written() {
    this.title = null;
    this.#kept = null;
    this.#area.placeholder = "";
  }

  #key(event) {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    this.#asked();
  }

  #say(text) {
    this.wrong = text !== "";
    this.#error.textContent = text;
    this.#area.setAttribute("aria-invalid", String(this.wrong));
  }
}

function rangeOf(certificate, { name }) {
  return certificate.ranges[name] ?? { low: 0, high: 1 };
}

function numberField(text, value, min) {
  return el("label", { class: "check" }, text, el("input", { type: "number", step: "any", value, min }));
}

function valueOf(label) {
  return Number(label.querySelector("input").value);
}

function rowShape({ shape }, input) {
  return input.shape[0] === -1 ? shape.slice(1) : shape;
}

/** Values as JSON that is nested as they are, a line for each list of numbers. */
function written(data, shape) {
  if (shape.length < 2) return Array.from(data, String).join(", ");
  const step = data.length / shape[0];
  const parts = Array.from({ length: shape[0] }, (_, i) => Array.from(data).slice(i * step, (i + 1) * step));
  const inner = parts.map((part) =>
    shape.length === 2 ? `[${part.join(", ")}]` : written(part, shape.slice(1)),
  );
  return `[${inner.join(",\n ")}]`;
}
