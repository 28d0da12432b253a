// The whole certificate of a model: what was compared with what, on which rows, and what came of it.

import { el } from "../dom/element.js";
import { number, percent } from "../dom/number_format.js";
import { errorRatio } from "./parity_verdict.js";

/** A certificate as GET …/certificate tells it, as a node. */
export function certificateView(certificate) {
  const { parity, variant, tools, digest, weights } = certificate;
  return el(
    "div",
    { class: "certificate" },
    parity && proof(parity),
    variant && el("p", {}, variantIn(variant, certificate.precision)),
    parity && tensors(parity),
    parity && batches(parity),
    el(
      "dl",
      { class: "facts wide" },
      factItem("File, SHA-256", el("code", {}, digest)),
      weights && factItem("Parameters, SHA-256", el("code", {}, weights)),
      Object.keys(tools).length > 0 && factItem("Made with", Object.entries(tools).map(tool)),
    ),
  );
}

function proof({ reference, providers, seed, identical, derived, ulp }) {
  return el(
    "dl",
    { class: "facts" },
    factItem("Compared with", reference),
    factItem("Run by", providers.join(", ")),
    factItem("Parameters in the file", `${number(identical)} bit for bit, ${derivedIn(derived, ulp)}`),
    factItem("Seed", seed),
  );
}

function derivedIn(derived, ulp) {
  return derived ? `${number(derived)} folded, within ${number(ulp)} units in the last place` : "none folded";
}

function variantIn({ agreement, rows, metric, metric_fp32: full }, precision) {
  const answers = `${precision} answers as fp32 does on ${percent(agreement)} of ${number(rows)} rows`;
  if (metric === null) return `${answers}.`;
  return `${answers}; it is right on ${percent(metric)}, fp32 on ${percent(full)}.`;
}

function tensors({ tensors: all, worst }) {
  return table(
    "How far each tensor was from the reference, beside PyTorch itself in single precision",
    ["Tensor", "Error (rms)", "PyTorch’s", "Ratio", "Largest", "PyTorch’s largest"],
    all.map((one) => ({
      marked: one.name === worst,
      name: one.name === worst ? [one.name, " ", el("span", { class: "tag" }, "worst")] : one.name,
      cells: [
        figure(number(one.rms)),
        figure(number(one.rms_torch)),
        figure(errorRatio(one)),
        figure(number(one.max)),
        figure(number(one.max_torch)),
      ],
    })),
  );
}

function batches({ batches: all }) {
  return table(
    "The rows it was proved on",
    ["Batch", "Rows", "SHA-256"],
    all.map(({ name, rows, digest }) => ({
      name,
      cells: [figure(number(rows)), el("td", {}, el("code", { title: digest }, `${digest.slice(0, 12)}…`))],
    })),
  );
}

function table(title, head, rows) {
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
    el(
      "table",
      {},
      el("caption", {}, title),
      el("thead", {}, el("tr", {}, head.map(column))),
      el(
        "tbody",
        {},
        rows.map(({ marked, name, cells }) =>
          el("tr", { class: marked && "marked" }, el("th", { scope: "row" }, name), cells),
        ),
      ),
    ),
  );
}

function column(word, at) {
  return el("th", { scope: "col", class: at > 0 && "number" }, word);
}

function figure(text) {
  return el("td", { class: "number" }, text);
}

function tool([name, version]) {
  return el("span", { class: "tag" }, `${name} ${version}`);
}

/** One line of a list of facts. */
export function factItem(title, ...said) {
  return el("div", {}, el("dt", {}, title), el("dd", {}, said));
}
