// The chosen model in full: what goes in and out of it, what it is made of, and what was proved of it.

import { certificateView, factItem } from "./certificate.js";
import { sameVersion } from "../state/chosen_model.js";
import { el, setChildren } from "../dom/element.js";
import { bytes, number } from "../dom/number_format.js";
import { current, publish, subscribe } from "../state/store.js";
import { tensorList } from "./tensor_list.js";
import { errorRatio, parityVerdict } from "./parity_verdict.js";

const LABELS_SHOWN = 12;
const TENSORS_SHOWN = 12;

/** Show in this node what is known of the chosen model. */
export function startModelSummary(node) {
  const note = el("div", { role: "status" });
  const body = el("div", {});
  setChildren(node, note, body);
  subscribe("chosen model", (chosen) => setChildren(note, noteOf(chosen)));
  // who reads one certificate goes on to read the next
  const reading = () => Boolean(body.querySelector("details")?.open);
  subscribe("model", (model) => setChildren(body, model && whole(model, reading())));
  subscribe("index", () => current("chosen model") && setChildren(note, noteOf(current("chosen model"))));
}

function noteOf({ name, version, state, message }) {
  const title = `${name}/${version}`;
  if (state === "loading" && !sameVersion(current("model"), { name, version })) {
    return el("p", { class: "loading" }, `Reading what ${title} is …`);
  }
  if (state === "failed") {
    const again = chooser({ name, version }, "Try again");
    return el("p", { class: "note alarm" }, `${title} cannot be read: ${message}. `, again);
  }
  if (state === "unserved") {
    return el("p", { class: "note watch" }, `${title} is not served: ${message}. `, others(name));
  }
  return null;
}

/** Another version of the model, where there is one to turn to. */
function others(name) {
  const other = current("index")?.findLast((one) => one.name === name && one.state === "READY");
  return other && chooser(other, `Turn to ${other.name}/${other.version}`);
}

function chooser(wanted, words) {
  return el("button", { type: "button", on: { click: () => publish("choose model", wanted) } }, words);
}

function whole(model, open) {
  const { certificate, inputs, outputs } = model;
  return [
    el("h2", { class: "about-title" }, model.name, el("span", { class: "version" }, `/${model.version}`)),
    verdict(certificate),
    el(
      "dl",
      { class: "facts" },
      factItem("Takes", tensorList(inputs, TENSORS_SHOWN, certificate.ranges)),
      factItem("Gives", tensorList(outputs, TENSORS_SHOWN)),
      certificate.labels.length > 0 && factItem("Classes", labels(certificate.labels)),
      factItem("Gates", gates(model)),
      factItem("File", file(certificate)),
      factItem("Batching", batching(certificate)),
    ),
    onDemand(certificate, open),
  ];
}

function verdict(certificate) {
  const { proved, worst } = parityVerdict(certificate);
  const { parity } = certificate;
  if (!parity) {
    return el(
      "p",
      { class: "verdict" },
      el("strong", { class: "sign watch" }, "Not proved"),
      " The file has no certificate of parity: nothing says that it answers as its network did. ",
      el("code", {}, "turnpike export FILE.onnx"),
      " makes one.",
    );
  }
  const rows = parity.batches.reduce((sum, batch) => sum + batch.rows, 0);
  return el(
    "p",
    { class: "verdict" },
    el("strong", { class: proved ? "sign ok" : "sign alarm" }, proved ? "Parity proved" : parity.verdict),
    ` against ${parity.reference}, on ${parity.batches.length} batches of ${number(rows)} rows. `,
    worst && nearest(worst),
  );
}

function nearest(worst) {
  const error = `error ${number(worst.rms)}, PyTorch's own ${number(worst.rms_torch)}`;
  return ["Nearest to failing: ", el("b", {}, worst.name), ` (${error}: ${errorRatio(worst)}).`];
}

function onDemand(certificate, open) {
  const body = el("div", {});
  const title = certificate.parity ? "The whole certificate" : "What is known of the file";
  const details = el("details", { open }, el("summary", {}, title), body);
  details.addEventListener("toggle", () => setChildren(body, details.open && certificateView(certificate)));
  return details;
}

function labels(all) {
  const rest = all.length - LABELS_SHOWN;
  return [
    `${number(all.length)}: `,
    all.slice(0, LABELS_SHOWN).map((label) => el("span", { class: "tag" }, label)),
    rest > 0 && ` and ${number(rest)} more`,
  ];
}

function gates({ gates: all, certificate }) {
  if (!certificate.gates) return "none: turnpike export finds them";
  const layers = new Set(all.map((gate) => gate.layer)).size;
  return `${number(certificate.gates)} in ${number(layers)} ${layers === 1 ? "layer" : "layers"}`;
}

function file({ precision, bytes: size, source }) {
  return [precision, bytes(size), source && `from ${source}`].filter(Boolean).join(", ");
}

function batching({ batched, batch_coupled: coupled }) {
  if (coupled) return "none: rows depend on one another";
  return batched ? "across requests" : "none";
}
