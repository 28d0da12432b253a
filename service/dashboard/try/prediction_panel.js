// What the network answers: its class and how sure it is, all classes as bars, and other outputs as numbers;
// with layers closed or open, what that has changed.

import { requestAgain } from "./row_requests.js";
import { clearCharts } from "../charts/chart.js";
import { el, setChildren } from "../dom/element.js";
import { duration } from "../dom/number_format.js";
import { probabilityText } from "../row/predicted_class.js";
import { outputValues } from "./output_values.js";
import { classProbabilities } from "./probabilities.js";
import { current, subscribe } from "../state/store.js";

const FEW = 10;
// milliseconds of rest before a prediction is read out
const REST = 800;

export function startPrediction(node) {
  const said = el("p", { class: "visually-hidden", role: "status" });
  const failed = el("div");
  const shown = el("div", { class: "shown" });
  setChildren(node, failed, shown, said);
  let all = false;
  let timer = 0;
  let error = null;
  let known = [];
  const turn = () => {
    all = !all;
    show();
    shown.querySelector("button").focus();
  };
  const show = () => {
    const asking = current("request") ?? null;
    const reading = current("reading") ?? null;
    const lesion = lesionOf(reading);
    node.setAttribute("aria-busy", String(Boolean(asking?.busy)));
    // what is the same stays: a person may be reading it, or stand on a button of it
    if (error !== (asking?.error ?? null)) {
      error = asking?.error ?? null;
      setChildren(failed, error && failure(error));
    }
    const now = reading ? [reading, lesion, all] : [nothing(asking)];
    if (now.length !== known.length || now.some((one, n) => one !== known[n])) {
      known = now;
      clearCharts(shown);
      setChildren(shown, reading ? answerOf(reading, lesion, { all, turn }) : empty(nothing(asking)));
    }
    clearTimeout(timer);
    timer = setTimeout(() => {
      const words = reading ? inWords(reading, lesion) : "";
      if (said.textContent !== words) said.textContent = words;
    }, REST);
  };
  for (const topic of ["request", "reading", "lesioned"]) subscribe(topic, show);
}

/** The lesion of this very reading, null for none. */
function lesionOf(reading) {
  const lesioned = current("lesioned");
  return lesioned?.reading === reading ? lesioned : null;
}

function failure({ message }) {
  return el(
    "div",
    { class: "note alarm", role: "alert" },
    el("p", {}, message),
    el("button", { type: "button", on: { click: requestAgain } }, "Ask again"),
  );
}

/** Why there is no answer, null where something else says so. */
function nothing(asking) {
  if (asking?.error) return null;
  return asking?.busy ? "Asking…" : "No row yet: draw, choose or write one.";
}

function empty(words) {
  return words && el("p", { class: "empty" }, words);
}

function answerOf(reading, lesion, { all, turn }) {
  const { certificate } = current("model");
  const before = classProbabilities(certificate, reading.outputs);
  const after = lesion && before && classProbabilities(certificate, lesion.outputs);
  const took = el(
    "p",
    { class: "quiet took" },
    `${reading.row.title} · ${duration(reading.milliseconds / 1000)}`,
  );
  if (before === null) {
    return [took, reading.outputs.map((output, i) => outputValues(output, lesion?.outputs[i]))];
  }
  return [
    headline(before, after),
    took,
    lesion && el("p", { class: "note" }, change(before, after, lesion)),
    bars(before, after, all),
    before.length > FEW &&
      el(
        "button",
        { type: "button", class: "plain", on: { click: turn } },
        all ? `The top ${FEW}` : `All ${before.length} classes`,
      ),
    reading.outputs.slice(1).map((output, i) => outputValues(output, lesion?.outputs[i + 1])),
  ];
}

function headline(before, after) {
  const one = (name, { label, share }) =>
    el(
      "div",
      { class: "verdict-of" },
      name && el("div", { class: "quiet" }, name),
      el("div", { class: "label" }, label),
      el("div", { class: "share" }, probabilityText(share)),
    );
  if (!after) return el("div", { class: "headline" }, one(null, best(before)));
  const arrow = el("div", { class: "arrow", "aria-hidden": "true" }, "→");
  return el(
    "div",
    { class: "headline" },
    one("as it is", best(before)),
    arrow,
    one("as changed", best(after)),
  );
}

function best(classes) {
  return classes.reduce((top, one) => (one.share > top.share ? one : top));
}

/** Classes in their order where they are few, else the likeliest first. */
function bars(before, after, all) {
  const sorted = before.length > FEW ? [...before].sort((a, b) => b.share - a.share) : before;
  const [top, other] = [best(before).place, after && best(after).place];
  const rows = (all ? sorted : sorted.slice(0, FEW)).map(({ label, share, place }) =>
    el(
      "tr",
      { class: place === top || place === other ? "marked" : null },
      el("th", { scope: "row" }, el("span", {}, label)),
      el("td", { class: "shares" }, bar(share, "before"), after && bar(after[place].share, "after")),
      el("td", { class: "number" }, probabilityText(share)),
      after && el("td", { class: "number" }, probabilityText(after[place].share)),
    ),
  );
  const head = ["class", "", after ? "as it is" : "probability", after && "as changed"];
  return el(
    "div",
    { class: all ? "scroll" : null, tabindex: all ? "0" : null },
    el(
      "table",
      { class: "classes" },
      el(
        "thead",
        { class: after ? null : "visually-hidden" },
        el(
          "tr",
          {},
          head.map((name) => name !== null && el("th", { scope: "col" }, name)),
        ),
      ),
      el("tbody", {}, rows),
    ),
  );
}

function bar(share, kind) {
  const inner = el("span", { class: `share-bar ${kind}` });
  inner.style.setProperty("width", `${100 * Math.min(1, Math.max(0, share))}%`);
  return inner;
}

/** What a lesion has changed, in a sentence. */
function change(before, after, { closed, open }) {
  const [was, is] = [best(before), best(after)];
  const moved = [layers(closed, "closed"), layers(open, "open")].filter(Boolean).join(", ");
  const [had, has] = [probabilityText(was.share), probabilityText(is.share)];
  if (was.place === is.place) return `With ${moved} it is still ${was.label}: ${had} before, ${has} now.`;
  return `With ${moved} it is ${is.label} (${has}) and no longer ${was.label} (${had}).`;
}

function layers(numbers, what) {
  if (!numbers.length) return "";
  return `${numbers.length === 1 ? "layer" : "layers"} ${numbers.join(", ")} ${what}`;
}

function inWords(reading, lesion) {
  const { certificate } = current("model");
  const before = classProbabilities(certificate, reading.outputs);
  if (before === null) return "The outputs are there.";
  if (lesion) return change(before, classProbabilities(certificate, lesion.outputs), lesion);
  const { label, share } = best(before);
  return `Prediction: ${label}, ${probabilityText(share)}.`;
}
