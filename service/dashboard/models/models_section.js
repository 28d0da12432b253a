// Section "Models": the list of all versions and the details of the chosen one.

import { startCompressionPanel } from "../compression/compression_panel.js";
import { el, setChildren } from "../dom/element.js";
import { startChosenModel } from "../state/chosen_model.js";
import { startRepositoryIndex } from "../state/repository_index.js";
import { current, publish, subscribe } from "../state/store.js";
import { ModelList } from "./model_list.js";
import { startModelSummary } from "./model_summary.js";

export function startModels(body) {
  const list = new ModelList();
  const details = el("div", { class: "about" });
  const compression = el("div", { class: "compression", hidden: true });
  setChildren(body, list.node, details, compression);
  startModelSummary(details);
  startCompressionPanel(compression);
  subscribe("index", (index) => list.update(index));
  subscribe("chosen model", (chosen) => list.markChosen(chosen));
  subscribe("model", (model) => model && list.reloadFacts(model));
  subscribe("live", (live) => list.showTraffic(live));
  let previousState;
  subscribe("server", (state) => {
    if (state === "unauthorized") {
      list.showMessage(keyRequiredMessage());
      publishNoModel();
    }
    if (state === "up" && previousState === "down") list.reloadAllFacts();
    previousState = state;
  });
  startChosenModel();
  startRepositoryIndex((error) => {
    list.showMessage(`The list of models could not be loaded: ${error.message}`);
    publishNoModel();
  });
}

/** Without a list there is no model either: the other sections need not wait for one. */
function publishNoModel() {
  if (current("model") === undefined) publish("model", null);
}

function keyRequiredMessage() {
  const click = () => publish("open key dialog", true);
  return [
    "The service requires an API key to list its models. ",
    el("button", { type: "button", class: "main", on: { click } }, "Enter a key"),
  ];
}
