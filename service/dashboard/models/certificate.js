// The full certificate of a model: what was decided, on which rows rounding was measured, and how large it is.

import { dataTable } from "../dom/data_table.js";
import { el } from "../dom/element.js";
import { number, percent } from "../dom/number_format.js";
import { tableColumn } from "../dom/table_column.js";
import { metricName, metricText } from "./metric_text.js";
import { errorRatio } from "./parity_verdict.js";

/** A node for the response of GET …/certificate. */
export function certificateView(certificate) {
  const { identity, parity, variant, tools, digest, weights } = certificate;
  return el(
    "div",
    { class: "certificate" },
    identity?.verdict === "identical" && identityFacts(identity),
    parity && comparisonFacts(parity),
    variant && el("p", {}, variantText(variant, certificate)),
    parity && tensorTable(parity),
    parity && batchTable(parity),
    el(
      "dl",
      { class: "facts wide" },
      factItem("File, SHA-256", el("code", {}, digest)),
      weights && factItem("Parameters, SHA-256", el("code", {}, weights)),
      Object.keys(tools).length > 0 && factItem("Created with", Object.entries(tools).map(toolTag)),
    ),
  );
}

function identityFacts({ compared, runs, error_bound: bound, rounded, levers, carried, rows }) {
  return el(
    "dl",
    { class: "facts" },
    factItem("Decided in exact arithmetic", `${number(compared)} outputs, gates and layers, for every input`),
    factItem("Sets of sizes", number(runs)),
    factItem("Chance of error", `below ${bound}`),
    levers > 0 && factItem("Gates moved by their levers alone", number(levers)),
    carried > 0 && factItem("Layers that carry their input when closed", number(carried)),
    rows !== "not decided" && factItem("Rows of a batch", rows),
    rounded.length > 0 &&
      factItem(
        "Constants that the exporter rounded",
        rounded.map(({ name, ulp }) => el("span", { class: "tag" }, `${name} (${number(ulp)} ULP)`)),
      ),
  );
}

function comparisonFacts({ reference, providers, seed }) {
  return el(
    "dl",
    { class: "facts" },
    factItem("Rounding measured against", reference),
    factItem("Execution providers", providers.join(", ")),
    factItem("Seed", seed),
  );
}

function variantText({ agreement, error, rows, metric, metric_fp32: full }, certificate) {
  const { precision, task } = certificate;
  const answer = task === "number" ? "nearly the same number" : "the same class";
  const same = `${precision} predicts ${answer} as fp32 on ${percent(agreement)} of ${number(rows)} rows`;
  const answers = error === null ? same : `${same}; its outputs differ by ${percent(error)} (relative RMS error)`;
  if (metric === null) return `${answers}.`;
  return `${answers}; its ${metricName(certificate)} is ${metricText(certificate, metric)}, that of fp32 ${metricText(certificate, full)}.`;
}

function tensorTable({ tensors: all, worst }) {
  const column = (title, textOf) => tableColumn(title, all.map(textOf));
  return dataTable(
    "Error of each tensor, next to PyTorch’s in fp32",
    "Tensor",
    all.map(({ name }) => ({
      marked: name === worst,
      name: name === worst ? [name, " ", el("span", { class: "tag" }, "worst")] : name,
    })),
    [
      column("RMS error", (tensor) => number(tensor.rms)),
      column("PyTorch’s RMS error", (tensor) => number(tensor.rms_torch)),
      column("Ratio", errorRatio),
      column("Max. error", (tensor) => number(tensor.max)),
      column("PyTorch’s max. error", (tensor) => number(tensor.max_torch)),
    ],
  );
}

function batchTable({ batches: all }) {
  return dataTable(
    "Batches of rows that rounding was measured on",
    "Batch",
    all.map(({ name }) => ({ name })),
    [
      tableColumn(
        "Rows",
        all.map(({ rows }) => number(rows)),
      ),
      {
        head: el("th", { scope: "col" }, "SHA-256"),
        cells: all.map(({ digest }) => el("td", {}, el("code", { title: digest }, `${digest.slice(0, 12)}…`))),
      },
    ],
  );
}

function toolTag([name, version]) {
  return el("span", { class: "tag" }, `${name} ${version}`);
}

/** One entry of a list of facts. */
export function factItem(title, ...value) {
  return el("div", {}, el("dt", {}, title), el("dd", {}, value));
}
