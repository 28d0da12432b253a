// The list of models: one line per version, with a filter if there are many.

import { el, setChildren } from "../dom/element.js";
import { watchVisibility } from "../dom/visibility.js";
import { sameVersion } from "../state/chosen_model.js";
import { clearModelFacts } from "../state/model_facts.js";
import { current } from "../state/store.js";
import { ModelListEntry } from "./model_list_entry.js";

// number of versions from which the filter is shown
const MIN_VERSIONS_FOR_FILTER = 8;
const COLUMN_TITLES = [
  "model",
  "state",
  "inputs",
  "outputs",
  "precision",
  "size",
  "proof",
  "requests/s",
  "p50",
  "p99",
  "last minutes",
];

/** The list of all versions in the index. Lines are created once and then updated. */
export class ModelList {
  constructor() {
    this.entries = new Map();
    this.visibility = new IntersectionObserver((changes) => this.#updateVisibility(changes), {
      rootMargin: "100px",
    });
    this.message = el("p", { class: "empty", role: "status" }, "Loading the list of models …");
    this.filter = el("input", {
      type: "search",
      "aria-label": "Filter models",
      placeholder: "Filter by name or state",
      on: { input: () => this.#applyFilter() },
    });
    this.count = el("span", { class: "quiet", role: "status" });
    this.tools = el("div", { class: "toolbar", hidden: true }, this.filter, this.count);
    const titles = COLUMN_TITLES.map((title) => el("span", {}, title));
    this.head = el("li", { class: "list-head", "aria-hidden": "true" }, titles);
    this.rows = el("ul", { class: "models-list", hidden: true }, this.head);
    this.node = el("div", { class: "models" }, this.tools, this.message, this.rows);
    watchVisibility(this.node, () => this.#revealChosen());
  }

  /** Show a new index. */
  update(index) {
    const previous = this.entries;
    this.entries = new Map(
      index.map((version) => [keyOf(version), previous.get(keyOf(version)) ?? this.#addEntry(version)]),
    );
    for (const [key, entry] of previous) if (!this.entries.has(key)) this.#removeEntry(entry);
    for (const version of index) this.entries.get(keyOf(version)).update(version);
    this.#orderLines();
    this.rows.hidden = !index.length;
    this.tools.hidden = index.length < MIN_VERSIONS_FOR_FILTER;
    this.message.hidden = index.length > 0;
    setChildren(this.message, index.length ? null : emptyMessage());
    this.#applyFilter();
    this.markChosen(current("chosen model"));
  }

  /** Show a message in place of the list, or above it. */
  showMessage(message) {
    setChildren(this.message, message);
    this.message.hidden = false;
  }

  markChosen(chosen) {
    for (const entry of this.entries.values()) entry.markChosen(sameVersion(entry, chosen));
    this.#revealChosen();
  }

  /** Reload the facts in a version's line, because the version was loaded anew. */
  reloadFacts(model) {
    this.entries.get(keyOf(model))?.loadFacts();
  }

  /** Reload all facts, because the server was down and may now have other files. */
  reloadAllFacts() {
    clearModelFacts();
    for (const entry of this.entries.values()) if (entry.seen && entry.ready) entry.loadFacts();
  }

  /** Show the traffic of the last minutes; without new figures the old ones stay. */
  showTraffic(history) {
    if (!history?.latest) return;
    for (const [key, entry] of this.entries) {
      if (entry.ready) entry.showTraffic(history.figures(key));
    }
  }

  #addEntry(version) {
    const entry = new ModelListEntry(version);
    entry.node.dataset.key = keyOf(version);
    this.visibility.observe(entry.node);
    return entry;
  }

  /** Scroll the list, but not the page, to the chosen version. */
  #revealChosen() {
    const chosen = current("chosen model");
    const entry = chosen && this.entries.get(keyOf(chosen));
    // once per choice, because the user may have scrolled on since; a hidden list cannot be scrolled
    if (!entry || entry === this.revealed || !this.rows.clientHeight) return;
    this.revealed = entry;
    const [list, head, line] = [this.rows, this.head, entry.node].map((node) => node.getBoundingClientRect());
    const top = list.top + head.height;
    if (line.top < top || line.bottom > list.bottom) this.rows.scrollTop += line.top - top;
  }

  #removeEntry(entry) {
    this.visibility.unobserve(entry.node);
    entry.node.remove();
  }

  /** Put the lines in order without moving those already in place: one of them may have the focus. */
  #orderLines() {
    let next = this.head.nextSibling;
    for (const { node } of this.entries.values()) {
      if (node === next) next = node.nextSibling;
      else this.rows.insertBefore(node, next);
    }
  }

  #updateVisibility(changes) {
    for (const { target, isIntersecting } of changes) {
      this.entries.get(target.dataset.key)?.setVisible(isIntersecting);
    }
  }

  #applyFilter() {
    const filter = this.tools.hidden ? "" : this.filter.value.trim().toLowerCase();
    let visibleCount = 0;
    for (const [key, entry] of this.entries) {
      entry.node.hidden = !`${key} ${entry.state.textContent}`.toLowerCase().includes(filter);
      if (!entry.node.hidden) visibleCount += 1;
    }
    setChildren(this.count, `${visibleCount} of ${this.entries.size}`);
  }
}

function emptyMessage() {
  const command = el("code", {}, "turnpike export");
  return ["The repository contains no models. ", command, " adds one, and it then appears here."];
}

function keyOf({ name, version }) {
  return `${name}/${version}`;
}
