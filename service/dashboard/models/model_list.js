// The list of models: every version with its state, to be filtered where there are many.

import { sameVersion } from "../state/chosen_model.js";
import { el, setChildren } from "../dom/element.js";
import { ModelListEntry } from "./model_list_entry.js";
import { clearModelFacts } from "../state/model_facts.js";
import { current } from "../state/store.js";

// fewer are found by looking
const FILTER_FROM = 8;
const HEAD = [
  "model",
  "state",
  "takes",
  "gives",
  "precision",
  "size",
  "parity",
  "requests/s",
  "p50",
  "p99",
  "last minutes",
];

/** Every version of the index, each with its line; made once, and kept up. */
export class ModelList {
  constructor() {
    this.entries = new Map();
    this.seen = new IntersectionObserver((changes) => this.#scrolled(changes), { rootMargin: "100px" });
    this.words = el("p", { class: "empty", role: "status" }, "Reading which models there are …");
    this.filter = el("input", {
      type: "search",
      "aria-label": "Filter models",
      placeholder: "Filter by name or state",
      on: { input: () => this.#narrow() },
    });
    this.count = el("span", { class: "quiet", role: "status" });
    this.tools = el("div", { class: "toolbar", hidden: true }, this.filter, this.count);
    const titles = HEAD.map((title) => el("span", {}, title));
    this.head = el("li", { class: "list-head", "aria-hidden": "true" }, titles);
    this.rows = el("ul", { class: "models-list", hidden: true }, this.head);
    this.node = el("div", { class: "models" }, this.tools, this.words, this.rows);
  }

  /** What the index says now. */
  tell(index) {
    const before = this.entries;
    this.entries = new Map(index.map((one) => [keyOf(one), before.get(keyOf(one)) ?? this.#begun(one)]));
    for (const [key, entry] of before) if (!this.entries.has(key)) this.#ended(entry);
    for (const one of index) this.entries.get(keyOf(one)).tell(one);
    this.#arrange();
    this.rows.hidden = !index.length;
    this.tools.hidden = index.length < FILTER_FROM;
    this.words.hidden = index.length > 0;
    setChildren(this.words, index.length ? null : none());
    this.#narrow();
    this.mark(current("chosen model"));
  }

  /** Words in the place of the list, or above what was there before. */
  say(words) {
    setChildren(this.words, words);
    this.words.hidden = false;
  }

  mark(chosen) {
    for (const entry of this.entries.values()) entry.mark(sameVersion(entry, chosen));
    const entry = chosen && this.entries.get(keyOf(chosen));
    // only once, as a person may have gone on through the list meanwhile
    if (entry && entry !== this.revealed) this.#reveal(entry);
  }

  /** A version was read anew, so its line is, too. */
  learn(model) {
    this.entries.get(keyOf(model))?.learn();
  }

  /** Another server may be there now, with other files. */
  learnAgain() {
    clearModelFacts();
    for (const entry of this.entries.values()) if (entry.seen && entry.ready) entry.learn();
  }

  /** The last seconds of all; while they are not known, what was shown stays. */
  live(live) {
    if (!live) return;
    for (const [key, entry] of this.entries) if (entry.ready) entry.live(live.models.get(key));
  }

  #begun(one) {
    const entry = new ModelListEntry(one);
    entry.node.dataset.key = keyOf(one);
    this.seen.observe(entry.node);
    return entry;
  }

  /** Have a line in sight within the list; the page itself stays where it is. */
  #reveal(entry) {
    this.revealed = entry;
    const [list, head, line] = [this.rows, this.head, entry.node].map((node) => node.getBoundingClientRect());
    const top = list.top + head.height;
    if (line.top < top || line.bottom > list.bottom) this.rows.scrollTop += line.top - top;
  }

  #ended(entry) {
    this.seen.unobserve(entry.node);
    entry.node.remove();
  }

  /** Lines that stay are not moved: one of them may have the focus. */
  #arrange() {
    let next = this.head.nextSibling;
    for (const { node } of this.entries.values()) {
      if (node === next) next = node.nextSibling;
      else this.rows.insertBefore(node, next);
    }
  }

  #scrolled(changes) {
    for (const { target, isIntersecting } of changes) {
      this.entries.get(target.dataset.key)?.show(isIntersecting);
    }
  }

  #narrow() {
    const wanted = this.tools.hidden ? "" : this.filter.value.trim().toLowerCase();
    let shown = 0;
    for (const [key, entry] of this.entries) {
      entry.node.hidden = !`${key} ${entry.state.textContent}`.toLowerCase().includes(wanted);
      if (!entry.node.hidden) shown += 1;
    }
    setChildren(this.count, `${shown} of ${this.entries.size}`);
  }
}

function none() {
  const command = el("code", {}, "turnpike export");
  return ["No model is in the repository. ", command, " puts one there, and it appears here."];
}

function keyOf({ name, version }) {
  return `${name}/${version}`;
}
