// One version in the list of models.

import { el, setChildren } from "../dom/element.js";
import { modelFacts } from "../state/model_facts.js";
import { bytes, duration, number } from "../dom/number_format.js";
import { tensorList } from "./tensor_list.js";
import { Sparkline } from "./sparkline.js";
import { publish } from "../state/store.js";
import { errorRatio, parityVerdict } from "./parity_verdict.js";

const STATES = {
  READY: ["served", "ok"],
  LOADING: ["loading", "busy"],
  UNAVAILABLE: ["not served", "off"],
};
const TENSORS_SHOWN = 2;
const FACTS = {
  takes: "takes",
  gives: "gives",
  precision: "precision",
  size: "size",
  parity: "parity",
  rate: "requests/s",
  p50: "p50",
  p99: "p99",
};

/** A line of the list; it asks for its facts when it is first seen. */
export class ModelListEntry {
  constructor({ name, version }) {
    Object.assign(this, { name, version, seen: false, ready: false });
    this.spark = new Sparkline("Requests per second");
    this.state = el("span", { class: "badge" });
    this.why = el("p", { class: "why" });
    this.cells = Object.fromEntries(Object.keys(FACTS).map((fact) => [fact, el("dd", {}, "–")]));
    this.facts = el(
      "dl",
      {},
      Object.entries(FACTS).map(([fact, title]) => pair(fact, title, this.cells[fact])),
      pair("trend", "last minutes", el("dd", {}, this.spark.node)),
    );
    this.button = el(
      "button",
      { type: "button", class: "pick", on: { click: () => publish("choose model", { name, version }) } },
      el("span", { class: "name" }, name),
      version && el("span", { class: "version" }, `/${version}`),
    );
    this.node = el("li", { class: "entry" }, this.button, this.state, this.facts, this.why);
  }

  /** What the index says of it now. */
  tell({ state, reason }) {
    const [word, tone] = STATES[state] ?? [state.toLowerCase(), "off"];
    const again = state === "READY" && !this.ready;
    this.ready = state === "READY";
    this.state.className = `badge ${tone}`;
    setChildren(this.state, word);
    setChildren(this.why, reason);
    this.why.hidden = !reason;
    this.facts.hidden = !this.ready;
    this.button.disabled = !this.ready;
    if (again && this.seen) this.learn();
  }

  /** Whether a person can see it: what nobody sees is neither asked for nor drawn. */
  show(visible) {
    const first = visible && !this.seen;
    this.visible = visible;
    this.seen ||= visible;
    if (first && this.ready) this.learn();
    if (visible) this.spark.draw();
  }

  mark(chosen) {
    this.node.classList.toggle("chosen", chosen);
    if (chosen) this.button.setAttribute("aria-current", "true");
    else this.button.removeAttribute("aria-current");
  }

  /** The last seconds, undefined where nothing came for this version. */
  live(figures) {
    this.spark.add(figures?.requests);
    setChildren(this.cells.rate, number(figures?.requests ?? 0));
    setChildren(this.cells.p50, duration(figures?.p50));
    setChildren(this.cells.p99, duration(figures?.p99));
    if (this.visible) this.spark.draw();
  }

  async learn() {
    try {
      const { metadata, certificate } = await modelFacts(this);
      setChildren(this.cells.takes, tensorList(metadata.inputs, TENSORS_SHOWN));
      setChildren(this.cells.gives, tensorList(metadata.outputs, TENSORS_SHOWN));
      setChildren(this.cells.precision, certificate.precision ?? "–");
      setChildren(this.cells.size, bytes(certificate.bytes));
      setChildren(this.cells.parity, verdict(certificate));
    } catch (error) {
      // it is asked for again when the index next changes or it is chosen
      setChildren(this.cells.parity, el("span", { class: "quiet" }, error.message));
    }
  }
}

function pair(kind, title, cell) {
  return el("div", { class: kind }, el("dt", {}, title), cell);
}

function verdict(certificate) {
  const { proved, word, worst } = parityVerdict(certificate);
  return [
    el("span", { class: proved ? "sign ok" : "sign watch" }, word),
    worst && el("small", {}, `${worst.name} ${errorRatio(worst)}`),
  ];
}
