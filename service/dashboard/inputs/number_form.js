// Form to enter a row as numbers: one field per input, created from the model's metadata.

import { el, setChildren } from "../dom/element.js";
import { openFileButton, rowPicker } from "./file_input.js";
import { rowsInNpy } from "./npy_rows.js";
import { randomRow } from "./random_row.js";
import { dimsText, parseTensor, rowDims, tensorFromValues } from "./tensor_parser.js";

// longer rows are kept but not written into the field
const MAX_WRITTEN_VALUES = 20_000;
// initial length of an axis of any length
const DEFAULT_LENGTH = 8;

/** An entry of the section "Try it"; `onRow` receives the row. */
export class NumberForm {
  title = "Numbers";

  #fields;
  #onRow;

  constructor({ inputs, certificate }, onRow) {
    this.#onRow = onRow;
    this.#fields = inputs.map((input) => new Field(input, rangeOf(certificate, input), () => this.#submit()));
    this.node = el(
      "form",
      {
        class: "numbers",
        novalidate: true,
        on: {
          submit: (event) => {
            event.preventDefault();
            this.#submit();
          },
        },
      },
      this.#fields.map((field) => field.node),
      el(
        "div",
        { class: "toolbar" },
        el("button", { type: "submit", class: "main" }, "Predict"),
        el("button", { type: "button", on: { click: () => this.start() } }, "Random row"),
      ),
    );
  }

  learnFrom() {}

  /** Begin with a random row. */
  start() {
    for (const field of this.#fields) field.random();
    this.#submit("random row");
  }

  take({ title, inputs }) {
    // the ids of a text are only known to the service
    if (inputs.some(({ datatype }) => datatype === "BYTES")) return;
    for (const field of this.#fields) {
      const tensor = inputs.find((input) => input.name === field.name);
      if (tensor) field.show(tensor, title);
    }
    this.#submit(title);
  }

  open(file) {
    this.#fields[0].open(file);
  }

  #submit(title) {
    const tensors = this.#fields.map((field) => field.read());
    if (tensors.every(Boolean)) this.#onRow({ title: title ?? this.#title(), inputs: tensors });
    else this.#fields.find((field) => field.invalid)?.focus();
  }

  #title() {
    return this.#fields.find((field) => field.title)?.title ?? "typed row";
  }
}

/** The fields for one input. */
class Field {
  title = null;
  invalid = false;

  #input;
  #area;
  #error;
  #low;
  #high;
  #lengths;
  #chooser;
  #onSubmit;
  // a tensor that is too long to be written into the field
  #longTensor = null;

  constructor(input, { low, high }, onSubmit) {
    this.#input = input;
    this.#onSubmit = onSubmit;
    this.name = input.name;
    const id = `field-${crypto.randomUUID?.() ?? Math.random().toString(36).slice(2)}`;
    this.#error = el("p", { class: "failed", id: `${id}-error`, role: "alert" });
    this.#area = el("textarea", {
      id,
      rows: "4",
      spellcheck: "false",
      autocomplete: "off",
      "aria-describedby": `${id}-error`,
      on: { input: () => this.#edited(), keydown: (event) => this.#key(event) },
    });
    this.#low = numberField("from", low);
    this.#high = numberField("to", high);
    const dims = rowDims(input);
    this.#lengths = dims.flatMap((dim, axis) =>
      dim === -1 ? [numberField(`length of axis ${axis + 1}`, DEFAULT_LENGTH, 1)] : [],
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
    const options = { low: valueOf(this.#low), high: valueOf(this.#high), lengths };
    const { dims, values } = randomRow(this.#input, options);
    setChildren(this.#chooser);
    this.show(tensorFromValues(this.#input, values, dims), "random row");
  }

  /** The tensor, or null with an error message if the text is not valid. */
  read() {
    try {
      const tensor = this.#longTensor ?? parseTensor(this.#input, this.#area.value);
      this.#showError("");
      return tensor;
    } catch (error) {
      this.#showError(error.message);
      return null;
    }
  }

  show(tensor, title) {
    this.title = title;
    this.#longTensor = tensor.data.length > MAX_WRITTEN_VALUES ? tensor : null;
    this.#area.value = this.#longTensor ? "" : formatValues(tensor.data, shapeOfRow(tensor, this.#input));
    this.#area.placeholder = this.#longTensor ? `${tensor.data.length} values: ${title}` : "";
    this.#showError("");
  }

  async open(file) {
    setChildren(this.#chooser);
    try {
      const rows = rowsInNpy(await file.arrayBuffer(), this.#input);
      const pick = (index) => this.#pick(rows, index, file.name);
      setChildren(this.#chooser, rowPicker(rows.count, pick));
      pick(0);
    } catch (error) {
      this.#showError(`${file.name}: ${error.message}`);
    }
  }

  #pick(rows, index, name) {
    const { values, shape } = rows.row(index);
    const title = rows.count > 1 ? `${name}, row ${index + 1}` : name;
    this.show(tensorFromValues(this.#input, values, shape), title);
    this.#onSubmit();
  }

  #edited() {
    this.title = null;
    this.#longTensor = null;
    this.#area.placeholder = "";
  }

  #key(event) {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    this.#onSubmit();
  }

  #showError(text) {
    this.invalid = text !== "";
    this.#error.textContent = text;
    this.#area.setAttribute("aria-invalid", String(this.invalid));
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

function shapeOfRow({ shape }, input) {
  return input.shape[0] === -1 ? shape.slice(1) : shape;
}

/** Values as nested JSON, with a line per list of numbers. */
function formatValues(data, shape) {
  if (shape.length < 2) return Array.from(data, String).join(", ");
  const rowLength = data.length / shape[0];
  const parts = Array.from({ length: shape[0] }, (_, i) =>
    Array.from(data).slice(i * rowLength, (i + 1) * rowLength),
  );
  const rowTexts = parts.map((part) =>
    shape.length === 2 ? `[${part.join(", ")}]` : formatValues(part, shape.slice(1)),
  );
  return `[${rowTexts.join(",\n ")}]`;
}
