// The prediction: class and probability with all classes as bars, or a predicted number; other outputs as numbers;
// and what closed or opened layers change about it.

import { clearCharts } from "../charts/chart.js";
import { el, setChildren } from "../dom/element.js";
import { duration } from "../dom/number_format.js";
import { answerText, classProbabilities, predictedNumber, probabilityText } from "../row/predicted_class.js";
import { leversText } from "../state/levers.js";
import { current, expectCurrent, subscribe } from "../state/store.js";
import { outputValues } from "./output_values.js";
import { requestAgain } from "./row_requests.js";

// number of classes shown at first
const MAX_CLASSES = 10;
// milliseconds without change before a prediction is announced to screen readers
const ANNOUNCE_DELAY = 800;

export function startPrediction(node) {
  const announcement = el("p", { class: "visually-hidden", role: "status" });
  const errorNode = el("div");
  const content = el("div", { class: "shown" });
  setChildren(node, errorNode, content, announcement);
  let showAll = false;
  let timer = 0;
  let error = null;
  let shownState = [];
  const toggleAll = () => {
    showAll = !showAll;
    show();
    content.querySelector("button")?.focus();
  };
  const show = () => {
    const request = current("request") ?? null;
    const reading = current("reading") ?? null;
    const lesion = lesionOf(reading);
    node.setAttribute("aria-busy", String(Boolean(request?.busy)));
    // keep what is unchanged: the user may be reading it, or a button in it may have the focus
    if (error !== (request?.error ?? null)) {
      error = request?.error ?? null;
      setChildren(errorNode, error && errorNote(error));
    }
    const newState = reading ? [reading, lesion, showAll] : [placeholderText(request)];
    if (newState.length !== shownState.length || newState.some((part, n) => part !== shownState[n])) {
      shownState = newState;
      clearCharts(content);
      setChildren(
        content,
        reading
          ? predictionNodes(reading, lesion, { showAll, toggleAll })
          : emptyNode(placeholderText(request)),
      );
    }
    clearTimeout(timer);
    timer = setTimeout(() => {
      const text = reading ? announcementText(reading, lesion) : "";
      if (announcement.textContent !== text) announcement.textContent = text;
    }, ANNOUNCE_DELAY);
  };
  subscribe("request", show);
  subscribe("reading", show);
  subscribe("lesioned", show);
}

/** The lesion of this reading, or null. */
function lesionOf(reading) {
  const lesioned = current("lesioned");
  return lesioned?.reading === reading ? lesioned : null;
}

function errorNote({ message }) {
  return el(
    "div",
    { class: "note alarm", role: "alert" },
    el("p", {}, message),
    el("button", { type: "button", on: { click: requestAgain } }, "Try again"),
  );
}

/** Why there is no prediction; null if an error message says so. */
function placeholderText(request) {
  if (request?.error) return null;
  return request?.busy ? "Loading …" : "No row yet. Draw, choose or type one.";
}

function emptyNode(text) {
  return text && el("p", { class: "empty" }, text);
}

function predictionNodes(reading, lesion, { showAll, toggleAll }) {
  const { certificate } = expectCurrent("model");
  const predicted = predictedNumber(certificate, reading.outputs);
  const before = classProbabilities(certificate, reading.outputs);
  const after = lesion && before && classProbabilities(certificate, lesion.outputs);
  const otherOutputs = reading.outputs.slice(1).map((output, i) => outputValues(output, lesion?.outputs[i + 1]));
  const timeNote = el(
    "p",
    { class: "quiet request-time" },
    `${reading.row.title} · ${duration(reading.milliseconds / 1000)}`,
  );
  if (predicted !== null) {
    const changed = lesion && predictedNumber(certificate, lesion.outputs);
    return [
      headline(numberParts(predicted), changed && numberParts(changed)),
      !lesion && predicted.interval && el("p", { class: "quiet interval" }, predicted.interval),
      timeNote,
      changed && el("p", { class: "note" }, movedText(predicted, changed, lesion)),
      otherOutputs,
    ];
  }
  if (before === null) {
    return [timeNote, reading.outputs.map((output, i) => outputValues(output, lesion?.outputs[i]))];
  }
  return [
    headline(classParts(before), after && classParts(after), certificate.target),
    timeNote,
    lesion && el("p", { class: "note" }, changeText(before, after, lesion)),
    bars(before, after, showAll),
    before.length > MAX_CLASSES &&
      el(
        "button",
        { type: "button", class: "plain", on: { click: toggleAll } },
        showAll ? `The top ${MAX_CLASSES}` : `All ${before.length} classes`,
      ),
    otherOutputs,
  ];
}

/** The answer in large letters, what it says, and what is below it; `after` is null without moved layers. */
function headline(before, after, target = "") {
  const part = (name, { label, detail }) =>
    el(
      "div",
      { class: "predicted-class" },
      name && el("div", { class: "quiet" }, name),
      el("div", { class: "label" }, label),
      detail && el("div", { class: "share" }, detail),
    );
  if (!after) return el("div", { class: "headline" }, part(target, before));
  const arrow = el("div", { class: "arrow", "aria-hidden": "true" }, "→");
  return el(
    "div",
    { class: "headline" },
    part("as trained", before),
    arrow,
    part("with changes", after),
  );
}

function classParts(classes) {
  const { label, share } = mostLikely(classes);
  return { label, detail: probabilityText(share) };
}

function numberParts({ text, name }) {
  return { label: text, detail: name };
}

function mostLikely(classes) {
  return classes.reduce((top, other) => (other.share > top.share ? other : top));
}

/** Bars of the classes: in their order if they are few, otherwise the most likely first. */
function bars(before, after, showAll) {
  const sorted = before.length > MAX_CLASSES ? [...before].sort((a, b) => b.share - a.share) : before;
  const [top, other] = [mostLikely(before).place, after && mostLikely(after).place];
  const rows = (showAll ? sorted : sorted.slice(0, MAX_CLASSES)).map(({ label, share, place }) =>
    el(
      "tr",
      { class: place === top || place === other ? "marked" : null },
      el("th", { scope: "row" }, el("span", {}, label)),
      el("td", { class: "shares" }, bar(share, "before"), after && bar(after[place].share, "after")),
      el("td", { class: "number" }, probabilityText(share)),
      after && el("td", { class: "number" }, probabilityText(after[place].share)),
    ),
  );
  const head = ["class", "", after ? "as trained" : "probability", after && "with changes"];
  return el(
    "div",
    { class: showAll ? "scroll" : null, tabindex: showAll ? "0" : null },
    el(
      "table",
      { class: "classes" },
      el(
        "thead",
        { class: after ? null : "visually-hidden" },
        el(
          "tr",
          {},
          head.map((name) => name !== null && (name ? el("th", { scope: "col" }, name) : el("td"))),
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

/** A sentence on what a lesion changed. */
function changeText(before, after, { levers }) {
  const [classBefore, classAfter] = [mostLikely(before), mostLikely(after)];
  const movedLayers = leversText(levers);
  const [textBefore, textAfter] = [probabilityText(classBefore.share), probabilityText(classAfter.share)];
  if (classBefore.place === classAfter.place) {
    const shares = textBefore === textAfter ? `${textAfter} as before` : `${textBefore} before, ${textAfter} now`;
    return `With ${movedLayers}, the prediction is still ${classBefore.label}: ${shares}.`;
  }
  return `With ${movedLayers}, the prediction is ${classAfter.label} (${textAfter}) instead of ${classBefore.label} (${textBefore}).`;
}

/** The same for a predicted number. */
function movedText(before, after, { levers }) {
  const name = before.name || "the prediction";
  const movedLayers = leversText(levers);
  if (before.text === after.text) return `With ${movedLayers}, ${name} is still ${after.text}.`;
  return `With ${movedLayers}, ${name} is ${after.text} instead of ${before.text}.`;
}

function announcementText(reading, lesion) {
  const { certificate } = expectCurrent("model");
  const predicted = predictedNumber(certificate, reading.outputs);
  if (predicted && lesion) return movedText(predicted, predictedNumber(certificate, lesion.outputs), lesion);
  if (predicted) return `Prediction: ${answerText(certificate, reading.outputs)}.`;
  const before = classProbabilities(certificate, reading.outputs);
  if (before === null) return "The outputs have been updated.";
  if (lesion) return changeText(before, classProbabilities(certificate, lesion.outputs), lesion);
  const { label, share } = mostLikely(before);
  return `Prediction: ${label}, ${probabilityText(share)}.`;
}
