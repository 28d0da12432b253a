// Section "Try it": make an input row (draw, type, open a file, random, sample), see its way through the layers
// and the prediction.

import { el, setChildren } from "../dom/element.js";
import { FeatureForm } from "../inputs/feature_form.js";
import { acceptDroppedFiles } from "../inputs/file_input.js";
import { NumberForm } from "../inputs/number_form.js";
import { openingSample } from "../inputs/opening_sample.js";
import { hasCells } from "../inputs/table_cells.js";
import { TextEntry } from "../inputs/text_entry.js";
import { textFormatOf, textTensor } from "../inputs/text_tensor.js";
import { PictureEntry } from "../pictures/picture_entry.js";
import { pictureFormatOf } from "../pictures/picture_input.js";
import { startRoad } from "../road/road_section.js";
import { get } from "../state/api.js";
import { current, publish, subscribe } from "../state/store.js";
import { startSnippets } from "./code_snippets.js";
import { startPrediction } from "./prediction_panel.js";
import { startRowRequests } from "./row_requests.js";
import { markSample, sampleTitle, showSamples } from "./sample_picker.js";

export function startTry(body) {
  const panel = new TryPanel(body);
  startRowRequests();
  startRoad(panel.road);
  startPrediction(panel.prediction);
  startSnippets(panel.snippets);
  subscribe("model", (model) => panel.setModel(model));
  subscribe("open row", (row) => panel.openRow(row));
  subscribe("chosen model", () => panel.showPlaceholder());
  subscribe("server", () => panel.showPlaceholder());
}

/** @typedef {TextEntry|PictureEntry|FeatureForm|NumberForm} Entry  a way to make a row */

class TryPanel {
  road = el("div", { class: "road" });
  prediction = el("div", { class: "prediction" });
  snippets = el("div", { class: "snippets" });

  #body;
  #entryButtons = el("div", { class: "entry-buttons" });
  #entryNode = el("div", { class: "row-entry" });
  #scored = el("div");
  #samples = el("div", { class: "strip" });
  #content;
  /** @type {import("../state/store.js").Model|null} */
  #model = null;
  /** @type {Entry|null} */
  #entry = null;
  /** @type {AbortController|null} */
  #samplesRequest = null;
  // a row to show, and whether it waits for the samples, from which the entries learn first
  /** @type {import("../state/store.js").Row|null} */
  #opened = null;
  #waiting = false;

  constructor(body) {
    this.#body = body;
    this.#content = el(
      "div",
      { class: "try" },
      el("div", { class: "row-input" }, this.#entryButtons, this.#entryNode),
      this.#scored,
      this.road,
      this.prediction,
      this.#samples,
      this.snippets,
    );
    acceptDroppedFiles(this.#entryNode, (file) => this.#entry?.open(file));
    subscribe("row", (row) => markSample(this.#samples, row));
    this.showPlaceholder();
  }

  /** While there is no model, show why. */
  showPlaceholder() {
    if (this.#model === null) setChildren(this.#body, el("p", { class: "empty" }, placeholder()));
  }

  setModel(model) {
    const unchanged =
      model?.path === this.#model?.path && model?.certificate.digest === this.#model?.certificate.digest;
    this.#model = model;
    if (unchanged) {
      this.showPlaceholder();
      return;
    }
    this.#entry = null;
    this.#samplesRequest?.abort();
    [this.#opened, this.#waiting] = [null, false];
    publish("telling sample", null);
    publish("row", null);
    if (model === null) {
      this.showPlaceholder();
      return;
    }
    const reason = unsupportedInput(model);
    if (reason !== null) {
      setChildren(this.#body, el("p", { class: "empty" }, reason));
      return;
    }
    const [pictureFormat, textFormat] = [pictureFormatOf(model), textFormatOf(model)];
    const { features } = model.certificate;
    const entries = [
      textFormat && this.#createEntry(TextEntry, textFormat),
      pictureFormat && this.#createEntry(PictureEntry, pictureFormat),
      features.length > 0 && this.#createEntry(FeatureForm, model),
      // indices of words and days since 1970 are no numbers to type
      !hasCells(features) && this.#createEntry(NumberForm, model),
    ].filter(Boolean);
    if (pictureFormat && !pictureFormat.likely) entries.reverse();
    setChildren(this.#body, model.certificate.random_weights && randomWeightsNote(), this.#content);
    setChildren(this.#samples);
    this.#showEntries(entries);
    this.#fetchSamples(model, { pictureFormat, textFormat, target: model.certificate.target }, entries).catch(reportError);
  }

  /** Show a row that was not made here. */
  openRow(row) {
    this.#opened = row;
    if (!this.#waiting) this.#entry?.take(row);
  }

  /** Create an entry; its rows are published only while it is the one in use. */
  #createEntry(Entry, format) {
    const entry = new Entry(format, (row) => {
      if (entry === this.#entry) publish("row", row);
    });
    return entry;
  }

  /** Show buttons for the entries, the first of which is selected. */
  #showEntries(entries) {
    const buttons = entries.map((entry) => el("button", { type: "button" }, entry.title));
    const showEntry = (index) => {
      const entry = entries[index];
      this.#entry = entry;
      setChildren(this.#entryNode, entry.node);
      const scored = "scored" in entry ? entry.scored : el("div");
      this.#scored.replaceWith(scored);
      this.#scored = scored;
      buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === index)));
    };
    buttons.forEach((button, index) =>
      button.addEventListener("click", () => {
        const row = current("row");
        showEntry(index);
        if (row) entries[index].take(row);
      }),
    );
    const choice = el(
      "div",
      { class: "segmented", role: "group", "aria-label": "How to make a row" },
      buttons,
    );
    setChildren(this.#entryButtons, entries.length > 1 && choice);
    showEntry(0);
  }

  async #fetchSamples(model, formats, entries) {
    const request = (this.#samplesRequest = new AbortController());
    if (!model.certificate.samples) {
      // a form begins with a row of its own
      entries[0].start?.();
      return;
    }
    this.#waiting = true;
    /** @type {import("../state/api_types.js").Sample[]} */
    let samples = [];
    /** @type {import("../inputs/opening_sample.js").Opening} */
    let opening = { index: 0, layer: null, after: "" };
    /** @type {Error|null} */
    let failure = null;
    try {
      samples = withBlanks(await get(`${model.path}/samples`, request.signal));
      // the number of a class that has no name, in the words of the answer
      if (!model.certificate.labels.length)
        samples = samples.map((sample) => ({ ...sample, label: sample.label && `class ${sample.label}` }));
      // if the model does not answer, the request for the first sample says why
      opening = await openingSample(model, samples, request.signal).catch(() => opening);
    } catch (error) {
      failure = error;
    }
    if (request !== this.#samplesRequest || request.signal.aborted) return;
    this.#waiting = false;
    const takeSample = ({ text, inputs }, title) => {
      const hasText = formats.textFormat && text;
      this.#entry?.take({ title, inputs: hasText ? [textTensor(formats.textFormat, text)] : inputs });
    };
    const noRowYet = !current("row");
    if (noRowYet) for (const entry of entries) entry.learnFrom(samples);
    if (failure) {
      const text = `The samples could not be loaded: ${failure.message}`;
      setChildren(this.#samples, el("p", { class: "failed" }, text));
    } else {
      showSamples(this.#samples, samples, formats, takeSample);
    }
    const first = samples[opening.index];
    if (first && opening.layer !== null) {
      const { layer, after } = opening;
      publish("telling sample", {
        title: sampleTitle(samples, opening.index, formats.target),
        layer,
        after,
        open: () => takeSample(first, sampleTitle(samples, opening.index, formats.target)),
      });
    }
    if (this.#opened) this.#entry?.take(this.#opened);
    // start with a sample, so that the page is not empty
    else if (noRowYet && first) takeSample(first, sampleTitle(samples, opening.index, formats.target));
  }
}

function randomWeightsNote() {
  return el(
    "p",
    { class: "note alarm" },
    el("strong", {}, "Random weights."),
    " This network was not trained, so its answers mean nothing. ",
    el("code", {}, "turnpike export … --weights FILE"),
    " exports it with trained weights.",
  );
}

/** The samples of a response, in which a blank is null, as rows for the model, in which it is NaN. */
function withBlanks({ samples }) {
  return samples.map(({ inputs, ...sample }) => ({
    ...sample,
    inputs: inputs.map(({ data, ...tensor }) => ({ ...tensor, data: data.map((value) => value ?? NaN) })),
  }));
}

/** Why there is nothing to try, and what to do. */
function placeholder() {
  if (current("server") === "unauthorized") {
    const click = () => publish("open key dialog", true);
    const button = el("button", { type: "button", class: "main", on: { click } }, "Enter a key");
    return ["The service requires an API key to use its models. ", button];
  }
  const models = el("a", { href: "#models" }, "Models");
  const chosen = current("chosen model");
  if (!chosen) {
    if (current("index")?.length === 0) return ["There is no model to try. ", models, " says how to add one."];
    return "Loading the models …";
  }
  const title = `${chosen.name}/${chosen.version}`;
  if (chosen.state === "loading") return `Loading ${title} …`;
  if (!chosen.message) return "No model is chosen.";
  const problem = chosen.state === "failed" ? "could not be loaded" : "is not served";
  return [`${title} ${problem}: ${chosen.message}. `, models, " lists the others."];
}

/** A message about an input that cannot be sent from this page, or null. */
function unsupportedInput({ inputs }) {
  const halfInput = inputs.find((input) => input.datatype === "FP16");
  if (!halfInput) return null;
  return `The input ${halfInput.name} is FP16, which JSON requests cannot carry. It accepts binary requests only.`;
}
