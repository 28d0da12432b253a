// The models of the service: every version in a list with its last seconds, and the chosen one in full.

import { startChosenModel } from "../state/chosen_model.js";
import { el, setChildren } from "../dom/element.js";
import { ModelList } from "./model_list.js";
import { startRepositoryIndex } from "../state/repository_index.js";
import { current, publish, subscribe } from "../state/store.js";
import { startModelSummary } from "./model_summary.js";

export function startModels(body) {
  const list = new ModelList();
  const about = el("div", { class: "about" });
  setChildren(body, list.node, about);
  startModelSummary(about);
  subscribe("index", (index) => list.tell(index));
  subscribe("chosen model", (chosen) => list.mark(chosen));
  subscribe("model", (model) => model && list.learn(model));
  subscribe("live", (live) => list.live(live));
  let before;
  subscribe("server", (state) => {
    if (state === "unauthorized") {
      list.say(keyWanted());
      noneYet();
    }
    if (state === "up" && before === "down") list.learnAgain();
    before = state;
  });
  startChosenModel();
  startRepositoryIndex((error) => {
    list.say(`The list of models cannot be read: ${error.message}`);
    noneYet();
  });
}

/** The other parts need not wait for a model. */
function noneYet() {
  if (current("model") === undefined) publish("model", null);
}

function keyWanted() {
  const click = () => publish("open key dialog", true);
  return [
    "This service wants a key before it tells which models it has. ",
    el("button", { type: "button", class: "main", on: { click } }, "Enter a key"),
  ];
}
