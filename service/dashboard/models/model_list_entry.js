// One version in the list of models.

import { el, setChildren } from "../dom/element.js";
import { bytes, duration, number } from "../dom/number_format.js";
import { modelFacts } from "../state/model_facts.js";
import { publish } from "../state/store.js";
import { errorRatio, parityVerdict } from "./parity_verdict.js";
import { Sparkline } from "./sparkline.js";
import { tensorList } from "./tensor_list.js";

const STATES = {
  READY: ["served", "ok"],
  LOADING: ["loading", "busy"],
  UNAVAILABLE: ["not served", "off"],
};
const MAX_TENSORS = 2;
const FACT_TITLES = {
  takes: "inputs",
  gives: "outputs",
  precision: "precision",
  size: "size",
  proof: "proof",
  rate: "requests/s",
  p50: "p50",
  p99: "p99",
};

/** One line of the list. It loads its facts when it is first visible. */
export class ModelListEntry {
  seen = false;
  ready = false;
  visible = false;

  /** @param {import("../state/store.js").ModelVersion} modelVersion */
  constructor({ name, version }) {
    this.name = name;
    this.version = version;
    this.sparkline = new Sparkline("Requests per second");
    this.state = el("span", { class: "badge" });
    this.reason = el("p", { class: "reason" });
    this.cells = Object.fromEntries(Object.keys(FACT_TITLES).map((fact) => [fact, el("dd", {}, "–")]));
    this.facts = el(
      "dl",
      {},
      Object.entries(FACT_TITLES).map(([fact, title]) => factCell(fact, title, this.cells[fact])),
      factCell("trend", "last minutes", el("dd", {}, this.sparkline.node)),
    );
    this.button = el(
      "button",
      { type: "button", class: "pick", on: { click: () => publish("choose model", { name, version }) } },
      el("span", { class: "name" }, name),
      version && el("span", { class: "version" }, `/${version}`),
    );
    this.node = el("li", { class: "entry" }, this.button, this.state, this.facts, this.reason);
  }

  /** Show the state of the version in the index. */
  update({ state, reason }) {
    const [word, stateClass] = STATES[state] ?? [state.toLowerCase(), "off"];
    const becameReady = state === "READY" && !this.ready;
    this.ready = state === "READY";
    this.state.className = `badge ${stateClass}`;
    setChildren(this.state, word);
    setChildren(this.reason, reason);
    this.reason.hidden = !reason;
    this.facts.hidden = !this.ready;
    this.button.disabled = !this.ready;
    if (becameReady && this.seen) this.loadFacts();
  }

  /** Set whether the line is visible; nothing is requested or drawn for a hidden line. */
  setVisible(visible) {
    const first = visible && !this.seen;
    this.visible = visible;
    this.seen ||= visible;
    if (first && this.ready) this.loadFacts();
    if (visible) this.sparkline.draw();
  }

  markChosen(chosen) {
    this.node.classList.toggle("chosen", chosen);
    if (chosen) this.button.setAttribute("aria-current", "true");
    else this.button.removeAttribute("aria-current");
  }

  /** Show the figures of the last minutes; the last ones are of the present. */
  showTraffic(figures) {
    const { requests_per_s, p50_s, p99_s } = figures.at(-1);
    this.sparkline.values = figures.map((each) => each.requests_per_s);
    setChildren(this.cells.rate, number(requests_per_s));
    setChildren(this.cells.p50, duration(p50_s));
    setChildren(this.cells.p99, duration(p99_s));
    if (this.visible) this.sparkline.draw();
  }

  async loadFacts() {
    try {
      const { metadata, certificate } = await modelFacts(this);
      setChildren(this.cells.takes, tensorList(metadata.inputs, MAX_TENSORS));
      setChildren(this.cells.gives, tensorList(metadata.outputs, MAX_TENSORS));
      setChildren(this.cells.precision, precisionText(certificate));
      setChildren(this.cells.size, bytes(certificate.bytes));
      setChildren(this.cells.proof, verdict(certificate));
    } catch (error) {
      // requested again when the index changes or the version is chosen
      setChildren(this.cells.proof, el("span", { class: "quiet" }, error.message));
    }
  }
}

function factCell(kind, title, cell) {
  return el("div", { class: kind }, el("dt", {}, title), cell);
}

/** The file's precision, and that of the device if it computes in another. */
function precisionText({ precision, device_precision: computed }) {
  const inFile = precision ?? "–";
  return computed === "fp32" ? inFile : `${inFile}, computed in ${computed}`;
}

function verdict(certificate) {
  const { proved, word, worst } = parityVerdict(certificate);
  return [
    certificate.random_weights && el("span", { class: "sign alarm" }, "random weights"),
    el("span", { class: proved ? "sign ok" : "sign watch" }, word),
    worst && el("small", {}, `${worst.name} ${errorRatio(worst)}`),
  ];
}
