// Keeps what is shown in the address (row, levers, and the row kept as A), so that a link opens the same view.

import { sameVersion } from "../state/chosen_model.js";
import { setLevers } from "../state/lesion.js";
import { modelHash, modelIn, tabIn, withTab } from "../state/page_address.js";
import { fetchReading } from "../state/reading.js";
import { current, publish, subscribe } from "../state/store.js";
import { parseView, viewToText } from "./view_address.js";

// milliseconds without a change before the address is written; browsers limit how often that is allowed
const QUIET_TIME = 400;

let timer = 0;
// the row that the page began with: until something else is shown, the address names the model alone
let firstRow = null;
// whether a row of the address is not shown yet
let opening = false;
let keptRequest = null;

/** Open the view of the address, now and whenever the user changes it, and keep it up to date from then on. */
export function startSharedView() {
  subscribe("model", (model) => {
    clearTimeout(timer);
    [firstRow, opening] = [null, false];
    publish("kept reading", null);
    if (model) openView(model, location.hash);
  });
  subscribe("row", (row) => {
    if (row === null) return;
    firstRow ??= row;
    opening = false;
  });
  subscribe("row", writeSoon);
  subscribe("levers", writeSoon);
  subscribe("chosen layer", writeSoon);
  subscribe("kept reading", writeSoon);
  addEventListener("hashchange", ({ oldURL, newURL }) => {
    // the address itself may have been written again since
    const { hash } = new URL(newURL);
    const isOtherTab = withTab(hash, null) === withTab(new URL(oldURL).hash, null);
    const model = current("model");
    if (model && !isOtherTab && sameVersion(modelIn(hash), model)) openView(model, hash);
  });
}

/** The address of what is shown now. */
export function viewAddress() {
  writeNow();
  return location.href;
}

async function openView(model, hash) {
  let view;
  try {
    view = parseView(hash, model);
  } catch (error) {
    publish("address problem", `The row of this address cannot be shown: ${error.message}.`);
    return;
  }
  publish("address problem", "");
  if (view.shown) {
    firstRow = view.shown.row;
    opening = true;
    publish("open row", view.shown.row);
    setLevers(view.shown.levers);
    if (typeof view.shown.layer === "number") publish("chosen layer", view.shown.layer);
  }
  if (view.kept) await openKept(model, view.kept);
}

async function openKept(model, { row, levers }) {
  keptRequest?.abort();
  const controller = (keptRequest = new AbortController());
  try {
    const reading = await fetchReading(model, row, { levers: levers.size ? levers : null, signal: controller.signal });
    if (controller === keptRequest) publish("kept reading", reading);
  } catch (error) {
    if (controller === keptRequest) publish("address problem", `Row A of this address: ${error.message}`);
  }
}

function writeSoon() {
  clearTimeout(timer);
  timer = setTimeout(writeNow, QUIET_TIME);
}

function writeNow() {
  clearTimeout(timer);
  const model = current("model");
  if (!model || opening || !sameVersion(modelIn(location.hash) ?? model, model)) return;
  const view = viewToText(currentView());
  if (view === "" && !modelIn(location.hash)) return;
  const hash = withTab(modelHash(model) + view, tabIn(location.hash));
  if (location.hash !== hash) history.replaceState(null, "", hash);
}

/** @returns {import("./view_address.js").SharedView} */
function currentView() {
  const [row, kept] = [current("row"), current("kept reading")];
  const { levers = new Map() } = current("levers") ?? {};
  if (!row || (row === firstRow && !levers.size && !kept)) return { shown: null, kept: null };
  return {
    shown: { row, levers, layer: layerBeside(levers) },
    kept: kept ? { row: kept.row, levers: kept.levers ?? new Map() } : null,
  };
}

/** The layer that is looked at; null if it is the one that a page with these levers looks at first. */
function layerBeside(levers) {
  const layer = current("chosen layer") ?? null;
  const [first = 0] = levers.keys();
  return layer === first ? null : layer;
}
