// The models of the service: every version in a list with its last seconds, and the chosen one in full.

import { startChoice } from "../state/chosen_model.js";
import { el, fill } from "../dom/element.js";
import { List } from "./model_list.js";
import { startRepository } from "../state/repository_index.js";
import { current, publish, subscribe } from "../state/store.js";
import { startSummary } from "./model_summary.js";

export function startModels(body) {
  const list = new List();
  const about = el("div", { class: "about" });
  fill(body, list.node, about);
  startSummary(about);
  subscribe("index", (index) => list.tell(index));
  subscribe("chosen", (chosen) => list.mark(chosen));
  subscribe("model", (model) => model && list.learn(model));
  subscribe("live", (live) => list.live(live));
  let before;
  subscribe("server", (state) => {
    if (state === "unauthorised") {
      list.say(keyWanted());
      noneYet();
    }
    if (state === "up" && before === "gone") list.learnAgain();
    before = state;
  });
  startChoice();
  startRepository((error) => {
    list.say(`The list of models cannot be read: ${error.message}`);
    noneYet();
  });
}

/** The other parts need not wait for a model. */
function noneYet() {
  if (current("model") === undefined) publish("model", null);
}

function keyWanted() {
  const click = () => publish("ask key", true);
  return [
    "This service wants a key before it tells which models it has. ",
    el("button", { type: "button", class: "main", on: { click } }, "Enter a key"),
  ];
}
