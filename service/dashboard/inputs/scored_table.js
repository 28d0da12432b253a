// The rows of a CSV file with their predictions: the first ones to choose from, all of them to download.

import { el, setChildren } from "../dom/element.js";
import { count, number } from "../dom/number_format.js";
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
      status.textContent = `Scoring row ${count(start + 1)} of ${count(rows.length)} …`;
      const instances = rows.slice(start, start + MAX_ROWS_PER_REQUEST).map(({ instance }) => instance);
      predictions.push(...(await post(this.#path, { instances }, signal)).predictions);
    }
    const columns = predictions.map((prediction) => predictionColumns(prediction, this.#certificate));
    const names = Object.keys(columns[0]).map((name) => (header.includes(name) ? `predicted ${name}` : name));
    const scored = [
      [...header, ...names],
      ...rows.map(({ cells }, index) => [...cells, ...Object.values(columns[index])]),
    ];
    status.textContent = `${count(rows.length)} ${rows.length === 1 ? "row" : "rows"} scored`;
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
    const columnCount = this.#certificate.interval ? 3 : 2;
    const texts = shown.map(({ cells }, index) => [
      ...Object.entries(columns[index]).slice(0, columnCount).map((column) => predictionText(column, this.#certificate)),
      ...cells.map((cell) => cell.trim()),
    ]);
    const tableColumns = [...names.slice(0, columnCount), ...header].map((name, place) =>
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
      rows.length > SHOWN_ROWS ? `The first ${SHOWN_ROWS} of ${count(rows.length)} rows` : "All rows";
    return el(
      "div",
      { class: "scroll", tabindex: "0", role: "group", "aria-label": "Scored rows" },
      el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, lines)),
    );
  }
}

/** The columns of a prediction: label and probabilities, a predicted number, or the values of the outputs. */
export function predictionColumns(prediction, certificate) {
  // a service may be set to send the values alone, as earlier versions did
  const { outputs = {}, label, probability, probabilities, value, low, high } = prediction?.outputs
    ? prediction
    : fromBare(prediction, certificate);
  const columns = {};
  if (label !== undefined) {
    Object.assign(columns, { label, probability });
    for (const [name, share] of Object.entries(probabilities)) columns[`p_${name}`] = share;
  }
  if (value !== undefined) columns[certificate.target ? `predicted ${certificate.target}` : "predicted"] = value;
  // the bounds of an interval
  for (const [name, bound] of Object.entries({ low, high })) if (bound !== undefined) columns[name] = bound;
  const names = Object.keys(outputs);
  // a label or a number takes the place of the output that it comes from
  const further = Object.keys(columns).length ? names.slice(1) : names;
  for (const name of further) Object.assign(columns, outputColumns(names.length > 1 ? name : "output", outputs[name]));
  return columns;
}

function fromBare(prediction, certificate) {
  if (typeof prediction?.label === "string") return prediction;
  const predicted = predictedNumber(certificate, [{ data: [prediction].flat(Infinity) }]);
  if (predicted) return { value: predicted.value };
  const hasNames = typeof prediction === "object" && !Array.isArray(prediction);
  return { outputs: hasNames ? prediction : { output: prediction } };
}

/** The values of an output, each in a column that has its place. */
function outputColumns(name, output) {
  if (Array.isArray(output))
    return Object.assign({}, ...output.map((value, index) => outputColumns(`${name}_${index}`, value)));
  // labels and probabilities among several outputs
  return { [name]: output !== null && typeof output === "object" ? JSON.stringify(output) : output };
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
