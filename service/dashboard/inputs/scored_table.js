// The rows of a CSV file with their predictions: the first ones to choose from, all of them to download.

import { el, setChildren } from "../dom/element.js";
import { number } from "../dom/number_format.js";
import { tableColumn } from "../dom/table_column.js";
import { predictedNumber, probabilityText } from "../row/predicted_class.js";
import { post } from "../state/api.js";
import { csvText } from "./csv_text.js";

const SHOWN_ROWS = 8;
const MAX_ROWS_PER_REQUEST = 1000;

export class ScoredTable {
  node = el("div", {});

  #path;
  #certificate;
  #fileName;
  #table;
  #onChoose;

  /** `onChoose` receives a row of the table and its number from 1. */
  constructor(model, fileName, table, onChoose) {
    this.#path = `${model.path.replace("v2/", "v1/")}:predict`;
    this.#certificate = model.certificate;
    this.#fileName = fileName;
    this.#table = table;
    this.#onChoose = onChoose;
  }

  /** Request the predictions of all rows, and show them; throws an Error if there are none. */
  async score(signal) {
    const { header, rows } = this.#table;
    const status = el("p", { class: "quiet", role: "status" });
    setChildren(this.node, status);
    const predictions = [];
    for (let start = 0; start < rows.length; start += MAX_ROWS_PER_REQUEST) {
      status.textContent = `Scoring row ${number(start + 1)} of ${number(rows.length)} …`;
      const instances = rows.slice(start, start + MAX_ROWS_PER_REQUEST).map(({ instance }) => instance);
      predictions.push(...(await post(this.#path, { instances }, signal)).predictions);
    }
    const columns = predictions.map((prediction) => predictionColumns(prediction, this.#certificate));
    const names = Object.keys(columns[0]).map((name) => (header.includes(name) ? `predicted ${name}` : name));
    const scored = [
      [...header, ...names],
      ...rows.map(({ cells }, index) => [...cells, ...Object.values(columns[index])]),
    ];
    status.textContent = `${number(rows.length)} ${rows.length === 1 ? "row" : "rows"} scored`;
    setChildren(
      this.node,
      el("div", { class: "toolbar" }, status, downloadLink(scoredName(this.#fileName), csvText(scored), signal)),
      this.#preview(names, columns),
    );
    this.#onChoose(rows[0], 1);
  }

  /** The first rows, each with a button that chooses it. */
  #preview(names, columns) {
    const { header, rows } = this.#table;
    const buttons = [];
    const choose = (index) => {
      buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === index)));
      this.#onChoose(rows[index], index + 1);
    };
    const shown = rows.slice(0, SHOWN_ROWS);
    // label and probability, or a number and its interval
    const count = this.#certificate.interval ? 3 : 2;
    const texts = shown.map(({ cells }, index) => [
      ...Object.entries(columns[index]).slice(0, count).map((column) => predictionText(column, this.#certificate)),
      ...cells.map((cell) => cell.trim()),
    ]);
    const tableColumns = [...names.slice(0, count), ...header].map((name, place) =>
      tableColumn(
        name,
        texts.map((row) => row[place]),
      ),
    );
    const lines = shown.map((_, index) => {
      const pressed = { type: "button", "aria-pressed": String(index === 0) };
      const button = el("button", pressed, `Row ${index + 1}`);
      button.addEventListener("click", () => choose(index));
      buttons.push(button);
      return el(
        "tr",
        {},
        el("th", { scope: "row" }, button),
        tableColumns.map(({ cells }) => cells[index]),
      );
    });
    const head = el(
      "tr",
      {},
      el("th", { scope: "col" }, "Row"),
      tableColumns.map((column) => column.head),
    );
    const caption =
      rows.length > SHOWN_ROWS ? `The first ${SHOWN_ROWS} of ${number(rows.length)} rows` : "All rows";
    return el(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": "Scored rows" },
      el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, lines)),
    );
  }
}

/** The columns of a prediction: label and probabilities, a predicted number, or the values of the outputs. */
function predictionColumns(prediction, certificate) {
  if (typeof prediction?.label === "string") {
    const { label, probability, probabilities } = prediction;
    const shares = Object.entries(probabilities).map(([name, share]) => [`p_${name}`, share]);
    return { label, probability, ...Object.fromEntries(shares) };
  }
  const { interval } = certificate;
  const { value, low, high } = prediction ?? {};
  const values = [interval && typeof value === "number" ? value : prediction].flat(Infinity);
  const predicted = predictedNumber(certificate, [{ data: values }]);
  if (predicted) {
    const name = predicted.name ? `predicted ${predicted.name}` : "predicted";
    return { [name]: predicted.value, ...(interval ? { low, high } : {}) };
  }
  const name = (index) => (values.length > 1 ? `output_${index}` : "output");
  // the values of several outputs are an object
  const text = (value) => (typeof value === "object" ? JSON.stringify(value) : value);
  return Object.fromEntries(values.map((value, index) => [name(index), text(value)]));
}

function predictionText([name, value], certificate) {
  const predicted = predictedNumber(certificate, [{ data: [value] }]);
  if (predicted) return predicted.text;
  if (name === "probability") return probabilityText(value);
  return typeof value === "number" ? number(value) : value;
}

function scoredName(fileName) {
  return `${fileName.replace(/\.csv$/i, "")}-scored.csv`;
}

/** A link to a text, which is kept until the signal comes. */
function downloadLink(name, text, signal) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  signal.addEventListener("abort", () => URL.revokeObjectURL(url));
  return el("a", { class: "button", href: url, download: name }, "Download scored rows");
}
