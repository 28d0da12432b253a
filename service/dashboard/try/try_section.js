// One row in, the prediction out: drawn, written, pasted, made up or one of the samples.

import { get } from "../state/api.js";
import { startRowRequests } from "./row_requests.js";
import { el, setChildren } from "../dom/element.js";
import { acceptDroppedFiles } from "../inputs/file_input.js";
import { NumberForm } from "../inputs/number_form.js";
import { PictureEntry } from "../pictures/picture_entry.js";
import { pictureFormatOf } from "../pictures/picture_input.js";
import { startPrediction } from "./prediction_panel.js";
import { showSamples, sampleTitle } from "./sample_picker.js";
import { startSnippets } from "./code_snippets.js";
import { current, publish, subscribe } from "../state/store.js";
import { textFormatOf } from "../inputs/text_tensor.js";
import { TextEntry } from "../inputs/text_entry.js";

export function startTry(body) {
  const room = new Room(body);
  startRowRequests();
  startPrediction(room.prediction);
  startSnippets(room.snippets);
  subscribe("model", (model) => room.turnTo(model));
  subscribe("chosen model", () => room.wait());
  subscribe("server", () => room.wait());
}

class Room {
  prediction = el("div", { class: "prediction" });
  snippets = el("div", { class: "snippets" });

  #body;
  #ways = el("div", { class: "ways" });
  #entry = el("div", { class: "maker" });
  #samples = el("div", { class: "strip" });
  #whole;
  #model = null;
  #now = null;
  #fetching = null;

  constructor(body) {
    this.#body = body;
    this.#whole = el(
      "div",
      { class: "try" },
      el("div", { class: "making" }, this.#ways, this.#entry),
      this.prediction,
      this.#samples,
      this.snippets,
    );
    acceptDroppedFiles(this.#entry, (file) => this.#now?.open(file));
    this.wait();
  }

  /** Say why there is nothing yet, where there is nothing. */
  wait() {
    if (this.#model === null) setChildren(this.#body, el("p", { class: "empty" }, whyNothing()));
  }

  turnTo(model) {
    const known =
      model?.path === this.#model?.path && model?.certificate.digest === this.#model?.certificate.digest;
    this.#model = model;
    if (known) {
      this.wait();
      return;
    }
    this.#now = null;
    this.#fetching?.abort();
    publish("row", null);
    if (model === null) {
      this.wait();
      return;
    }
    const why = inexpressible(model);
    if (why !== null) {
      setChildren(this.#body, el("p", { class: "empty" }, why));
      return;
    }
    const [picture, reader] = [pictureFormatOf(model), textFormatOf(model)];
    const entries = [
      reader && this.#entering(TextEntry, reader),
      picture && this.#entering(PictureEntry, picture),
      this.#entering(NumberForm, model),
    ].filter(Boolean);
    if (picture && !picture.likely) entries.reverse();
    setChildren(this.#body, this.#whole);
    setChildren(this.#samples);
    this.#offer(entries);
    this.#fetch(model, { picture, reader }, entries).catch(reportError);
  }

  /** An entry whose rows count while it is the one in use. */
  #entering(Entry, about) {
    const entry = new Entry(about, (row) => {
      if (entry === this.#now) publish("row", row);
    });
    return entry;
  }

  /** Ways to make a row, of which the first is taken at first. */
  #offer(entries) {
    const buttons = entries.map((entry) => el("button", { type: "button" }, entry.title));
    const turn = (place) => {
      this.#now = entries[place];
      setChildren(this.#entry, this.#now.node);
      buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(i === place)));
    };
    buttons.forEach((button, place) =>
      button.addEventListener("click", () => {
        const row = current("row");
        turn(place);
        if (row) this.#now.take(row);
      }),
    );
    const choice = el(
      "div",
      { class: "segmented", role: "group", "aria-label": "How to make a row" },
      buttons,
    );
    setChildren(this.#ways, entries.length > 1 && choice);
    turn(0);
  }

  async #fetch(model, ways, entries) {
    const mine = (this.#fetching = new AbortController());
    if (!model.certificate.samples) return;
    let samples;
    try {
      ({ samples } = await get(`${model.path}/samples`, mine.signal));
    } catch (error) {
      if (mine === this.#fetching && !mine.signal.aborted) {
        setChildren(this.#samples, el("p", { class: "failed" }, `No samples: ${error.message}`));
      }
      return;
    }
    if (mine !== this.#fetching || mine.signal.aborted) return;
    const take = ({ inputs }, title) => this.#now.take({ title, inputs });
    const untouched = !current("row");
    if (untouched) for (const entry of entries) entry.learn(samples);
    showSamples(this.#samples, samples, ways, take);
    // so that the page has something to show
    if (untouched && samples.length) take(samples[0], sampleTitle(samples[0], 0));
  }
}

function whyNothing() {
  if (current("server") === "unauthorized") return "A key is wanted before anything can be asked.";
  const chosen = current("chosen model");
  if (!chosen)
    return current("index")?.length === 0 ? "There is no model to ask." : "Waiting for the models…";
  if (chosen.state === "loading") return `Reading what ${chosen.name}/${chosen.version} takes…`;
  return chosen.message || "No model is chosen.";
}

/** Word of an input that cannot be asked from here, null where all can. */
function inexpressible({ inputs }) {
  const half = inputs.find((input) => input.datatype === "FP16");
  if (!half) return null;
  return `The input ${half.name} is FP16, which has no form in JSON: it takes binary requests alone.`;
}
