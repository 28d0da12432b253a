// Details of the chosen model: inputs, outputs, classes, gates, file, and what is proved.

import { el, setChildren } from "../dom/element.js";
import { bytes, number } from "../dom/number_format.js";
import { sameVersion } from "../state/chosen_model.js";
import { current, publish, subscribe } from "../state/store.js";
import { certificateView, factItem } from "./certificate.js";
import { errorRatio, parityVerdict } from "./parity_verdict.js";
import { tensorList } from "./tensor_list.js";

const MAX_LABELS = 12;
const MAX_TENSORS = 12;

/** Show the chosen model in this node. */
export function startModelSummary(node) {
  const message = el("div", { role: "status" });
  const body = el("div", {});
  setChildren(node, message, body);
  subscribe("chosen model", (chosen) => setChildren(message, stateMessage(chosen)));
  // keep the certificate open when switching models
  const certificateOpen = () => Boolean(body.querySelector("details")?.open);
  subscribe("model", (model) => setChildren(body, model && modelDetails(model, certificateOpen())));
  subscribe("index", () => {
    const chosen = current("chosen model");
    if (chosen) setChildren(message, stateMessage(chosen));
  });
}

function stateMessage({ name, version, state, message }) {
  const title = `${name}/${version}`;
  if (state === "loading" && !sameVersion(current("model"), { name, version })) {
    return el("p", { class: "loading" }, `Loading ${title} …`);
  }
  if (state === "failed") {
    const retryButton = chooseButton({ name, version }, "Try again");
    return el("p", { class: "note alarm" }, `${title} could not be loaded: ${message}. `, retryButton);
  }
  if (state === "unserved") {
    return el(
      "p",
      { class: "note watch" },
      `${title}  is not served: ${message}. `,
      otherVersionButton(name),
    );
  }
  return null;
}

/** A button that chooses another served version of the model, if there is one. */
function otherVersionButton(name) {
  const other = current("index")?.findLast((entry) => entry.name === name && entry.state === "READY");
  return other && chooseButton(other, `Show ${other.name}/${other.version}`);
}

function chooseButton(target, label) {
  return el("button", { type: "button", on: { click: () => publish("choose model", target) } }, label);
}

function modelDetails(model, open) {
  const { certificate, inputs, outputs } = model;
  return [
    el("h2", { class: "about-title" }, model.name, el("span", { class: "version" }, `/${model.version}`)),
    verdict(certificate),
    el(
      "dl",
      { class: "facts" },
      factItem("Inputs", tensorList(inputs, MAX_TENSORS, certificate.ranges)),
      factItem("Outputs", tensorList(outputs, MAX_TENSORS)),
      certificate.labels.length > 0 && factItem("Classes", labels(certificate.labels)),
      factItem("Gates", gates(model)),
      factItem("File", file(certificate)),
      factItem("Runs on", device(certificate)),
      factItem("Batching", batching(certificate)),
    ),
    collapsibleCertificate(certificate, open),
  ];
}

function verdict(certificate) {
  const { proved, word, worst } = parityVerdict(certificate);
  const random = certificate.random_weights && el("strong", { class: "sign alarm" }, "Random weights");
  const { parity, verdict: sentence } = certificate;
  if (!parity) {
    return el(
      "p",
      { class: "verdict" },
      el("strong", { class: "sign watch" }, "Nothing proved"),
      " turnpike did not export this file, so nothing shows that it computes the same as the original network. ",
      el("code", {}, "turnpike export FILE.onnx"),
      " exports it.",
    );
  }
  const rows = parity.batches.reduce((sum, batch) => sum + batch.rows, 0);
  return [
    el(
      "p",
      { class: "verdict" },
      random,
      random && " No one trained this network: export it with --weights FILE. ",
      el("strong", { class: proved ? "sign ok" : "sign watch" }, capitalized(word)),
      ` ${capitalized(sentence.replace(/^(not )?proved: /, ""))}.`,
    ),
    el(
      "p",
      { class: "verdict quiet" },
      `Rounding, measured on ${parity.batches.length} batches with ${number(rows)} rows in total. `,
      worst && worstTensor(worst),
      certificate.device_precision !== "fp32" &&
        ` The proof is for fp32. This service computes in ${certificate.device_precision}.`,
    ),
  ];
}

function capitalized(sentence) {
  return sentence[0].toUpperCase() + sentence.slice(1);
}

function worstTensor(worst) {
  const error = `RMS error ${number(worst.rms)}, PyTorch's own ${number(worst.rms_torch)}`;
  return ["Largest beside PyTorch’s: ", el("b", {}, worst.name), ` (${error}: ${errorRatio(worst)}).`];
}

function collapsibleCertificate(certificate, open) {
  const body = el("div", {});
  const title = certificate.parity ? "Full certificate" : "File details";
  const details = el("details", { open }, el("summary", {}, title), body);
  details.addEventListener("toggle", () => setChildren(body, details.open && certificateView(certificate)));
  return details;
}

function labels(all) {
  const rest = all.length - MAX_LABELS;
  return [
    `${number(all.length)}: `,
    all.slice(0, MAX_LABELS).map((label) => el("span", { class: "tag" }, label)),
    rest > 0 && ` and ${number(rest)} more`,
  ];
}

function gates({ gates: all, certificate }) {
  if (!certificate.gates) return "none known: turnpike export finds them";
  const layers = new Set(all.map((gate) => gate.layer)).size;
  return `${number(certificate.gates)} in ${number(layers)} ${layers === 1 ? "layer" : "layers"}`;
}

function file({ precision, bytes: size, source, random_weights: random }) {
  return [precision, bytes(size), source && `from ${source}`, random && "random weights"].filter(Boolean).join(", ");
}

function device({ device: name, device_precision: precision }) {
  return precision === "fp32" ? name : `${name}, in ${precision}`;
}

function batching({ batched, batch_coupled: coupled }) {
  if (coupled) return "none: the rows of a batch affect each other";
  return batched ? "across requests" : "none";
}
