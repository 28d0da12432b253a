// Form for a row of a table: a control for the cell of each feature, and a table from a CSV file.

import { el, setChildren } from "../dom/element.js";
import { cellWarnings } from "./cell_warnings.js";
import { featureField } from "./feature_field.js";
import { meanFeatures, randomFeatures, readFeatureTable } from "./feature_rows.js";
import { acceptDroppedFiles, openFileButton } from "./file_input.js";
import { ScoredTable } from "./scored_table.js";
import { tensorFromValues } from "./tensor_parser.js";

/** An entry of the section "Try it"; `onRow` receives the row. */
export class FeatureForm {
  title = "Features";
  // the scored rows of a file, which need more width than the form
  scored = el("div", { class: "scored" });

  #model;
  #fields;
  #onRow;
  #error = el("p", { class: "failed", role: "alert" });
  #warning = el("p", { class: "note watch", role: "status", hidden: true });
  /** @type {AbortController|null} */
  #scoring = null;

  constructor(model, onRow) {
    this.#model = model;
    this.#onRow = onRow;
    const { features } = model.certificate;
    const changed = () => this.#submit("typed row");
    this.#fields = features.map((feature) => featureField(feature, this.#isWhole, changed));
    const random = () => this.#fill(randomFeatures(features), "random row");
    this.node = el(
      "form",
      { class: "features", novalidate: true, on: { submit: (event) => event.preventDefault() } },
      el(
        "div",
        { class: features.some(({ blanks }) => blanks) ? "feature-list with-blanks" : "feature-list", role: "group", "aria-label": "Features", tabindex: "0" },
        this.#fields.map((field) => field.node),
      ),
      this.#error,
      this.#warning,
      el(
        "div",
        { class: "toolbar" },
        el("button", { type: "button", on: { click: random } }, "Random row"),
        // there is no mean of words
        features.every(({ kind }) => kind === "number") &&
          el("button", { type: "button", on: { click: () => this.start() } }, "Mean row"),
        openFileButton("Open .csv…", ".csv,text/csv", (file) => this.open(file)),
      ),
    );
    acceptDroppedFiles(this.scored, (file) => this.open(file));
  }

  /** Begin with the mean of each feature. */
  start() {
    this.#fill(meanFeatures(this.#model.certificate.features), "mean row");
  }

  learnFrom() {}

  take({ title, inputs }) {
    this.#fill(Array.from(inputs[0].data, Number), title);
  }

  /** Score the rows of a CSV file. */
  async open(file) {
    this.#scoring?.abort();
    const scoring = (this.#scoring = new AbortController());
    setChildren(this.scored);
    this.#error.textContent = "";
    try {
      const read = readFeatureTable(await file.text(), this.#model.certificate.features);
      const choose = ({ values }, number) => this.#fill(values, `${file.name}, row ${number}`);
      const table = new ScoredTable(this.#model, file.name, read, choose);
      setChildren(this.scored, table.node);
      await table.score(scoring.signal);
    } catch (error) {
      if (scoring.signal.aborted) return;
      setChildren(this.scored);
      this.#error.textContent = `${file.name}: ${error.message}`;
    }
  }

  get #isWhole() {
    return !this.#model.inputs[0].datatype.startsWith("FP");
  }

  #fill(values, title) {
    this.#fields.forEach((field, index) =>
      field.show(this.#isWhole ? Math.round(values[index]) : values[index]),
    );
    this.#submit(title);
  }

  #submit(title) {
    const values = this.#fields.map((field) => field.read());
    const invalid = this.#fields.find((_, index) => values[index] === null);
    try {
      if (invalid) throw new Error(`${invalid.name}: expected ${invalid.expected}`);
      const [input] = this.#model.inputs;
      // blanks are NaN, which no other row may hold
      const known = values.map((value) => (Number.isNaN(value) ? 0 : value));
      const tensor = tensorFromValues(input, known, [values.length]);
      this.#error.textContent = "";
      this.#warn(values);
      this.#onRow({ title, inputs: [{ ...tensor, data: values }] });
    } catch (error) {
      this.#error.textContent = error.message;
    }
  }

  /** Say which cells the training did not have: the answer is a guess then. */
  #warn(values) {
    const warnings = cellWarnings(this.#model.certificate.features, values);
    this.#warning.hidden = warnings.length === 0;
    this.#warning.textContent = warnings.length ? `Unlike the training: ${warnings.join("; ")}.` : "";
  }
}
